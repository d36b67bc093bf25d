package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// intrinsics are functions of the interpreter, taken before any code can put others
// into their places.
type intrinsics struct {
	descriptor, ownKeys, stringify goja.Callable
	errorClass                     *goja.Object
	maps, sets                     collection
	getTime, source                goja.Callable
	typedName, typedLength         goja.Callable
	flags                          []flag
}

// collection is what there is to do with a Map or a Set.
type collection struct {
	size, iterate, next goja.Callable
	pairs               bool
}

// flag is a letter behind a regular expression, and the getter that tells whether it
// is there.
type flag struct {
	letter string
	get    goja.Callable
}

func newIntrinsics(vm *goja.Runtime) intrinsics {
	value := func(expression string) goja.Value {
		v, err := vm.RunString(expression)
		if err != nil {
			panic(err)
		}
		return v
	}
	function := func(expression string) goja.Callable {
		f, ok := goja.AssertFunction(value(expression))
		if !ok {
			panic(expression + " is no function")
		}
		return f
	}
	getter := func(object, name string) goja.Callable {
		return function(fmt.Sprintf("Object.getOwnPropertyDescriptor(%s, %s).get", object, name))
	}
	in := intrinsics{
		descriptor: function("Object.getOwnPropertyDescriptor"), ownKeys: function("Reflect.ownKeys"), stringify: function("JSON.stringify"),
		errorClass: value("Error").(*goja.Object),
		maps:       collection{getter("Map.prototype", "'size'"), function("Map.prototype.entries"), function("new Map().entries().next"), true},
		sets:       collection{getter("Set.prototype", "'size'"), function("Set.prototype.values"), function("new Set().values().next"), false},
		getTime:    function("Date.prototype.getTime"), source: getter("RegExp.prototype", "'source'"),
		typedName:   getter("Object.getPrototypeOf(Int8Array.prototype)", "Symbol.toStringTag"),
		typedLength: getter("Object.getPrototypeOf(Int8Array.prototype)", "'length'"),
	}
	for _, f := range []struct{ letter, name string }{
		{"g", "global"}, {"i", "ignoreCase"}, {"m", "multiline"}, {"s", "dotAll"}, {"u", "unicode"}, {"y", "sticky"},
	} {
		in.flags = append(in.flags, flag{f.letter, getter("RegExp.prototype", "'"+f.name+"'")})
	}
	return in
}

// text is a text with a bound.
type text struct {
	strings.Builder
	most    int
	dropped int // bytes that there was no room for
}

func (t *text) full() bool { return t.dropped > 0 }

func (t *text) write(s string) {
	room := min(max(t.most-t.Len(), 0), len(s))
	for room > 0 && room < len(s) && !utf8.RuneStart(s[room]) {
		room--
	}
	t.WriteString(s[:room])
	t.dropped += len(s) - room
}

// String is the text, and how much of it is missing.
func (t *text) String() string {
	if t.dropped == 0 {
		return t.Builder.String()
	}
	return t.Builder.String() + fmt.Sprintf(" … %d more bytes\n", t.dropped)
}

// What is shown of values: so many levels, and so many members of each.
const (
	maxLevels  = 4
	maxMembers = 100
)

// inspect is a value as a text. It runs no code of the value's: no getter, no toString,
// no trap of a proxy.
func (c *console) inspect(v goja.Value) string {
	i := inspector{console: c, out: text{most: c.most}}
	i.value(v, 0)
	return strings.TrimSuffix(i.out.String(), "\n")
}

type inspector struct {
	*console
	out  text
	path []*goja.Object // that the value is within
}

// quoted is a string as JSON.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return "\"\"" // a string can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (i *inspector) value(v goja.Value, level int) {
	object, ok := v.(*goja.Object)
	switch {
	case ok && level >= maxLevels:
		i.out.write("[" + i.class(object) + "]")
	case ok:
		for _, outer := range i.path {
			if outer == object {
				i.out.write("[Circular]")
				return
			}
		}
		i.path = append(i.path, object)
		i.object(object, level)
		i.path = i.path[:len(i.path)-1]
	default:
		i.out.write(i.primitive(v))
	}
}

// primitive is a value that is no object. Of a long string it makes no copy that is
// long as well.
func (i *inspector) primitive(v goja.Value) string {
	if v == nil || goja.IsUndefined(v) {
		return "undefined"
	}
	if s, ok := v.(*goja.Symbol); ok {
		return "Symbol(" + s.String() + ")"
	}
	switch x := v.Export().(type) {
	case string:
		if room := i.out.most; len(x) > room {
			head := strings.ToValidUTF8(x[:room], "")
			return quoted(head) + fmt.Sprintf("… %d more bytes", len(x)-len(head))
		}
		return quoted(x)
	case *big.Int:
		return x.String() + "n"
	case float64:
		if x == 0 && math.Signbit(x) {
			return "-0"
		}
	}
	return v.String()
}

// The types that tell objects apart. Of an object that is not of its kind an intrinsic
// complains with the object's own toString, so it is not asked.
var (
	promiseType = reflect.TypeFor[*goja.Promise]()
	proxyType   = reflect.TypeFor[goja.Proxy]()
	mapType     = reflect.TypeFor[[][2]any]()
	setType     = reflect.TypeFor[[]any]() // of arrays as well
)

func (i *inspector) object(o *goja.Object, level int) {
	switch o.ExportType() {
	case proxyType:
		i.out.write("Proxy ")
		if target := o.Export().(goja.Proxy).Target(); target != nil {
			i.value(target, level+1)
		} else {
			i.out.write("(revoked)")
		}
		return
	case promiseType:
		i.promise(o.Export().(*goja.Promise), level)
		return
	case mapType:
		i.collection(o, level, i.in.maps)
		return
	case setType:
		if o.ClassName() != "Array" {
			i.collection(o, level, i.in.sets)
			return
		}
	}
	if name := i.call(i.in.typedName, o); name != nil && !goja.IsUndefined(name) {
		i.typed(o, name.String())
		return
	}
	switch o.ClassName() {
	case "Function":
		i.function(o)
	case "Array":
		i.array(o, level)
	case "Error":
		i.error(o, level)
	case "Date":
		i.date(o)
	case "RegExp":
		i.regexp(o)
	default:
		if class := i.class(o); class != "Object" {
			i.out.write(class + " ")
		}
		i.members(o, level)
	}
}

// call calls an intrinsic, which gives nil for what it is not meant for.
func (i *inspector) call(f goja.Callable, o *goja.Object, args ...goja.Value) goja.Value {
	v, err := f(o, args...)
	if err != nil {
		return nil
	}
	return v
}

// property is an own property that has a value. There is none where the property is
// not there; or has a getter, or no value to be had, and then accessor is true.
func (i *inspector) property(o *goja.Object, key goja.Value) (value goja.Value, enumerable, accessor bool) {
	descriptor, ok := i.call(i.in.descriptor, nil, o, key).(*goja.Object)
	if !ok {
		return nil, false, false
	}
	enumerable = own(descriptor, "enumerable") != nil && own(descriptor, "enumerable").ToBoolean()
	if value = own(descriptor, "value"); value != nil {
		return value, enumerable, false
	}
	return nil, enumerable, true
}

// own is a member of an object that the interpreter has just made, and nil if it is
// only inherited: from what code made of Object.prototype.
func own(o *goja.Object, name string) goja.Value {
	if !slices.Contains(o.GetOwnPropertyNames(), name) {
		return nil
	}
	return o.Get(name)
}

// inherited looks a property up as property does, among those that o inherits too. It
// looks at no proxy.
func (i *inspector) inherited(o *goja.Object, name string) (value goja.Value, accessor bool) {
	for range maxMembers {
		if o == nil || o.ExportType() == proxyType {
			return nil, false
		}
		value, _, accessor := i.property(o, i.vm.ToValue(name))
		if value != nil || accessor {
			return value, accessor
		}
		o = o.Prototype()
	}
	return nil, false
}

// word is such a property if it is a string.
func (i *inspector) word(o *goja.Object, name string) string {
	value, _ := i.inherited(o, name)
	if value == nil {
		return ""
	}
	s, _ := value.Export().(string)
	return s
}

// class is the name of the class that made o.
func (i *inspector) class(o *goja.Object) string {
	if o.ExportType() == proxyType {
		return "Proxy"
	}
	if constructor, _ := i.inherited(o, "constructor"); constructor != nil {
		if f, ok := constructor.(*goja.Object); ok && f.ExportType() != proxyType {
			if name := i.word(f, "name"); name != "" {
				return name
			}
		}
	}
	if o.Prototype() == nil {
		return "[null prototype]"
	}
	return o.ClassName()
}

func (i *inspector) function(o *goja.Object) {
	name := i.word(o, "name")
	if name == "" {
		name = "(anonymous)"
	}
	i.out.write("[Function: " + name + "]")
}

func (i *inspector) date(o *goja.Object) {
	at := i.call(i.in.getTime, o)
	if at == nil || math.IsNaN(at.ToFloat()) {
		i.out.write("Invalid Date")
		return
	}
	i.out.write(time.UnixMilli(at.ToInteger()).UTC().Format("2006-01-02T15:04:05.000Z"))
}

func (i *inspector) regexp(o *goja.Object) {
	source := i.call(i.in.source, o)
	if source == nil {
		i.members(o, maxLevels) // RegExp.prototype
		return
	}
	i.out.write("/" + source.String() + "/")
	for _, f := range i.in.flags {
		if on := i.call(f.get, o); on != nil && on.ToBoolean() {
			i.out.write(f.letter)
		}
	}
}

func (i *inspector) promise(p *goja.Promise, level int) {
	i.out.write("Promise { ")
	switch p.State() {
	case goja.PromiseStatePending:
		i.out.write("<pending>")
	case goja.PromiseStateRejected:
		i.out.write("<rejected> ")
		i.value(p.Result(), level+1)
	default:
		i.value(p.Result(), level+1)
	}
	i.out.write(" }")
}

// error is what an error says and, where it is not within something else, where it was
// made.
func (i *inspector) error(o *goja.Object, level int) {
	name, message := i.word(o, "name"), i.word(o, "message")
	if name == "" {
		name = i.class(o)
	}
	says := name
	if message != "" {
		says += ": " + message
	}
	if level > 0 {
		i.out.write("[" + says + "]")
		return
	}
	i.out.write(says)
	i.stack(o)
	for _, key := range i.keys(o) {
		if name := key.String(); name == "stack" || name == "message" || name == "name" {
			continue
		}
		if value, enumerable, _ := i.property(o, key); value != nil && enumerable {
			i.out.write("\n    " + i.key(key) + ": ")
			i.value(value, level+1)
		}
	}
}

// stack writes the stack of an error. The interpreter makes it of name and message when
// it is first asked for it, and runs their getters, if they have any.
func (i *inspector) stack(o *goja.Object) {
	for _, name := range []string{"name", "message"} {
		if _, accessor := i.inherited(o, name); accessor {
			return
		}
	}
	lines := 0
	for line := range strings.Lines(i.word(o, "stack")) {
		found := frame.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if found == nil || lines == maxFrames {
			continue
		}
		lines++
		var at, column int
		// They are digits; a number that is too big for int says nothing either.
		_, _ = fmt.Sscan(found[3], &at)
		_, _ = fmt.Sscan(found[4], &column)
		i.out.write("\n    at " + place(found[1], found[2], at, column))
	}
}

// keys are the own keys of o.
func (i *inspector) keys(o *goja.Object) []goja.Value {
	list, ok := i.call(i.in.ownKeys, nil, o).(*goja.Object)
	if !ok {
		return nil
	}
	keys := make([]goja.Value, 0, maxMembers)
	for n := range int(list.Get("length").ToInteger()) {
		keys = append(keys, list.Get(fmt.Sprint(n)))
	}
	return keys
}

func (i *inspector) key(key goja.Value) string {
	if s, ok := key.(*goja.Symbol); ok {
		return "[Symbol(" + s.String() + ")]"
	}
	name := key.String()
	for n, r := range name {
		if r != '_' && r != '$' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (n == 0 || r < '0' || r > '9') {
			return quoted(name)
		}
	}
	if name == "" {
		return quoted(name)
	}
	return name
}

// list writes members between brackets, until there are enough of them.
func (i *inspector) list(open, closed string, total int, write func(n int)) {
	if total == 0 {
		i.out.write(open + closed)
		return
	}
	space := " "
	if open == "[" {
		space = ""
	}
	i.out.write(open + space)
	for n := range total {
		if i.out.full() {
			return
		}
		if n > 0 {
			i.out.write(", ")
		}
		if n == maxMembers {
			i.out.write(fmt.Sprintf("… %d more", total-n))
			break
		}
		write(n)
	}
	i.out.write(space + closed)
}

func (i *inspector) members(o *goja.Object, level int) {
	var keys []goja.Value
	for _, key := range i.keys(o) {
		if _, enumerable, _ := i.property(o, key); enumerable {
			keys = append(keys, key)
		}
	}
	i.list("{", "}", len(keys), func(n int) {
		i.out.write(i.key(keys[n]) + ": ")
		if value, _, accessor := i.property(o, keys[n]); accessor {
			i.out.write("[Getter]")
		} else {
			i.value(value, level+1)
		}
	})
}

func (i *inspector) array(o *goja.Object, level int) {
	length, _, _ := i.property(o, i.vm.ToValue("length"))
	if length == nil {
		i.members(o, level)
		return
	}
	i.list("[", "]", int(length.ToInteger()), func(n int) {
		switch value, _, accessor := i.property(o, i.vm.ToValue(n)); {
		case accessor:
			i.out.write("[Getter]")
		case value == nil:
			i.out.write("<empty>")
		default:
			i.value(value, level+1)
		}
	})
}

func (i *inspector) typed(o *goja.Object, name string) {
	length := i.call(i.in.typedLength, o)
	i.out.write(fmt.Sprintf("%s(%d) ", name, length.ToInteger()))
	i.list("[", "]", int(length.ToInteger()), func(n int) {
		value, _, _ := i.property(o, i.vm.ToValue(n))
		i.value(value, maxLevels)
	})
}

// collection writes a Map or a Set.
func (i *inspector) collection(o *goja.Object, level int, kind collection) {
	size := i.call(kind.size, o)
	members, ok := i.call(kind.iterate, o).(*goja.Object)
	if size == nil || !ok {
		i.members(o, level) // neither of them
		return
	}
	i.out.write(fmt.Sprintf("%s(%d) ", i.class(o), size.ToInteger()))
	i.list("{", "}", int(size.ToInteger()), func(int) {
		step, ok := i.call(kind.next, members).(*goja.Object)
		if !ok {
			return
		}
		member := own(step, "value")
		if entry, ok := member.(*goja.Object); ok && kind.pairs {
			i.value(entry.Get("0"), level+1)
			i.out.write(" => ")
			member = entry.Get("1")
		}
		i.value(member, level+1)
	})
}

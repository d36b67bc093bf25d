package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decode reads the one document of a text into v, which has all the settings that may
// stand there, and gives what it read. Its errors have the line, the setting and what is
// wanted there, and never a value, which may be a key.
func decode(text []byte, v any) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	doc := new(yaml.Node)
	switch err := d.Decode(doc); {
	case errors.Is(err, io.EOF):
		return doc, nil
	case err != nil:
		return nil, errors.New(syntax(text, err))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one document, without ---")
	}
	err := doc.Decode(v)
	var types *yaml.TypeError
	if says, of := strings.CutPrefix(fmt.Sprint(err), "yaml: "); of && !errors.As(err, &types) {
		return nil, errors.New(says) // a value that contains itself, and the like
	}
	// What the package says of types are Go's words, and it takes 1.5 for 1.
	c := checker{}
	c.value(doc.Content[0], reflect.TypeOf(v).Elem(), "")
	if c.wrong != nil {
		err = errors.New(strings.Join(c.wrong, "; "))
	}
	return doc, err
}

var lineRule = regexp.MustCompile(`^line ([0-9]+): `)

// syntax is what is wrong with a text that is no YAML. The package leaves the number of
// the first line out, and not that of the second.
func syntax(text []byte, err error) string {
	says := strings.TrimPrefix(err.Error(), "yaml: ")
	if lineRule.MatchString(says) {
		return says
	}
	again := yaml.Unmarshal(append([]byte("\n"), text...), new(yaml.Node))
	if again != nil && lineRule.MatchString(strings.TrimPrefix(again.Error(), "yaml: ")) {
		return "line 1: " + says
	}
	return says
}

// problem is what a setting is refused with.
type problem struct {
	line int
	text string
}

func (p *problem) Error() string { return fmt.Sprintf("line %d: %s", p.line, p.text) }

// wrong refuses what stands at n.
func wrong(n *yaml.Node, format string, args ...any) error {
	return &problem{n.Line, fmt.Sprintf(format, args...)}
}

// checker finds what of a document cannot be read into a type.
type checker struct{ wrong []string }

func (c *checker) add(n *yaml.Node, path, text string) {
	if path != "" {
		text = path + ": " + text
	}
	c.wrong = append(c.wrong, fmt.Sprintf("line %d: %s", n.Line, text))
}

var unmarshaler = reflect.TypeFor[yaml.Unmarshaler]()

// value checks the value of the setting at path. Types are those that a file is made
// of: texts, numbers, lists, maps by name, structs, and what reads itself.
func (c *checker) value(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // it is left out
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		c.itself(n, reflect.New(t).Interface().(yaml.Unmarshaler), path)
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		if n.Kind != yaml.MappingNode {
			c.add(n, path, "want settings, as in {NAME: VALUE}")
			return
		}
		c.members(n, t, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			c.add(n, path, "want a list, as in [ONE, ANOTHER]")
			return
		}
		for _, item := range n.Content {
			c.value(item, t.Elem(), path)
		}
	default:
		if want := wanted(n, reflect.New(t)); want != "" {
			c.add(n, path, want)
		}
	}
}

// itself checks a value whose type reads it.
func (c *checker) itself(n *yaml.Node, v yaml.Unmarshaler, path string) {
	err := v.UnmarshalYAML(n)
	var found *problem
	switch {
	case errors.As(err, &found):
		c.add(&yaml.Node{Line: found.line}, path, found.text)
	case err != nil:
		c.wrong = append(c.wrong, err.Error())
	}
}

// wanted says what a scalar must be, if n is not.
func wanted(n *yaml.Node, v reflect.Value) string {
	fits := n.Kind == yaml.ScalarNode && n.Decode(v.Interface()) == nil
	switch v.Elem().Kind() {
	case reflect.Bool:
		if !fits {
			return "want true or false"
		}
	case reflect.String:
		if !fits || n.ShortTag() == "!!binary" {
			return "want a text"
		}
	default:
		_, err := strconv.ParseInt(n.Value, 10, 64)
		switch whole := n.ShortTag() == "!!int"; {
		case !fits && (whole || errors.Is(err, strconv.ErrRange)):
			return "the number is too large"
		case !fits || !whole:
			return "want a whole number"
		}
	}
	return ""
}

// members checks the settings of a struct, or the values of a map.
func (c *checker) members(n *yaml.Node, t reflect.Type, path string) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			c.merged(value, t, path)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			c.add(key, path, "want a name before each colon")
			continue
		}
		inside := path + "." + key.Value
		if path == "" {
			inside = key.Value
		}
		if first := lines[key.Value]; first != 0 {
			c.add(key, "", fmt.Sprintf("%s stands at line %d already", inside, first))
			continue
		}
		lines[key.Value] = key.Line
		if t.Kind() == reflect.Map {
			c.value(value, t.Elem(), inside)
			continue
		}
		field, ok := setting(t, key.Value)
		if !ok {
			text := "there is no setting " + key.Value
			if path != "" {
				text += " in " + path
			}
			c.add(key, "", text)
			continue
		}
		c.value(value, field.Type, inside)
	}
}

// merged checks what << brings into a mapping: another one, or several.
func (c *checker) merged(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.SequenceNode {
		for _, one := range n.Content {
			c.merged(one, t, path)
		}
		return
	}
	c.value(n, t, path)
}

// setting is the field of a struct that has the setting of that name.
func setting(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if tag == name && name != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// misplacedError is an error with its place in the file, from the outside to the inside.
type misplacedError struct {
	path []string
	error
}

func (e *misplacedError) Unwrap() error { return e.error }

// at says where in the file an error is, of which the place further inside may be said
// already. A list has its places by number.
func at(err error, path ...string) error {
	var inside *misplacedError
	if errors.As(err, &inside) {
		path = append(slices.Clone(path), inside.path...)
	}
	return &misplacedError{path, err}
}

// lineOf is where the setting at path stands, or else what it would be in; 0 if that is
// not known.
func lineOf(n *yaml.Node, path []string) (line int) {
	for n != nil {
		switch {
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
			continue
		case n.Kind == yaml.AliasNode:
			n = n.Alias
			continue
		case len(path) == 0:
			return line
		}
		var at, next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == path[0] {
					at, next = n.Content[i], n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(path[0]); err == nil && 0 <= i && i < len(n.Content) {
				at, next = n.Content[i], n.Content[i]
			}
		}
		if at != nil {
			line = at.Line
		}
		n, path = next, path[1:]
	}
	return line
}

package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fill gives v, and whatever is in it, values that are not zero where chosen says so.
func fill(v reflect.Value, path string, chosen func(path string) bool, text func() string) {
	number := func() int64 { return int64(len(path))*1_000_003 - 7 }
	switch v.Addr().Interface().(type) {
	case *Digest:
		if chosen(path) {
			v.Set(reflect.ValueOf(Digest{0: byte(len(path)), 31: 0xab}))
		}
		return
	case *Time:
		if chosen(path) {
			v.Set(reflect.ValueOf(NewTime(time.UnixMicro(1_700_000_000_000_000 + number()%1000*500))))
		}
		return
	case *Struct:
		if chosen(path) {
			v.Set(reflect.ValueOf(Struct(`{"n":12345678901234567890}`)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name, chosen, text)
		}
	case reflect.Pointer:
		if chosen(path) {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), path, chosen, text)
		}
	case reflect.String:
		if chosen(path) {
			v.SetString(text())
		}
	case reflect.Bool:
		v.SetBool(chosen(path))
	case reflect.Int32, reflect.Int64:
		if chosen(path) {
			v.SetInt(number())
		}
	case reflect.Slice:
		if !chosen(path) {
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(text()))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			if len(path) < 40 { // reasoning may have parts with reasoning
				fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i), chosen, text)
			}
		}
	case reflect.Map:
		if chosen(path) {
			v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		}
	default:
		panic("a field of a new kind: " + path)
	}
}

// samePlain shows that e is written as by any way, and read so, and reports whether quickly.
func samePlain(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, e *Event,
) (written, read bool) {
	t.Helper()
	want, err := encodeEvent(e)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	got, written := encodePlain(e)
	if written && !bytes.Equal(got, want) {
		t.Fatalf("written as\n%s, want\n%s", got, want)
	}
	decoded, err := decodeEvent(want)
	if err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	again, read := decodePlain(want)
	if read {
		if diff := cmp.Diff(decoded, again); diff != "" {
			t.Fatalf("%s is read as (-want +got):\n%s", want, diff)
		}
	}
	return written, read
}

// Each field of an event is written and read as it must be, also one that was added later:
// those that are not worth it are listed here.
func TestPlainEventFields(t *testing.T) {
	var paths []string
	fill(reflect.ValueOf(new(Event)).Elem(), "", func(path string) bool {
		paths = append(paths, path)
		return true
	}, func() string { return "x" })
	slow := map[string]bool{
		".Actor": true, ".Approval": true, ".ApprovalResult": true, ".Error": true, ".Result": true, ".Tool": true,
		".Cell.Args": true, ".End.Error": true, ".Model.Messages": true, ".Model.Params": true, ".Model.ToolChoice": true, ".Model.Tools": true,
	}
	within := func(path, outer string) bool {
		return len(path) > len(outer) && path[:len(outer)] == outer && (path[len(outer)] == '.' || path[len(outer)] == '[')
	}
	for _, path := range paths {
		var e Event
		fill(reflect.ValueOf(&e).Elem(), "", func(p string) bool { return p == path || within(path, p) }, func() string { return "text" })
		written, read := samePlain(t, &e)
		quick := true
		for outer := range slow {
			quick = quick && path != outer && !within(path, outer)
		}
		// Parts of messages are tested with these.
		if path != ".Message.Parts" && !within(path, ".Message.Parts") && (quick != written || path != ".Actor" && quick != read) {
			t.Errorf("%s: written %t, read %t, want %t", path, written, read, quick)
		}
	}
}

func TestPlainEvents(t *testing.T) {
	texts := rapid.OneOf(rapid.StringMatching(`[ -~]{0,9}`), rapid.StringMatching(`[\n\t\r\f"\\/a<]{0,5}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		var e Event
		odds := rapid.IntRange(1, 6).Draw(t, "odds")
		fill(reflect.ValueOf(&e).Elem(), "", func(path string) bool {
			return rapid.IntRange(0, odds).Draw(t, path) == 0
		}, func() string { return texts.Draw(t, "text") })
		samePlain(t, &e)
	})
}

func FuzzPlainEvent(f *testing.F) {
	for _, seed := range []string{
		`{"cell":{"class":"deterministic","fuel":"6330","reason":"completed","root":"` + Digest{1}.String() + `","turn":"1"},"end":{"state":"COMPLETED"},"execution_id":"exec-1","kind":"EVENT_END","schema_version":1,"ts":"2026-01-02T03:04:05.678901Z"}`,
		`{"kind":"EVENT_OUTPUT","message":{"parts":[{"text":{"text":"hi\n"}}],"role":"assistant"},"ts":"2026-01-02T03:04:05+01:00"}`,
		`{"cell":{"limits":{"depth":1},"seed":"AAEC","cloned":true},"execution_start":{"config":"e30=","input_count":"1"},"usage":{"input_tokens":"3"}}`,
		`{"cell":{"numbers":{"/a":"1"}}}`, `{"ts":null}`, `{"ts":""}`, `{"cell":{"root":""}}`, `{"cell":{"cloned":false}}`, `{"cell":{},"cell":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := decodePlain(b)
		if !ok {
			return
		}
		want, err := decodeEvent(b)
		if diff := cmp.Diff(want, e); err != nil || diff != "" {
			t.Fatalf("%q: %v (-want +got):\n%s", b, err, diff)
		}
		if encoded, ok := encodePlain(e); ok {
			if again, err := encodeEvent(e); err != nil || !bytes.Equal(encoded, again) || !json.Valid(encoded) {
				t.Fatalf("written as %s, want %s, %v", encoded, again, err)
			}
		}
	})
}

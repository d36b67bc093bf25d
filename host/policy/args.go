package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/agentcell/agentcell/sdk/abi"
)

// readArgs makes CEL's value of a call's arguments, or an error, which is one of them as
// a whole: an error within a value CEL would take for equal to anything.
func readArgs(text abi.Struct) ref.Val {
	if len(text) == 0 {
		text = abi.Struct("{}")
	}
	if !json.Valid(text) {
		return types.NewErr("args: they are no JSON")
	}
	r := reader{text: string(text)}
	v, err := r.value(0)
	if _, object := v.(traits.Mapper); err == nil && !object {
		err = errors.New("they are no object")
	}
	if err != nil {
		return types.WrapErr(fmt.Errorf("args: %w", err))
	}
	return v
}

// reader makes CEL's values of JSON that is known to be valid. Other than through those
// of Go, 4 MB of small values take a tenth of a second and not one. Each value is made
// once, as CEL keeps there what it has found out about its size.
type reader struct {
	text string
	at   int
}

// next is the next byte that is no space.
func (r *reader) next() byte {
	for strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
	return r.text[r.at]
}

func (r *reader) value(depth int) (ref.Val, error) {
	if depth > abi.MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d", abi.MaxDepth)
	}
	switch r.next() {
	case '{':
		return r.object(depth)
	case '[':
		return r.list(depth)
	case '"':
		return r.string(), nil
	case 't':
		r.at += len("true")
		return types.True, nil
	case 'f':
		r.at += len("false")
		return types.False, nil
	case 'n':
		r.at += len("null")
		return types.NullValue, nil
	}
	from := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.0123456789Ee", r.text[r.at]) >= 0 {
		r.at++
	}
	return number(r.text[from:r.at])
}

func (r *reader) list(depth int) (ref.Val, error) {
	r.at++
	var list []ref.Val
	for r.next() != ']' {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return types.NewRefValList(types.DefaultTypeAdapter, list), nil
}

func (r *reader) object(depth int) (ref.Val, error) {
	r.at++
	object := map[ref.Val]ref.Val{}
	for r.next() != '}' {
		name := r.string()
		r.next()
		r.at++ // the colon
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		object[name] = v
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return types.NewRefValMap(types.DefaultTypeAdapter, object), nil
}

func (r *reader) string() types.String {
	from := r.at
	r.at++
	plain := true
	for r.text[r.at] != '"' {
		if r.text[r.at] == '\\' {
			plain = false
			r.at++
		}
		r.at++
	}
	r.at++
	if text := r.text[from+1 : r.at-1]; plain && utf8.ValidString(text) {
		return types.String(text)
	}
	var text string
	_ = json.Unmarshal([]byte(r.text[from:r.at]), &text) // it is valid
	return types.String(text)
}

package openai

import (
	"encoding/json"
	"strings"

	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// details are reasoning_details: a list of objects, which a stream gives in
// pieces. Pieces of one object follow one another and have its index and type;
// their texts join, and of other fields the last value that is not null counts.
type details []*detail

type detail struct {
	fields map[string]json.RawMessage
	texts  map[string]*strings.Builder
}

func (d *details) add(raw json.RawMessage, room *remote.Room) error {
	if err := room.Take(len(raw) + partCost); err != nil {
		return err
	}
	var piece map[string]json.RawMessage
	if err := json.Unmarshal(raw, &piece); err != nil {
		return remote.Garbage("its reasoning_details cannot be read: %s", abi.JSONProblem(err))
	}
	if n := len(*d); n == 0 || !(*d)[n-1].goesOn(piece) {
		*d = append(*d, &detail{fields: map[string]json.RawMessage{}, texts: map[string]*strings.Builder{}})
	}
	return (*d)[len(*d)-1].add(piece)
}

// goesOn reports whether piece is of the same object.
func (d *detail) goesOn(piece map[string]json.RawMessage) bool {
	return piece["index"] != nil && string(d.fields["index"]) == string(piece["index"]) && string(d.fields["type"]) == string(piece["type"])
}

func (d *detail) add(piece map[string]json.RawMessage) error {
	for name, value := range piece {
		switch {
		case (name == "text" || name == "summary" || name == "data") && value[0] == '"':
			text, err := unquote(value)
			if err != nil {
				return err
			}
			if d.texts[name] == nil {
				d.texts[name] = new(strings.Builder)
			}
			d.texts[name].WriteString(text)
		case string(value) != "null" || d.fields[name] == nil:
			d.fields[name] = value
		}
	}
	return nil
}

// objects is the list as it goes back.
func (d details) objects() []remote.Object {
	list := make([]remote.Object, len(d))
	for i, one := range d {
		list[i] = remote.Object{}
		for name, value := range one.fields {
			list[i][name] = value
		}
		for name, text := range one.texts {
			list[i][name] = text.String()
		}
	}
	return list
}

package remote

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// Object is a JSON object under way to an API.
type Object map[string]any

// Params puts the parameters of a call into o, those of the call itself over the
// standard ones. A value that is JSON is sent as that, any other as a string: "0.2"
// is a number, "low" a string. Taken are names that the API's package fills itself.
func (o Object) Params(call, standard map[string]string, taken ...string) error {
	for _, params := range []map[string]string{standard, call} {
		for name, value := range params {
			if slices.Contains(taken, name) {
				return Invalid("the parameter %q is not free: it follows from the call", name)
			}
			if json.Valid([]byte(value)) {
				o[name] = json.RawMessage(value)
			} else {
				o[name] = value
			}
		}
	}
	return nil
}

// AtMost bounds the tokens of the answer, unless most is 0, in whichever of names o
// has already, or else in the first.
func (o Object) AtMost(most int64, names ...string) {
	if most <= 0 {
		return
	}
	bound := []byte(strconv.FormatInt(most, 10))
	found := false
	for _, name := range names {
		value, ok := o[name]
		if !ok {
			continue
		}
		found = true
		text, _ := value.(json.RawMessage)
		if n, err := strconv.ParseInt(string(text), 10, 64); err != nil || n > most || n <= 0 {
			o[name] = json.RawMessage(bound)
		}
	}
	if !found {
		o[names[0]] = json.RawMessage(bound)
	}
}

// Encode writes o.
func (o Object) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // what came from the provider goes back as it was
	if err := e.Encode(o); err != nil {
		return nil, Invalid("the call cannot be written as JSON: %v", err)
	}
	return b.Bytes(), nil
}

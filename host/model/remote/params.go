package remote

import (
	"bytes"
	"encoding/json"
	"slices"
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

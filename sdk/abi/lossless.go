package abi

import (
	"bytes"
	"encoding/json"
)

// MarshalLossless returns the canonical form of v, which must be a JSON object
// without a member "numbers". Where v has numbers that a double cannot hold, the
// form has one more member, "numbers": their raw text by JSON Pointer (I2).
func MarshalLossless(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	c := canonicalizer{src: b, dst: make([]byte, 0, len(b)), lossy: map[string]string{}}
	out, err := c.run()
	if err != nil || len(c.lossy) == 0 {
		return out, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(out, &object); err != nil {
		return nil, err
	}
	if object["numbers"], err = json.Marshal(c.lossy); err != nil {
		return nil, err
	}
	return MarshalCanonical(object)
}

// UnmarshalLossless reads what MarshalLossless wrote into v.
func UnmarshalLossless(b []byte, v any) error {
	var kept struct {
		Numbers map[string]string `json:"numbers"`
	}
	if bytes.Contains(b, []byte(`"numbers":{`)) {
		if err := json.Unmarshal(b, &kept); err != nil {
			return err
		}
	}
	if len(kept.Numbers) > 0 {
		restored, err := restoreNumbers(b, kept.Numbers)
		if err != nil {
			return err
		}
		b = restored
	}
	return json.Unmarshal(b, v)
}

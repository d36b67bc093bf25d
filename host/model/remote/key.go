package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host/model"
)

// Key is a secret that lives elsewhere: it is looked up for each call, and stands
// nowhere but in the header of a request (S4). The zero Key is none.
type Key struct {
	// Name is what people call it, such as "env:OPENAI_API_KEY".
	Name string
	// Get looks it up. Its error is shown to people.
	Get func() (string, error)
}

// minKey is the length of a key below which it is too likely a word of a text to
// be looked for there.
const minKey = 8

func (k Key) get() (string, error) {
	if k.Get == nil {
		return "", nil
	}
	secret, err := k.Get()
	if err != nil {
		return "", fmt.Errorf("its key %s: %w", k.Name, err)
	}
	secret = strings.TrimSpace(secret) // a file or $(cat) leaves a line break
	switch {
	case secret == "":
		return "", fmt.Errorf("its key %s is not set", k.Name)
	case len(secret) < minKey:
		return "", fmt.Errorf("its key %s is shorter than %d characters", k.Name, minKey)
	case strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("its key %s has a character that a header cannot have", k.Name)
	}
	return secret, nil
}

// errEchoed reports an answer that would carry the key into the record.
var errEchoed = errors.New("the answer holds the key that was sent with the request; it is not taken")

// holdsKey reports whether an answer has the key in it, anywhere that a record would.
func holdsKey(r model.Result, key string) bool {
	if key == "" {
		return false
	}
	for _, p := range r.Message.Parts { // of what JSON has as base64
		if p.Reasoning != nil && holds(p.Reasoning.OpaqueBytes, key) || p.File != nil && holds(p.File.Bytes, key) {
			return true
		}
	}
	all, err := json.Marshal(r)
	return err == nil && holds(all, key)
}

// holds looks for the key as it is, and as JSON writes it.
func holds(b []byte, key string) bool {
	quoted, err := json.Marshal(key)
	return bytes.Contains(b, []byte(key)) || err == nil && bytes.Contains(b, quoted[1:len(quoted)-1])
}

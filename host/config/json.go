package config

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON is a value of any kind, as the JSON that it stands for. A number is as it was
// written, wherever JSON has that form.
type JSON string

// Bounds of such a value, which YAML can write very long in few words.
const (
	maxJSON  = 64 << 10
	maxDepth = 32
)

// UnmarshalYAML implements yaml.Unmarshaler.
func (j *JSON) UnmarshalYAML(n *yaml.Node) error {
	var b strings.Builder
	if err := writeJSON(&b, n, maxDepth); err != nil {
		return err
	}
	*j = JSON(b.String())
	return nil
}

func writeJSON(b *strings.Builder, n *yaml.Node, depth int) error {
	if depth == 0 || b.Len() > maxJSON {
		return wrong(n, "want a value of at most %d bytes of JSON, and %d in each other", maxJSON, maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return writeJSON(b, n.Alias, depth-1)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item, depth-1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.MappingNode:
		b.WriteByte('{')
		names := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			switch {
			case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
				return wrong(key, "want a name before each colon")
			case names[key.Value]:
				return wrong(key, "%.40q stands twice", key.Value)
			}
			names[key.Value] = true
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, key.Value)
			b.WriteByte(':')
			if err := writeJSON(b, n.Content[i+1], depth-1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	}
	return writeScalar(b, n)
}

func writeScalar(b *strings.Builder, n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		b.WriteString("null")
	case "!!bool":
		var v bool
		if n.Decode(&v) != nil {
			return wrong(n, "want true or false")
		}
		b.WriteString(strconv.FormatBool(v))
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value)
			return nil
		}
		var whole int64
		var v float64
		switch {
		case tag == "!!int" && n.Decode(&whole) == nil: // such as 0x10
			b.WriteString(strconv.FormatInt(whole, 10))
		case tag == "!!float" && n.Decode(&v) == nil && !math.IsInf(v, 0) && !math.IsNaN(v): // such as .5
			b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
		default:
			return wrong(n, "want a number that JSON has")
		}
	default:
		// Without quotes it is a number that no double can hold.
		if n.Style == 0 && json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value)
			return nil
		}
		writeText(b, n.Value)
	}
	return nil
}

func writeText(b *strings.Builder, text string) {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text has a form in JSON, and memory takes it
	b.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
}

package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// EncodeEvent returns the canonical form of e. A number that a JSON double
// cannot hold is kept, as raw text, in Cell.Numbers (I2), whatever e has there; a
// number that JSON cannot carry is refused.
func EncodeEvent(e *Event) ([]byte, error) {
	if b, ok := encodePlain(e); ok {
		return b, nil
	}
	return encodeEvent(e)
}

// encodeEvent is EncodeEvent of any event.
func encodeEvent(e *Event) ([]byte, error) {
	event, cell := *e, Cell{}
	if e.Actor != nil && *e.Actor == (IdentityRef{}) {
		event.Actor = nil
	}
	if e.Cell != nil {
		cell = *e.Cell
		cell.Numbers = nil
		event.Cell = &cell
	}
	b, err := json.Marshal(&event)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	c := canonicalizer{src: b, dst: make([]byte, 0, len(b)+64), collect: true}
	out, err := c.run()
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	if c.lossy == nil {
		return out, nil
	}
	cell.Numbers = c.lossy
	event.Cell = &cell
	return MarshalCanonical(&event)
}

// DecodeEvent reads an encoded event and puts the numbers of Cell.Numbers back
// in their places. Numbers that do not belong there are refused.
func DecodeEvent(b []byte) (*Event, error) {
	if e, ok := decodePlain(b); ok {
		return e, nil
	}
	return decodeEvent(b)
}

// decodeEvent is DecodeEvent of any text.
func decodeEvent(b []byte) (*Event, error) {
	e := new(Event)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	if e.Cell == nil || len(e.Cell.Numbers) == 0 {
		return e, nil
	}
	restored, err := restoreNumbers(b, e.Cell.Numbers)
	if err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	e = new(Event)
	if err := json.Unmarshal(restored, e); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	if e.Cell.Numbers = nil; reflect.ValueOf(*e.Cell).IsZero() {
		e.Cell = nil
	}
	return e, nil
}

// restoreNumbers writes raw numbers, given by their JSON Pointers, to their
// places in src.
func restoreNumbers(src []byte, numbers map[string]string) ([]byte, error) {
	c := canonicalizer{src: src, dst: make([]byte, 0, len(src)), restore: numbers}
	restored, err := c.run()
	if err == nil && c.restored != len(numbers) {
		err = c.errorf("numbers are kept for places that have none")
	}
	return restored, err
}

// MarshalLossless returns the canonical form of v, which must be a JSON object
// without a member "numbers". Where v has numbers that a double cannot hold, the
// form has one more member, "numbers": their raw text by JSON Pointer (I2).
func MarshalLossless(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	c := canonicalizer{src: b, dst: make([]byte, 0, len(b)), collect: true}
	out, err := c.run()
	if err != nil || c.lossy == nil {
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

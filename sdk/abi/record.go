//go:build !wasip1

package abi

import (
	"crypto/sha256"
	"fmt"
)

// Hashing, and what rests on it, is the host's. A guest build goes without:
// crypto/sha256 with its self-tests would be 160 KB of every module.

// DigestOf hashes b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// EncodeRecord is EncodeEvent for an event that is to be recorded. If the form
// would pass MaxInlineBytes, the event's body is taken out: it comes back as
// body, a blob to store, and the encoded event names its digest in Cell.Body.
func EncodeRecord(e *Event) (encoded, body []byte, err error) {
	encoded, err = EncodeEvent(e)
	if err != nil || len(encoded) <= MaxInlineBytes {
		return encoded, nil, err
	}
	slim, only := *e, Event{}
	slim.Cell = new(Cell)
	if e.Cell != nil {
		*slim.Cell = *e.Cell
	}
	moveBody(&only, &slim)
	if body, err = EncodeEvent(&only); err != nil {
		return nil, nil, err
	}
	slim.Cell.Body = DigestOf(body)
	encoded, err = EncodeEvent(&slim)
	return encoded, body, err
}

// DecodeRecord is DecodeEvent, with blob to fetch a body that EncodeRecord took
// out.
func DecodeRecord(encoded []byte, blob func(Digest) ([]byte, error)) (*Event, error) {
	e, err := DecodeEvent(encoded)
	if err != nil || e.Cell == nil || e.Cell.Body.IsZero() {
		return e, err
	}
	body, err := blob(e.Cell.Body)
	if err != nil {
		return nil, fmt.Errorf("decode event: body %s: %w", e.Cell.Body.Short(), err)
	}
	only, err := DecodeEvent(body)
	if err != nil {
		return nil, err
	}
	moveBody(e, only)
	return e, nil
}

// moveBody moves the body fields of from to to.
func moveBody(to, from *Event) {
	if from.Cell != nil && from.Cell.Args != nil {
		if to.Cell == nil {
			to.Cell = new(Cell)
		}
		to.Cell.Args, from.Cell.Args = from.Cell.Args, nil
	}
	to.Message, from.Message = from.Message, nil
	to.Model, from.Model = from.Model, nil
	to.Tool, from.Tool = from.Tool, nil
	to.Result, from.Result = from.Result, nil
	to.Approval, from.Approval = from.Approval, nil
	to.ApprovalResult, from.ApprovalResult = from.ApprovalResult, nil
	to.Usage, from.Usage = from.Usage, nil
	to.Lifecycle, from.Lifecycle = from.Lifecycle, nil
	to.End, from.End = from.End, nil
	to.Error, from.Error = from.Error, nil
	to.ExecutionStart, from.ExecutionStart = from.ExecutionStart, nil
}

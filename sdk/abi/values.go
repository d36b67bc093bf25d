package abi

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SessionID names a session for ever: "sess-" and 24 hexadecimal digits.
type SessionID string

// ExecutionID names one turn of a session: "exec-" and 24 hexadecimal digits.
type ExecutionID string

// NewSessionID makes an id from 12 random bytes.
func NewSessionID(random [12]byte) SessionID {
	return SessionID("sess-" + hex.EncodeToString(random[:]))
}

// NewExecutionID makes an id from 12 random bytes.
func NewExecutionID(random [12]byte) ExecutionID {
	return ExecutionID("exec-" + hex.EncodeToString(random[:]))
}

// Seq is the position of a record in its session, from 1. 0 means "none".
type Seq int64

// MarshalJSON writes the number as a decimal string, as proto3-JSON does.
func (s Seq) MarshalJSON() ([]byte, error) { return marshalInt(int64(s)), nil }

// UnmarshalJSON accepts a decimal string or a plain integer.
func (s *Seq) UnmarshalJSON(b []byte) error { return unmarshalInt(b, (*int64)(s)) }

// Fence numbers the writers a session has had. An append with a fence below the
// session's own is refused.
type Fence int64

// MarshalJSON writes the number as a decimal string, as proto3-JSON does.
func (f Fence) MarshalJSON() ([]byte, error) { return marshalInt(int64(f)), nil }

// UnmarshalJSON accepts a decimal string or a plain integer.
func (f *Fence) UnmarshalJSON(b []byte) error { return unmarshalInt(b, (*int64)(f)) }

// Int64 is a 64-bit integer in its proto3-JSON form, a decimal string.
type Int64 int64

// MarshalJSON writes the number as a decimal string.
func (n Int64) MarshalJSON() ([]byte, error) { return marshalInt(int64(n)), nil }

// UnmarshalJSON accepts a decimal string or a plain integer.
func (n *Int64) UnmarshalJSON(b []byte) error { return unmarshalInt(b, (*int64)(n)) }

func marshalInt(n int64) []byte {
	b := make([]byte, 0, 22)
	b = append(b, '"')
	b = strconv.AppendInt(b, n, 10)
	return append(b, '"')
}

func unmarshalInt(b []byte, n *int64) error {
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	s := string(b)
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("not a 64-bit integer: %.40q", s)
	}
	*n = v
	return nil
}

// Digest is a SHA-256. Its text form is bare lower-case hexadecimal, and the
// empty string for the zero digest, which stands for "none".
type Digest [32]byte

// ErrDigest reports text that is not a digest.
var ErrDigest = errors.New("not a digest: want 64 lower-case hexadecimal digits")

// ParseDigest reads the text form of a digest.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	err := d.UnmarshalText([]byte(s))
	return d, err
}

// IsZero reports whether d stands for "none".
func (d Digest) IsZero() bool { return d == Digest{} }

// String is the text form.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// Short is the first 12 digits, for people to read.
func (d Digest) Short() string {
	if d.IsZero() {
		return ""
	}
	return hex.EncodeToString(d[:6])
}

// MarshalText writes the text form.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the text form.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = Digest{}
		return nil
	}
	if len(b) != hex.EncodedLen(len(d)) || bytes.ContainsAny(b, "ABCDEF") {
		return ErrDigest
	}
	if _, err := hex.Decode(d[:], b); err != nil {
		return ErrDigest
	}
	return nil
}

// Time is an instant in UTC, truncated to microseconds. In JSON it is RFC 3339
// with 0, 3 or 6 fraction digits, as proto3-JSON prints a Timestamp.
type Time struct{ time.Time }

// NewTime truncates t to what a record can hold.
func NewTime(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

// String is the RFC 3339 form.
func (t Time) String() string { return string(t.append(nil)) }

// MarshalJSON writes the RFC 3339 form.
func (t Time) MarshalJSON() ([]byte, error) {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return nil, fmt.Errorf("time: year %d is outside 1 to 9999", y)
	}
	return append(t.append([]byte{'"'}), '"'), nil
}

func (t Time) append(b []byte) []byte {
	u := t.UTC().Truncate(time.Microsecond)
	layout := "2006-01-02T15:04:05.000000Z"
	switch us := u.Nanosecond() / 1000; {
	case us == 0:
		layout = "2006-01-02T15:04:05Z"
	case us%1000 == 0:
		layout = "2006-01-02T15:04:05.000Z"
	}
	return u.AppendFormat(b, layout)
}

// UnmarshalJSON reads RFC 3339 and truncates to microseconds.
func (t *Time) UnmarshalJSON(b []byte) error {
	var u time.Time
	if err := u.UnmarshalJSON(b); err != nil {
		return err
	}
	*t = NewTime(u)
	return nil
}

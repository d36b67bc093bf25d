// Package portable owns the file that carries one session to another machine:
// its records, every blob they name, its module and the memory image that its
// next turn begins from. docs/portable.md describes it byte for byte.
//
// It knows the shape of the file and whether it is whole, not what records mean:
// that what the file holds belongs together is checked by who imports it. Both
// ways it streams: nothing but the piece at hand is in memory. It imports
// sdk/abi, journal for its sentinels, and zstd; never the host, a runtime or
// the engine.
package portable

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Version is the version of the format that this package reads and writes, and of what
// an importer must know of the records in it: see docs/portable.md for when it rises.
const Version = 1

// What can be wrong with a file; test with errors.Is. All but ErrFormat and
// ErrNewer come in a *Damage.
var (
	// ErrFormat: it is no portable session at all.
	ErrFormat = errors.New("not a portable session")
	// ErrNewer: a newer version of the format; use a newer program.
	ErrNewer = errors.New("a newer format")
	// ErrCut: it ends too early.
	ErrCut = errors.New("cut short")
	// ErrEdited: bytes are not those that were written.
	ErrEdited = errors.New("edited")
	// ErrMixed: its parts are whole but do not belong together.
	ErrMixed = errors.New("mixed")
	// ErrTrailing: something stands behind its end.
	ErrTrailing = errors.New("bytes behind its end")
	// ErrInvalid: it is whole, yet was written by something that does not keep
	// to the format.
	ErrInvalid = errors.New("against the format")
)

// Damage is the error of a file that must not be used. It is a
// journal.ErrCorrupt and one of the errors above, its Kind.
type Damage struct {
	Kind error
	// Offset is the byte of the file at which the damage was noticed: the begin
	// of the chunk it is in.
	Offset int64
	// What is wrong, in words.
	What string
}

// Error names the kind, the place and what is wrong.
func (d *Damage) Error() string {
	return fmt.Sprintf("the file is %s: at byte %d: %s", kindText(d.Kind), d.Offset, d.What)
}

func kindText(kind error) string {
	if errors.Is(kind, ErrTrailing) {
		return "longer than it was written"
	}
	return kind.Error()
}

// Unwrap gives the kind, and that the file is corrupt.
func (d *Damage) Unwrap() []error { return []error{d.Kind, journal.ErrCorrupt} }

// Session is what the file says of its session as a whole. It is the file's
// first piece.
type Session struct {
	UID     abi.SessionID `json:"uid"`
	Project string        `json:"project"`
	Name    string        `json:"name,omitempty"`
	Created abi.Time      `json:"created"`
	// Parent and At name the record that a forked session grew from. The file
	// has the records up to there too.
	Parent abi.SessionID `json:"parent,omitempty"`
	At     abi.Seq       `json:"at,omitempty"`
	// Head is the last record, zero where there is none.
	Head Head `json:"head"`
	// Meta is the host's own, an object.
	Meta json.RawMessage `json:"meta"`
}

// Head names a session's last record.
type Head struct {
	Seq  abi.Seq    `json:"seq"`
	Hash abi.Digest `json:"hash"`
}

// Image describes a memory image. Its pages follow, one piece each.
type Image struct {
	Root    abi.Digest
	Size    uint64
	Clock   int64
	Globals []abi.Global
	// Pages are the indices of the pages that are not all zero, ascending.
	Pages []uint32
}

// Kind says what a piece is.
type Kind byte

// The kinds of pieces.
const (
	kindSession Kind = 's'
	KindImage   Kind = 'i'
	KindPage    Kind = 'p'
	KindBlob    Kind = 'b'
	KindRecord  Kind = 'r'
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case kindSession:
		return "session"
	case KindImage:
		return "image"
	case KindPage:
		return "page"
	case KindBlob:
		return "blob"
	case KindRecord:
		return "record"
	}
	return fmt.Sprintf("unknown kind %#02x", byte(k))
}

// Piece is one thing that a file holds, in an order that begins with its Session
// (which is no Piece) and is then: the module, a blob; the image, if there is one, and its
// pages; and for each record the blobs that no piece before has, then itself.
type Piece struct {
	Kind Kind
	// Bytes are a blob, a page, or a record's line. The caller owns them.
	Bytes []byte
	// Fence is a record's.
	Fence abi.Fence
	// Image is set for KindImage.
	Image *Image
}

// The most that a piece may have, by kind: what a reader is ready to hold.
const (
	maxSession = 4 << 20
	maxImage   = 8 << 20
	maxBlob    = 256 << 20
	maxRecord  = 4 << 20
)

func (k Kind) most() int {
	switch k {
	case kindSession:
		return maxSession
	case KindImage:
		return maxImage
	case KindPage:
		return abi.PageSize
	case KindBlob:
		return maxBlob
	case KindRecord:
		return maxRecord
	}
	return -1
}

// pieceHeader is a piece's kind and length.
const pieceHeader = 1 + 4

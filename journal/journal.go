// Package journal owns what must outlive the process: records and their hash
// chain, heads, fences, forks, session metadata, memory images and blobs, in one
// store.
//
// It knows bytes, hashes and order, not what an event means: events come in
// encoded, and beside each head it keeps a summary that only its caller reads.
// It alone hashes records and pages, and nothing above it touches badger. It
// imports sdk/abi and never the host, a runtime or the engine.
package journal

import (
	"errors"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The errors of this package; test with errors.Is.
var (
	// ErrNotFound: no such session, record, image or blob.
	ErrNotFound = errors.New("not found")
	// ErrExists: a session with this uid, or this name in its project, is there.
	ErrExists = errors.New("already exists")
	// ErrKept: records that are kept of a deleted session are not those that are
	// to take their place.
	ErrKept = errors.New("not what is kept of the deleted session")
	// ErrConflict: the head is not the one the caller named. Read the head and
	// decide again.
	ErrConflict = errors.New("the session's head has moved")
	// ErrFenced: a later writer has taken the session over. The caller must
	// stop.
	ErrFenced = errors.New("fenced off by a later writer")
	// ErrCorrupt: stored bytes do not have the hash they must have. Only the
	// session they belong to is affected.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnreadable: the store's files cannot be opened as what they should be, as
	// when some are damaged or missing. Nothing was written.
	ErrUnreadable = errors.New("the store's files cannot be read")
	// ErrFull: there is too little free space to write safely. Nothing was
	// written; it may be retried once there is room.
	ErrFull = errors.New("disk full")
	// ErrPoisoned: a sync failed, so what is on disk is unknown. The journal
	// refuses writes until it is opened again.
	ErrPoisoned = errors.New("a sync failed; reopen the journal")
	// ErrLocked: another process has the directory open; the error is a
	// *LockedError.
	ErrLocked = errors.New("in use by another process")
	// ErrReadOnly: the directory cannot be written.
	ErrReadOnly = errors.New("read-only directory")
	// ErrFormat: the directory was written by a newer version, or is no journal.
	ErrFormat = errors.New("unknown journal format")
	// ErrTooLarge: the append cannot be stored, however often it is retried.
	ErrTooLarge = errors.New("too large")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("journal closed")
)

// Head is the end of a session's chain. The zero Head is that of a session
// without records.
type Head struct {
	Seq   abi.Seq
	Hash  abi.Digest
	Fence abi.Fence
}

// Session is a session's metadata and head. Everything but Head, Summary, Deleted
// and Kept is fixed at creation.
type Session struct {
	UID     abi.SessionID
	Project string
	// Name is unique in the project, or empty.
	Name    string
	Created time.Time
	// Parent and At name the record a forked session grew from.
	Parent abi.SessionID
	At     abi.Seq
	// Meta is the caller's own, fixed at creation.
	Meta []byte

	Head Head
	// Summary is the caller's own, replaced by each append.
	Summary []byte

	// Deleted is when the session was deleted, zero if it was not; Head and Summary
	// are then those it had. Kept is the last record that can be read of a
	// deleted session: its head's until Collect finds who still needs what.
	Deleted time.Time
	Kept    abi.Seq
}

// IsDeleted reports whether the session was deleted.
func (s *Session) IsDeleted() bool { return !s.Deleted.IsZero() }

// last is the last record that can be read.
func (s *Session) last() abi.Seq {
	if s.IsDeleted() {
		return s.Kept
	}
	return s.Head.Seq
}

// Record is a stored record.
type Record struct {
	Seq   abi.Seq
	Fence abi.Fence
	// Line is the stored line without its \n: the hash preimage (I5). The
	// caller must not change it.
	Line []byte
	// Hash is SHA-256 of Line.
	Hash abi.Digest
	// Prev is the hash of the record before, zero at seq 1.
	Prev abi.Digest
}

// Append is one atomic addition to a session.
type Append struct {
	// Head is the head this extends; Fence the writer's. An append whose Head
	// is not the session's is refused with ErrConflict, one whose Fence is
	// below the session's with ErrFenced (I7). Head.Fence is not compared.
	Head  Head
	Fence abi.Fence
	// Events are encoded events (abi.EncodeEvent), in order. Without any, only what is
	// kept beside the record changes.
	Events [][]byte
	// Blobs are stored with the records, or ahead of them, once each.
	Blobs [][]byte
	// Image, if set, is durable with or before the records (M4).
	Image *Image
	// Summary replaces the session's.
	Summary []byte
	// Marks are names for records of the session, new or old, kept with it.
	Marks []Mark
	// Charges are made with the append, or refuse it with ErrSpent; one for each
	// account.
	Charges []Charge
}

// Mark is a name that a session's owner gives to one of its records. A fork
// inherits none.
type Mark struct {
	Name string
	Seq  abi.Seq
}

// ForkChild is one child of a fork.
type ForkChild struct {
	UID     abi.SessionID
	Name    string
	Meta    []byte
	Event   []byte // the encoded FORK event, its record at seq at+1
	Summary []byte
}

// ListPage is a page of List: sessions newest first (creation time descending, then uid
// ascending). Next is the token of the next page, empty on the last one.
type ListPage struct {
	Sessions []Session
	Next     string
}

// VerifyOptions say what Verify checks beyond the links.
type VerifyOptions struct {
	// Strict: every line is in its canonical form.
	Strict bool
	// Head, if not zero, is a hash the chain must have (at any seq): a log cut
	// below it is caught.
	Head abi.Digest
}

// Broken is the error of Verify: the first record that does not verify.
type Broken struct {
	Session abi.SessionID
	Seq     abi.Seq
	// What differs, in words.
	What string
	// Want and Got are the two hashes, zero where hashes are not what differs.
	Want, Got abi.Digest
}

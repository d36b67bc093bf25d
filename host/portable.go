package host

import (
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Portable tells what a portable file holds.
type Portable struct {
	Session Session
	// Records, Blobs and Pages count what is in the file; a fork's records are
	// those of its ancestors too.
	Records, Blobs, Pages int64
	// Digest is that of the file.
	Digest abi.Digest
	// Present: Import found the session as it is in the file, and left it so.
	Present bool
}

// ImportRequest says where an imported session goes. Empty fields mean what the
// file says.
type ImportRequest struct {
	Project string
	Name    string
}

// blobSet finds the blobs that records name, each once. It remembers their
// digests, which is all that grows with a session.
type blobSet struct {
	// get reads a blob; found is told of each new one.
	get   func(abi.Digest) ([]byte, error)
	found func(abi.Digest, []byte) error

	seen  map[abi.Digest]bool
	nodes map[abi.Digest]bool // of lists of messages, with all behind them
}

// named finds the blobs that a record names, as it stands in its line.
func (s *blobSet) named(e *abi.Event) error {
	if e.Cell == nil {
		return nil
	}
	for _, d := range []abi.Digest{e.Cell.Module, e.Cell.Body, e.Cell.Tools, e.Cell.Payload, e.Cell.Request} {
		if !d.IsZero() {
			if err := s.add(d); err != nil {
				return err
			}
		}
	}
	return s.messages(e.Cell.Messages)
}

// messages finds a list of messages, back to the first one that is known.
func (s *blobSet) messages(head abi.Digest) error {
	for !head.IsZero() && !s.nodes[head] {
		b, err := s.read(head)
		if err != nil {
			return err
		}
		node, err := decodeMessageNode(head, b)
		if err != nil {
			return err
		}
		if err := s.tell(head, b); err != nil {
			return err
		}
		if err := s.add(node.Message); err != nil {
			return err
		}
		mark(&s.nodes, head)
		head = node.Prev
	}
	return nil
}

func (s *blobSet) add(d abi.Digest) error {
	if s.seen[d] {
		return nil
	}
	b, err := s.read(d)
	if err != nil {
		return err
	}
	return s.tell(d, b)
}

// read reads a blob that is named: that it is missing is corruption.
func (s *blobSet) read(d abi.Digest) ([]byte, error) {
	b, err := s.get(d)
	if errors.Is(err, journal.ErrNotFound) {
		err = fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	return b, err
}

func (s *blobSet) tell(d abi.Digest, b []byte) error {
	if s.seen[d] {
		return nil
	}
	mark(&s.seen, d)
	return s.found(d, b)
}

func mark(set *map[abi.Digest]bool, d abi.Digest) {
	if *set == nil {
		*set = make(map[abi.Digest]bool)
	}
	(*set)[d] = true
}

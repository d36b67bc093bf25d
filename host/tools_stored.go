package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// StoredTool is a tool that the store keeps: what a harness is granted, and the module
// that performs its calls. How that is done is an executor's business.
type StoredTool struct {
	abi.ToolGrant
	// Module is the digest of the module, to which the tool is pinned.
	Module abi.Digest
	Size   int64
	// Manifest is what the executor wants to know beside the module, as it was
	// stored. It holds no secret, at most names of some.
	Manifest json.RawMessage
	Added    time.Time
}

// toolRef is the kind of the refs that name tools.
const toolRef = "tool"

// toolNote is what stands beside the digest of a tool's module.
type toolNote struct {
	Grant    abi.ToolGrant   `json:"grant"`
	Size     int64           `json:"size"`
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Added    abi.Time        `json:"added"`
}

// maxToolNote bounds all that is kept of a tool but its module.
const maxToolNote = 256 << 10

// ToolStore keeps tools in a journal, beside the host that has it. Nobody else changes
// them there meanwhile. It is safe for concurrent use.
type ToolStore struct {
	journal *journal.Journal
	now     func() time.Time

	mu     sync.Mutex
	listed bool
	list   []StoredTool // all of them, if listed
}

// NewToolStore makes the tool store of a journal. Nil for now is the machine's clock.
func NewToolStore(j *journal.Journal, now func() time.Time) *ToolStore {
	if now == nil {
		now = time.Now
	}
	return &ToolStore{journal: j, now: now}
}

// Add stores a tool and its module, durably when it returns. One that has the name
// already is replaced: for calls that are made from then on, also those of turns that
// are under way, which have its definition as it was. It wraps tool.ErrTool for one that
// a host cannot offer, and ErrInvalid for one that is too large.
func (s *ToolStore) Add(ctx context.Context, t tool.Tool, manifest json.RawMessage, code []byte) (StoredTool, error) {
	stored, err := s.add(ctx, t, manifest, code)
	if err != nil {
		return StoredTool{}, fmt.Errorf("add tool %q: %w", t.Definition.Name, err)
	}
	return stored, nil
}

func (s *ToolStore) add(ctx context.Context, t tool.Tool, manifest json.RawMessage, code []byte) (StoredTool, error) {
	defer s.journal.Hold()() // from Collect
	if err := t.Check(); err != nil {
		return StoredTool{}, err
	}
	note := toolNote{Grant: t.Grant(), Size: int64(len(code)), Manifest: manifest, Added: abi.NewTime(s.now())}
	b, err := json.Marshal(note)
	if err != nil {
		return StoredTool{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(b) > maxToolNote {
		return StoredTool{}, fmt.Errorf("%w: its description, schema and manifest have %d bytes, at most %d are taken", ErrInvalid, len(b), maxToolNote)
	}
	digest, err := s.journal.PutBlob(ctx, code)
	if err != nil {
		return StoredTool{}, err
	}
	ref := journal.Ref{Name: t.Definition.Name, Digest: digest, Note: b}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = false
	if err := s.journal.SetRef(ctx, toolRef, ref); err != nil {
		return StoredTool{}, err
	}
	return readStoredTool(ref)
}

// List gives all tools, by name. What it gives nobody may change.
func (s *ToolStore) List() ([]StoredTool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed {
		return s.list, nil
	}
	list, err := readRefs(s.journal, toolRef, readStoredTool)
	if err != nil {
		return nil, fmt.Errorf("stored tools: %w", err)
	}
	s.list, s.listed = list, true
	return list, nil
}

// Get reads one tool. It wraps ErrNotFound.
func (s *ToolStore) Get(name string) (StoredTool, error) {
	list, err := s.List()
	if err != nil {
		return StoredTool{}, err
	}
	for _, t := range list {
		if t.Name == name {
			return t, nil
		}
	}
	return StoredTool{}, fmt.Errorf("tool %q: %w", name, ErrNotFound)
}

// Module reads the module of a stored tool.
func (s *ToolStore) Module(d abi.Digest) ([]byte, error) { return s.journal.Blob(d) }

// Remove takes a tool away, durably when it returns. What sessions have recorded of it
// stays. It wraps ErrNotFound.
func (s *ToolStore) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = false
	err := s.journal.RemoveRef(ctx, toolRef, name)
	if errors.Is(err, journal.ErrNotFound) {
		return fmt.Errorf("tool %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("tool %q: %w", name, err)
	}
	return nil
}

// readStoredTool is the tool that a ref stands for.
func readStoredTool(ref journal.Ref) (StoredTool, error) {
	var note toolNote
	if err := json.Unmarshal(ref.Note, &note); err != nil {
		return StoredTool{}, fmt.Errorf("tool %q: %w", ref.Name, err)
	}
	return StoredTool{
		ToolGrant: note.Grant, Module: ref.Digest, Size: note.Size, Manifest: note.Manifest, Added: note.Added.Time,
	}, nil
}

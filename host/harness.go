package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// PushedHarness is a harness that the store keeps under a name.
type PushedHarness struct {
	Name   string
	Module abi.Digest
	Size   int64
	Pushed time.Time
}

// harnessRef is the kind of the refs that name harnesses.
const harnessRef = "harness"

// harnessNote is what stands beside the digest.
type harnessNote struct {
	Size   int64    `json:"size"`
	Pushed abi.Time `json:"pushed"`
}

// PushHarness stores a harness under its name, durably when it returns. It loads
// the module first, so that what no runtime can honour is refused with nothing
// written. A harness that has the name already is replaced, for sessions that
// are made from then on; those there are stay pinned to their module, which the
// store keeps. It wraps ErrInvalid for a name that cannot be one.
func (h *Host) PushHarness(ctx context.Context, harness Harness) (PushedHarness, error) {
	p, err := h.pushHarness(ctx, harness)
	if err != nil {
		return PushedHarness{}, fmt.Errorf("push harness: %w", err)
	}
	return p, nil
}

func (h *Host) pushHarness(ctx context.Context, harness Harness) (PushedHarness, error) {
	defer h.journal.Hold()() // from Collect
	if err := checkName("name", harness.Name); err != nil {
		return PushedHarness{}, err
	}
	m := harness.Module()
	if _, err := h.module(ctx, m, ""); err != nil {
		return PushedHarness{}, err
	}
	if err := h.storeModule(ctx, m); err != nil {
		return PushedHarness{}, err
	}
	code, err := m.Code()
	if err != nil {
		return PushedHarness{}, err
	}
	note := harnessNote{Size: int64(len(code)), Pushed: abi.NewTime(h.cfg.Now())}
	err = h.journal.SetRef(ctx, harnessRef, journal.Ref{Name: harness.Name, Digest: m.Digest, Note: mustJSON(note)})
	if err != nil {
		return PushedHarness{}, err
	}
	h.log.Info("harness pushed", "harness", harness.Name, "module", m.Digest.Short())
	return PushedHarness{Name: harness.Name, Module: m.Digest, Size: note.Size, Pushed: note.Pushed.Time}, nil
}

// PushedHarness reads the harness that was pushed under a name. It wraps
// ErrNotFound.
func (h *Host) PushedHarness(ctx context.Context, name string) (Harness, error) {
	ref, err := h.journal.Ref(harnessRef, name)
	if err != nil {
		return Harness{}, harnessError(name, err)
	}
	code, err := h.journal.Blob(ref.Digest)
	if err != nil {
		// Not ErrNotFound: the name is there.
		return Harness{}, fmt.Errorf("harness %q: its module: %w", name, err)
	}
	return Harness{Name: name, Code: code}, nil
}

// PushedHarnesses lists the harnesses that were pushed, by name.
func (h *Host) PushedHarnesses(ctx context.Context) ([]PushedHarness, error) {
	pushed, err := readRefs(h.journal, harnessRef, readPushedHarness)
	if err != nil {
		return nil, fmt.Errorf("list harnesses: %w", err)
	}
	return pushed, nil
}

// readPushedHarness is the harness that a ref stands for.
func readPushedHarness(ref journal.Ref) (PushedHarness, error) {
	var note harnessNote
	if err := json.Unmarshal(ref.Note, &note); err != nil {
		return PushedHarness{}, fmt.Errorf("harness %q: %w", ref.Name, err)
	}
	return PushedHarness{Name: ref.Name, Module: ref.Digest, Size: note.Size, Pushed: note.Pushed.Time}, nil
}

// RemoveHarness takes the name of a pushed harness away. Sessions that were made
// with it keep its module. It wraps ErrNotFound.
func (h *Host) RemoveHarness(ctx context.Context, name string) error {
	if err := h.journal.RemoveRef(ctx, harnessRef, name); err != nil {
		return harnessError(name, err)
	}
	h.log.Info("harness removed", "harness", name)
	return nil
}

// harnessError is an error of looking a harness up, in words of the host.
func harnessError(name string, err error) error {
	if errors.Is(err, journal.ErrNotFound) {
		return fmt.Errorf("harness %q: %w", name, ErrNotFound)
	}
	return fmt.Errorf("harness %q: %w", name, err)
}

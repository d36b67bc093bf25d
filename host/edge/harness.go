package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
)

// Bundled is the harness of that name that this program was built with.
func Bundled(name string) (host.Harness, error) {
	found, err := harnesses.Find(name)
	if err != nil {
		return host.Harness{}, err
	}
	return host.Harness{Name: name, Digest: found.Digest, Read: found.Module}, nil
}

// Harness finds a harness by its name: a bundled one, or else one that was
// pushed. For any other name the error wraps harnesses.ErrNotBundled and says what
// there is.
func (h *Host) Harness(ctx context.Context, name string) (host.Harness, error) {
	bundled, notBundled := Bundled(name)
	if notBundled == nil {
		return bundled, nil
	}
	pushed, err := h.PushedHarness(ctx, name)
	if !errors.Is(err, host.ErrNotFound) {
		return pushed, err
	}
	all, err := h.PushedHarnesses(ctx)
	if err != nil || len(all) == 0 {
		return host.Harness{}, errors.Join(notBundled, err)
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return host.Harness{}, fmt.Errorf("%w; pushed were %s", notBundled, strings.Join(names, ", "))
}

// PushHarness is that of host.Host, but the names of bundled harnesses are kept for
// them: it wraps host.ErrInvalid.
func (h *Host) PushHarness(ctx context.Context, harness host.Harness) (host.PushedHarness, error) {
	if slices.Contains(harnesses.Names(), harness.Name) {
		return host.PushedHarness{}, fmt.Errorf("push harness: %w: the name %q is that of a bundled harness", host.ErrInvalid, harness.Name)
	}
	return h.Host.PushHarness(ctx, harness)
}

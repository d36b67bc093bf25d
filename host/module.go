package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// module is a harness's code on the runtime it was placed on.
type module struct {
	mu sync.Mutex // held while loading
	// Set once, by the first successful load.
	loaded  bool
	code    runtimes.Module
	runtime runtimes.Runtime
	desc    runtimes.Description
	golden  *journal.Image // nil where the runtime has no images
}

// module loads a module, once, and places it: on the runtime of that name, or
// on the first that can honour the harness's needs if the name is empty.
func (h *Host) module(ctx context.Context, code runtimes.Module, runtime string) (*module, error) {
	h.mu.Lock()
	m := h.modules[code.Digest]
	if m == nil {
		m = new(module)
		h.modules[code.Digest] = m
	}
	h.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded {
		return m, nil
	}
	if err := h.place(ctx, m, code, runtime); err != nil {
		return nil, err
	}
	m.code, m.loaded = code, true
	return m, nil
}

// place finds the runtime for a module.
func (h *Host) place(ctx context.Context, m *module, code runtimes.Module, runtime string) error {
	var refusals []string
	var refused error
	for _, r := range h.cfg.Runtimes {
		has := r.Capabilities()
		if runtime != "" && has.Runtime != runtime {
			continue
		}
		desc, err := r.Describe(ctx, code)
		if err != nil {
			if !errors.Is(err, runtimes.ErrModule) {
				return fmt.Errorf("harness %q: %w", code.Name, err)
			}
			refused = err
			continue
		}
		if lack := missing(desc.Harness, has); lack != "" {
			refusals = append(refusals, lack)
			continue
		}
		if has.MemorySnapshot || has.Reexecutable {
			if m.golden, err = h.journal.NewImage(nil, imageSpec(desc.Golden)); err != nil {
				return fmt.Errorf("harness %q: golden image: %w", code.Name, err)
			}
		}
		m.runtime, m.desc = r, desc
		return nil
	}
	switch {
	case len(refusals) > 0:
		return fmt.Errorf("harness %q: %w: %s", code.Name, ErrPlacement, strings.Join(refusals, "; "))
	case refused != nil:
		return fmt.Errorf("harness %q: %w", code.Name, refused)
	default:
		return fmt.Errorf("harness %q: %w: this host has no runtime %q", code.Name, ErrPlacement, runtime)
	}
}

// storeModule keeps the code of a module, unless it is there.
func (h *Host) storeModule(ctx context.Context, m runtimes.Module) error {
	stored, err := h.journal.HasBlob(m.Digest)
	if err == nil && !stored {
		err = h.putModule(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("store module: %w", err)
	}
	return nil
}

func (h *Host) putModule(ctx context.Context, m runtimes.Module) error {
	code, err := m.Code()
	if err != nil {
		return err
	}
	if got, err := h.journal.PutBlob(ctx, code); err != nil || got == m.Digest {
		return err
	}
	return fmt.Errorf("harness %q is not the module %s that it was said to be", m.Name, m.Digest.Short())
}

// missing says what a harness needs that a runtime does not have, naming both
// sides; empty if nothing.
func missing(d abi.HarnessDescriptor, has runtimes.Capabilities) string {
	switch {
	case d.HoldsMemory() && !has.MemorySnapshot:
		return fmt.Sprintf("it needs memory snapshots (%s), runtime %q has none", abi.RequiresMemorySnapshot, has.Runtime)
	case d.Capabilities != nil && d.Capabilities.RequiresGPU && !has.GPU:
		return fmt.Sprintf("it needs a GPU, runtime %q has none", has.Runtime)
	}
	return ""
}

// checkMemory refuses a module that has more memory before its first turn than a
// session, whose own limits are these, may have.
func (h *Host) checkMemory(m *module, own abi.Limits) error {
	if m.golden == nil {
		return nil
	}
	need := m.desc.Golden.Size
	switch most := uint64(h.cfg.Limits.MemoryBytes); {
	case need > most:
		return fmt.Errorf("harness %q: %w: it begins with %d bytes of memory, this host gives a cell %d", m.code.Name, ErrPlacement, need, most)
	case own.MemoryBytes > 0 && need > uint64(own.MemoryBytes):
		return fmt.Errorf("%w: limit memory_bytes %d: harness %q begins with %d bytes of memory; give it those, and what a turn needs beside them",
			ErrInvalid, own.MemoryBytes, m.code.Name, need)
	}
	return nil
}

// sessionModule loads the module a session is pinned to.
func (h *Host) sessionModule(ctx context.Context, r row) (*module, error) {
	return h.pinnedModule(ctx, r.meta.pin, r.meta.Runtime)
}

func (h *Host) pinnedModule(ctx context.Context, p pin, runtime string) (*module, error) {
	m, err := h.module(ctx, runtimes.Module{
		Digest: p.Module, Name: p.Harness,
		Code: func() ([]byte, error) { return h.journal.Blob(p.Module) },
	}, runtime)
	if err != nil {
		return nil, err
	}
	if m.golden != nil && m.golden.Root() != p.GoldenRoot {
		return nil, fmt.Errorf("harness %q: its golden image is %s here and was %s when the session was pinned to it: another engine or rewriter",
			p.Harness, m.golden.Root().Short(), p.GoldenRoot.Short())
	}
	return m, nil
}

// incarnate gives an incarnation in the state of base.
func (m *module) incarnate(ctx context.Context, h *Host, base *journal.Image) (runtimes.Incarnation, error) {
	if base == nil || base.Root() == m.golden.Root() {
		return m.runtime.Create(ctx, m.code)
	}
	restorer, ok := m.runtime.(runtimes.Restorer)
	if !ok {
		return nil, fmt.Errorf("runtime %q: %w: it cannot restore an image", m.runtime.Capabilities().Runtime, ErrPlacement)
	}
	changed, err := h.images.changed(base, func() ([]uint32, error) { return h.journal.DiffImages(m.golden, base) })
	if err != nil {
		return nil, err
	}
	return restorer.Restore(ctx, m.code, runtimes.Image{
		Size: base.Size(), Globals: base.Globals(), Clock: base.Clock(),
		Changed: changed, Pages: imagePages{h.journal, base},
		Root: base.Root(), Diff: func(root abi.Digest) ([]uint32, bool) {
			near, err := h.loadImage(m, root)
			if err != nil {
				return nil, false
			}
			pages, err := h.journal.DiffImages(near, base)
			return pages, err == nil
		},
	})
}

// imagePages reads the pages of a journal's image.
type imagePages struct {
	journal *journal.Journal
	image   *journal.Image
}

var _ runtimes.PagesReader = imagePages{}

func (p imagePages) ReadPage(index uint32, dst []byte) error {
	return p.journal.ReadPage(p.image, index, dst)
}

func (p imagePages) ReadPages(list []uint32, use func(index uint32, content []byte) error) error {
	return p.journal.ReadPages(p.image, list, use)
}

// imageSpec is an image that a runtime gave, as the journal takes it.
func imageSpec(img runtimes.Image) journal.ImageSpec {
	spec := journal.ImageSpec{Size: img.Size, Globals: img.Globals, Clock: img.Clock, Changed: img.Changed}
	if img.Pages != nil {
		spec.Read, spec.AnyOrder = img.Pages.ReadPage, true
	}
	return spec
}

// snapshot is the image of an incarnation that has completed a turn from base,
// nil where its runtime has none.
func (h *Host) snapshot(ctx context.Context, inc runtimes.Incarnation, base *journal.Image) (*journal.Image, error) {
	s, ok := inc.(runtimes.Snapshotter)
	if !ok || base == nil {
		return nil, nil
	}
	img, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return h.journal.NewImage(base, imageSpec(img))
}

// snapshotRoot is the root of snapshot's image, and how many pages the turn has
// changed, for those who need no more.
func (h *Host) snapshotRoot(ctx context.Context, inc runtimes.Incarnation, base *journal.Image) (abi.Digest, int, error) {
	s, ok := inc.(runtimes.Snapshotter)
	if !ok || base == nil {
		return abi.Digest{}, 0, nil
	}
	img, err := s.Snapshot(ctx)
	if err != nil {
		return abi.Digest{}, 0, err
	}
	return h.journal.ImageRoot(base, imageSpec(img))
}

// loadImage finds the image of a root: a module's golden one, one in use, or a
// stored one.
func (h *Host) loadImage(m *module, root abi.Digest) (*journal.Image, error) {
	if m.golden == nil {
		return nil, nil
	}
	if root == m.golden.Root() {
		return m.golden, nil
	}
	if im := h.images.get(root); im != nil {
		return im, nil
	}
	im, err := h.journal.LoadImage(root)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", root.Short(), err)
	}
	h.images.put(im)
	return im, nil
}

// imageCache keeps handles of the images used last, so that a next turn finds
// its tree in memory.
type imageCache struct {
	mu     sync.Mutex
	most   int
	images map[abi.Digest]*cachedImage
	order  []abi.Digest // oldest first
}

// cachedImage is an image, and the pages in which it differs from the golden one
// once somebody has asked for them.
type cachedImage struct {
	image   *journal.Image
	listed  bool
	changed []uint32
}

func newImageCache(most int) *imageCache {
	return &imageCache{most: most, images: map[abi.Digest]*cachedImage{}}
}

func (c *imageCache) get(root abi.Digest) *journal.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.images[root]; known != nil {
		return known.image
	}
	return nil
}

// changed is what list says of an image, which is asked once for an image that is
// used again and again. Nobody changes the result.
func (c *imageCache) changed(im *journal.Image, list func() ([]uint32, error)) ([]uint32, error) {
	c.mu.Lock()
	if known := c.images[im.Root()]; known != nil && known.listed {
		defer c.mu.Unlock()
		return known.changed, nil
	}
	c.mu.Unlock()
	pages, err := list()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.images[im.Root()]; known != nil {
		known.changed, known.listed = pages, true
	}
	return pages, nil
}

// clear lets go of all images.
func (c *imageCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.images)
	c.order = nil
}

func (c *imageCache) put(im *journal.Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.images[im.Root()]; ok {
		return
	}
	if len(c.order) == c.most {
		delete(c.images, c.order[0])
		c.order = c.order[1:]
	}
	c.images[im.Root()] = &cachedImage{image: im}
	c.order = append(c.order, im.Root())
}

func (c *imageCache) drop(root abi.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.images[root]; ok {
		delete(c.images, root)
		i := slices.Index(c.order, root)
		c.order = slices.Delete(c.order, i, i+1)
	}
}

// Inspection is what a host knows of a harness before any session uses it.
type Inspection struct {
	runtimes.Description
	Digest abi.Digest
	// Runtime is where it would run; GoldenRoot is zero where that runtime has
	// no images.
	Runtime    string
	GoldenRoot abi.Digest
}

// Inspect loads a harness, places it and tells what it is. Nothing is written. What
// cannot be loaded or placed is refused as by Create.
func (h *Host) Inspect(ctx context.Context, harness Harness) (Inspection, error) {
	code := harness.Module()
	m, err := h.module(ctx, code, "")
	if err != nil {
		return Inspection{}, fmt.Errorf("inspect: %w", err)
	}
	out := Inspection{Description: m.desc, Digest: code.Digest, Runtime: m.runtime.Capabilities().Runtime}
	if m.golden != nil {
		out.GoldenRoot = m.golden.Root()
	}
	return out, nil
}

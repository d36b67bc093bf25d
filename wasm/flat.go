package wasm

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// flats keeps whole images of one module in memory. A cell comes to the state of
// one by mapping it, however large it is, and all cells that do share its pages
// until they write to them: so a hundred forks of a large image cost what each
// changes.
type flats struct {
	module *Compiled

	mu    sync.Mutex
	all   []*flat // that was used longest ago first
	bytes int     // of those that are made
}

// flat is one of them.
type flat struct {
	root   abi.Digest    // zero: of one cell
	made   chan struct{} // closed when memory or err is there
	memory *goldenMemory
	err    error

	// Guarded by flats.mu:
	users  int
	rested int         // instances that rest on it
	gone   bool        // from flats.all; the last user frees it
	timer  *time.Timer // set while nobody uses it or rests on it
}

const (
	// flatFrom is in how many pages an image must differ from the golden one to be
	// kept whole: fewer are as quickly copied into each cell.
	flatFrom = 256
	// maxOverlay is how many pages are copied over a flat image that is near to the
	// one that is wanted, before that is made flat itself.
	maxOverlay = 256
	// nearest is how many flat images are compared for that.
	nearest = 4
	// flatFor is how long one is kept that is not in use.
	flatFor = 30 * time.Second
)

// of gives a flat image from which img is reached by copying the pages in over, or
// none and all pages in which img differs from golden. The caller must leave
// the image.
func (s *flats) of(img *Image) (f *flat, over []uint32, err error) {
	whole := !img.Root.IsZero() && len(img.Changed) >= flatFrom && s.module.engine.cfg.MaxFlatBytes >= 0 && s.module.memory.mapped()
	if whole {
		if f := s.join(img.Root); f != nil {
			return s.await(f, img)
		}
	}
	if err := img.checkPages(img.Changed); err != nil || !whole {
		return nil, img.Changed, err
	}
	near, over := s.near(img)
	if near != nil && len(over) <= maxOverlay {
		return near, over, nil
	}
	if near != nil {
		defer s.leave(near)
	}
	f, mine := s.add(img.Root)
	if !mine {
		return s.await(f, img)
	}
	f.memory, f.err = s.flatten(img, near, over)
	if f.err != nil {
		s.mu.Lock()
		s.remove(f)
		s.mu.Unlock()
	}
	close(f.made)
	s.made(f)
	return s.await(f, img)
}

// await waits until f is made. Where the system has no more of what it takes, the
// caller copies all pages.
func (s *flats) await(f *flat, img *Image) (*flat, []uint32, error) {
	<-f.made
	if f.err == nil {
		return f, nil, nil
	}
	s.leave(f)
	if errors.Is(f.err, ErrShortage) {
		return nil, img.Changed, img.checkPages(img.Changed)
	}
	return nil, nil, f.err
}

// join makes the caller a user of the flat image with that root, if there is one.
func (s *flats) join(root abi.Digest) *flat {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		if f.root == root {
			s.use(f)
			return f
		}
	}
	return nil
}

// hold counts one more user. The caller holds mu.
func (s *flats) hold(f *flat) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.users++
}

// use is hold for what is going to be mapped. The caller holds mu.
func (s *flats) use(f *flat) {
	s.hold(f)
	if i := slices.Index(s.all, f); i >= 0 {
		s.all = append(slices.Delete(s.all, i, i+1), f)
	}
}

// add announces a flat image that the caller makes, or joins one that somebody has
// announced meanwhile.
func (s *flats) add(root abi.Digest) (f *flat, mine bool) {
	if f := s.join(root); f != nil {
		return f, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f = &flat{root: root, made: make(chan struct{}), users: 1}
	s.all = append(s.all, f)
	return f, true
}

// near finds the flat image with the fewest pages that differ from img, and which
// these are. The caller is a user of it.
func (s *flats) near(img *Image) (best *flat, over []uint32) {
	if img.Diff == nil {
		return nil, nil
	}
	s.mu.Lock()
	var candidates []*flat
	for _, f := range slices.Backward(s.all) {
		if !f.root.IsZero() && f.isMade() && f.memory.size() <= int(img.Size) && len(candidates) < nearest {
			candidates = append(candidates, f)
			s.hold(f)
		}
	}
	s.mu.Unlock()
	for _, f := range candidates {
		pages, ok := img.Diff(f.root)
		if !ok || img.checkPages(pages) != nil || len(pages) >= len(img.Changed)/2 || best != nil && len(pages) >= len(over) {
			s.leave(f)
			continue
		}
		if best != nil {
			s.leave(best)
		}
		best, over = f, pages
	}
	return best, over
}

// own makes what is in a cell's memory a flat image of its own, which no other cell
// comes to. The caller is its user.
func (s *flats) own(mem []byte) (*flat, error) {
	g, err := s.module.engine.backend.share(len(mem), func(write func(uint32, []byte) error) error { return writePages(mem, nonZero(mem), write) })
	if err != nil {
		return nil, err
	}
	f := &flat{made: make(chan struct{}), memory: g, users: 1}
	close(f.made)
	s.mu.Lock()
	s.all = append(s.all, f)
	s.mu.Unlock()
	s.made(f)
	return f, nil
}

// alone tells whether the caller, who is a user of f, is all that f is for.
func (s *flats) alone(f *flat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.users == 1 && f.rested == 0
}

func (f *flat) isMade() bool {
	select {
	case <-f.made:
		return f.err == nil
	default:
		return false
	}
}

// made counts f, and makes room for it.
func (s *flats) made(f *flat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.err != nil {
		return
	}
	s.bytes += f.memory.size()
	for i := 0; i < len(s.all) && s.bytes > s.module.engine.cfg.MaxFlatBytes; {
		if old := s.all[i]; old.users == 0 {
			s.remove(old)
			continue
		}
		i++
	}
}

// leave counts one user less. What nobody uses is kept for a while.
func (s *flats) leave(f *flat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.users--
	switch {
	case f.users > 0:
	case f.gone && f.memory != nil:
		f.memory.close()
	case f.gone: // it was never made
	case s.bytes > s.module.engine.cfg.MaxFlatBytes:
		s.remove(f)
	default:
		s.unused(f)
	}
}

// unused lets time run for an image that has no users, unless an instance rests on
// it; one that nobody can ask for has had its time. The caller holds mu.
func (s *flats) unused(f *flat) {
	switch {
	case f.rested > 0 || f.timer != nil:
	case f.root.IsZero():
		s.remove(f)
	default:
		f.timer = time.AfterFunc(flatFor, func() { s.expire(f) })
	}
}

func (s *flats) expire(f *flat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users == 0 && !f.gone {
		s.remove(f)
	}
}

// remove forgets f, and frees it unless it is in use. The caller holds mu.
func (s *flats) remove(f *flat) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	if i := slices.Index(s.all, f); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
	f.gone = true
	if f.memory == nil {
		return
	}
	s.bytes -= f.memory.size()
	if f.users == 0 {
		f.memory.close()
	}
}

// close frees what is kept. Nobody uses it any more.
func (s *flats) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all) > 0 {
		s.all[0].users = 0 // the engine has freed their cells
		s.remove(s.all[0])
	}
}

// flatten makes img as a whole: what differs is read from it, side by side, the
// rest is that of near, or golden.
func (s *flats) flatten(img *Image, near *flat, over []uint32) (*goldenMemory, error) {
	from := s.module.memory.content
	differ := img.Changed
	if near != nil {
		from, differ = near.memory.content, over
	}
	return s.module.engine.backend.share(int(img.Size), func(write func(page uint32, content []byte) error) error {
		next := differ
		for i := range uint32(len(from) / abi.PageSize) {
			if len(next) > 0 && next[0] == i {
				next = next[1:]
				continue
			}
			content := from[int(i)*abi.PageSize:][:abi.PageSize]
			if bytes.Equal(content, zeroPage[:]) {
				continue
			}
			if err := write(i, content); err != nil {
				return err
			}
		}
		return readPages(img.Pages, differ, s.module.engine.cfg.Workers, write)
	})
}

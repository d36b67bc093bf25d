package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// When a host that collects by itself does so.
const (
	// collectLook is how often it looks whether that pays, the first time so long
	// after it was made: nothing that ends soon ever collects.
	collectLook = time.Minute
	// collectPatience is for how long it waits for a moment without a turn.
	collectPatience = 10 * time.Minute
	// collectShare bounds its share of the time: for so many times as long as the
	// last collection took there is no other.
	collectShare = 20
	// A collection that failed is tried again after the first of these, then after
	// twice as long each time.
	collectRetry, collectRetryMost = 10 * time.Minute, 24 * time.Hour
)

// For how much, at least, it pays to walk all that is stored: where there is room on
// the disk, and where there is not.
const (
	leastGarbage     = 64 << 20
	leastGarbageFull = 1 << 20
)

// Collection is a Collect that has ended well.
type Collection struct {
	journal.Collected
	Begun time.Time
	Took  time.Duration
}

// lastCollection is the ref that tells of the last Collect.
const (
	collectionRef  = "collection"
	lastCollection = "last"
)

// collectionNote is what that ref holds.
type collectionNote struct {
	Begun abi.Time          `json:"begun"`
	Took  time.Duration     `json:"took"` // in nanoseconds
	What  journal.Collected `json:"collected"`
}

// LastCollection tells of the last Collect of any host on the journal. ok is false if
// there was none.
func LastCollection(j *journal.Journal) (c Collection, ok bool, err error) {
	ref, err := j.Ref(collectionRef, lastCollection)
	if errors.Is(err, journal.ErrNotFound) {
		return Collection{}, false, nil
	}
	var note collectionNote
	if err == nil {
		err = json.Unmarshal(ref.Note, &note)
	}
	if err != nil {
		return Collection{}, false, fmt.Errorf("last collection: %w", err)
	}
	return Collection{note.What, note.Begun.Time, note.Took}, true, nil
}

// collect is Collect with a namer that may rest.
func (h *Host) collect(ctx context.Context, namer journal.Namer) (journal.Collected, error) {
	note := collectionNote{Begun: abi.NewTime(h.cfg.Now())}
	begun := time.Now()
	h.images.clear() // or they would be in use
	c, err := h.journal.Collect(ctx, namer)
	if err != nil {
		return c, err
	}
	note.What, note.Took = c, time.Since(begun)
	h.growth.collected(c.After)
	err = h.journal.SetRef(ctx, collectionRef, journal.Ref{Name: lastCollection, Note: mustJSON(note)})
	if err != nil { // it is done for all that; another one comes too early
		h.log.Warn("a collection was not noted", "error", err)
	}
	h.log.Info("collected", "sessions", c.Sessions, "records", c.Records, "blobs", c.Blobs,
		"images", c.Images, "pages", c.Pages, "bytes", c.Bytes, "disk", c.After, "took", note.Took)
	return c, nil
}

// growth remembers how small the store was since the last collection: files shrink
// for some time after one.
type growth struct {
	mu    sync.Mutex
	least int64
}

func newGrowth() growth { return growth{least: math.MaxInt64} }

func (g *growth) collected(size int64) {
	g.mu.Lock()
	g.least = size
	g.mu.Unlock()
}

// from lowers least to size, and is what it is then.
func (g *growth) from(size int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.least = min(g.least, size)
	return g.least
}

// CollectPays guesses, without reading what is stored, whether Collect would give
// back so much that it is worth the time: turns leave images and pages that nobody
// needs once the next ones have ended, and so do imports and saves that came to
// nothing, so the store has grown by at least what of that there is; and what was
// deleted since the last Collect did take room. It pays when that may be half as
// much as was left then, and more than a little; or half of what the disk has free.
func (h *Host) CollectPays() (bool, error) {
	pays, err := h.collectPays()
	if err != nil {
		return false, fmt.Errorf("garbage of the store: %w", err)
	}
	return pays, nil
}

func (h *Host) collectPays() (bool, error) {
	size, err := h.journal.DiskBytes()
	if err != nil {
		return false, err
	}
	last, _, err := LastCollection(h.journal)
	if err != nil {
		return false, err
	}
	room, err := h.journal.Room()
	if err != nil {
		return false, err
	}
	base := h.growth.from(min(size, last.After))
	enough := max(base/2, leastGarbage)
	if room != (journal.Room{}) {
		enough = max(leastGarbageFull, min(enough, room.Free/2))
	}
	garbage := size - base
	if garbage >= enough {
		return true, nil
	}
	deleted, err := h.deletedBytes(last.Begun)
	return garbage+deleted >= enough, err
}

// deletedBytes guesses what sessions took that were deleted since a time. A fork
// shares most of its memory.
func (h *Host) deletedBytes(since time.Time) (total int64, err error) {
	const record = 1 << 10
	for s, err := range h.journal.Deleted() {
		switch {
		case err != nil && s.UID == "":
			return 0, err
		case err != nil || !s.Deleted.After(since):
			continue // what cannot be read is for Collect to tell
		}
		total += int64(s.Head.Seq-s.At) * record
		r, err := decodeRow(s)
		if err != nil || s.Parent != "" || r.sum.Root == r.meta.GoldenRoot {
			continue
		}
		if image, err := h.journal.LoadImage(r.sum.Root); err == nil {
			total += int64(image.Size())
		}
	}
	return total, nil
}

// collectByItself collects whenever that pays, until the host is closed.
func (h *Host) collectByItself() {
	defer h.turns.Done()
	var c autoCollector
	timer := time.NewTimer(collectLook)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
			timer.Reset(c.look(h))
		}
	}
}

// autoCollector decides when a host collects by itself.
type autoCollector struct {
	looked  bool
	commits uint64        // of the journal, when it did not pay
	waited  time.Duration // for a moment without a turn
	failed  time.Duration // how long it waited after the last failure
}

// look collects if that pays, and tells when to look again.
func (c *autoCollector) look(h *Host) time.Duration {
	commits := h.journal.Commits()
	if c.looked && c.commits == commits {
		return collectLook // nothing was written
	}
	pays, err := h.collectPays()
	switch {
	case err != nil:
		return c.fail(h, err)
	case !pays:
		*c = autoCollector{looked: true, commits: commits}
		return collectLook
	case len(h.room) > 0 && c.waited < collectPatience:
		c.waited += collectLook
		return collectLook
	}
	namer := h.namer(h.ctx)
	rests := rests{host: h, since: time.Now()}
	namer.Rest = rests.rest
	begun := time.Now()
	if _, err := h.collect(h.ctx, namer); err != nil {
		return c.fail(h, err)
	}
	*c = autoCollector{looked: true, commits: h.journal.Commits()}
	return max(collectLook, collectShare*time.Since(begun))
}

// fail tells when to try again.
func (c *autoCollector) fail(h *Host, err error) time.Duration {
	if h.ctx.Err() != nil {
		return collectLook // the host is being closed
	}
	c.failed = min(max(collectRetry, 2*c.failed), collectRetryMost)
	h.log.Error("not everything is collected", "error", err, "next", c.failed)
	return c.failed
}

// rests keep a collection to a part of one processor: a quarter while nothing else
// goes on, and a twentieth beside turns.
type rests struct {
	host  *Host
	since time.Time // when the last one ended
}

func (r *rests) rest(ctx context.Context) {
	const stretch, most = 5 * time.Millisecond, 100 * time.Millisecond
	worked := time.Since(r.since)
	if worked < stretch {
		return
	}
	times := time.Duration(3)
	if len(r.host.room) > 0 {
		times = 19
	}
	select {
	case <-ctx.Done():
	case <-time.After(times * min(worked, most)):
	}
	r.since = time.Now()
}

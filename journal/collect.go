package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Collected is what Collect has taken away.
type Collected struct {
	// Sessions counts the deleted sessions of which nothing is left.
	Sessions int64 `json:"sessions"`
	Records  int64 `json:"records"`
	Blobs    int64 `json:"blobs"`
	Images   int64 `json:"images"`
	Pages    int64 `json:"pages"`
	// Bytes are those of all rows that went, keys and values.
	Bytes int64 `json:"bytes"`
	// Before and After are what the store took, as DiskBytes has it.
	Before int64 `json:"disk_before"`
	After  int64 `json:"disk_after"`
}

// Collect takes away what nobody needs: deleted sessions, but for the records that
// their children or pins need, and the blobs, images and pages that no record which
// is left names, imports that were given up and saves that a crash ended among
// them. An image that somebody has in hand, and what a Hold keeps, stays.
//
// All else may go on meanwhile; appends wait now and then for one commit of
// Collect's. It can be ended at any moment, by ctx or by a crash: nothing is ever
// left that names what is gone (M4). Where something that is needed cannot be read nobody
// knows what it names: then nothing that is named by its content goes, everything else does,
// and the error is an *Unreadable. A session of which not even the metadata can be read
// is an ErrCorrupt, and nothing is taken away. In memory it has 20 to 40 bytes for each
// row that is named by its content and needed, and for each tree node that is
// not.
//
// What it takes away is deleted row by row; at the end the store is compacted, as
// far as the disk has room for that, so that files shrink.
func (j *Journal) Collect(ctx context.Context, namer Namer) (Collected, error) {
	return j.collect(ctx, namer, sweepRows)
}

// sweepRows is how many rows go in one commit, for which appends may have to wait.
const sweepRows = 2000

func (j *Journal) collect(ctx context.Context, namer Namer, rows int) (Collected, error) {
	j.collecting.Lock()
	defer j.collecting.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(j.open, func() { cancel(ErrClosed) })()
	c := &collector{
		j: j, ctx: ctx, namer: namer, rows: rows,
		live: make(digestSet), need: make(map[abi.SessionID]*needed),
	}
	if err := c.run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return c.out, fmt.Errorf("collect: %w", err)
	}
	return c.out, nil
}

func (c *collector) run() (err error) {
	disk, onDisk := c.j.store.(diskStorage)
	if onDisk {
		if c.out.Before, err = disk.diskBytes(); err != nil {
			return err
		}
	}
	defer c.j.guard.end()
	if err := c.j.guard.begin(c.ctx); err != nil {
		return err
	}
	c.view = c.j.view()
	c.marking = true
	err = c.mark()
	c.marking = false
	c.view.Close()
	if err != nil {
		return err
	}
	// What names others goes before what it names.
	steps := []func() error{c.sessions, c.marks, c.orphans}
	if c.unreadable.err() == nil {
		steps = append(steps, c.images, c.nodes, c.pages, c.blobs)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if onDisk {
		if c.out.Bytes > 0 && (c.namer.Rest == nil || c.out.Before <= compactSoon) {
			if err := disk.compact(); err != nil {
				return err
			}
		}
		if c.out.After, err = disk.diskBytes(); err != nil {
			return err
		}
	}
	return c.unreadable.err()
}

// compactSoon is how large a store may be to be compacted in a second or two, which
// nothing can end.
const compactSoon = 256 << 20

// diskStorage is a Storage that takes room, which it gives back some time after rows
// were deleted, or in compact.
type diskStorage interface {
	compact() error
	diskBytes() (int64, error)
}

// DiskBytes is what the journal's files take; without a disk, what its rows do.
func (j *Journal) DiskBytes() (int64, error) {
	disk, ok := j.store.(diskStorage)
	if !ok || j.closed.Load() {
		return 0, nil
	}
	n, err := disk.diskBytes()
	if err != nil {
		return 0, fmt.Errorf("size of the store: %w", err)
	}
	return n, nil
}

// alone runs f when all that was touched is marked and nothing more is, until f
// returns.
func (c *collector) alone(f func() error) error {
	g := &c.j.guard
	for range 3 {
		if err := c.follow(); err != nil {
			return err
		}
	}
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	c.sweeping = true
	defer func() { c.sweeping = false }()
	if err := c.follow(); err != nil {
		return err
	}
	return f()
}

// commit deletes keys and puts entries, unless check, which sees the state that
// they are written to, takes some of the keys away.
func (c *collector) commit(keys [][]byte, puts []Entry, check func(*stage, [][]byte) ([][]byte, error)) (done [][]byte, err error) {
	if len(keys)+len(puts) == 0 {
		return nil, nil
	}
	size := entriesSize(puts)
	for _, k := range keys {
		size += Entry{Key: k}.size()
	}
	err = c.j.writer.do(c.ctx, &job{size: size, frees: true, stage: func(st *stage) error {
		done = keys
		if check != nil {
			var err error
			if done, err = check(st, keys); err != nil {
				return err
			}
		}
		for _, k := range done {
			st.batch.Delete(k)
		}
		for _, e := range puts {
			st.batch.Put(e)
		}
		return nil
	}})
	return done, err
}

// sessions takes deleted sessions away that nobody needs, and records of others how
// far they are kept: what is above that goes next.
func (c *collector) sessions() error {
	for portion := range slices.Chunk(c.deleted, (c.rows+4)/5) {
		err := c.alone(func() error {
			view := c.j.view()
			defer view.Close()
			var keys [][]byte
			var puts []Entry
			gone := int64(0)
			for _, uid := range portion {
				n := c.need[uid]
				if n == nil {
					gone++
					keys = append(keys, metaKey(uid), headKey(uid), deletedKey(uid), accountKey(uid))
					continue
				}
				s, _, err := session(view, uid)
				if errors.Is(err, ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				kept := max(n.high, n.pin)
				if n.all || !s.IsDeleted() || kept >= s.Kept {
					continue
				}
				s.Kept = kept
				puts = append(puts, Entry{deletedKey(uid), encodeDeleted(s)})
			}
			_, err := c.commit(keys, puts, nil)
			if err == nil {
				c.out.Sessions += gone
				for _, k := range keys {
					c.out.Bytes += int64(len(k)) // and of the values, which nobody has read
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// owners calls f for each uid that has rows of a kind, in which a zero stands
// behind the uid.
func (c *collector) owners(kind byte, f func(abi.SessionID) error) error {
	from := []byte{kind}
	for {
		key, err := c.first(from, []byte{kind + 1})
		if key == nil || err != nil {
			return err
		}
		end := slices.Index(key, 0)
		if end < 0 {
			return fmt.Errorf("%w: a key %q without a session", ErrCorrupt, key)
		}
		if err := f(abi.SessionID(key[1:end])); err != nil {
			return err
		}
		from = append(key[:end:end], 1)
	}
}

func (c *collector) first(from, to []byte) ([]byte, error) {
	view := c.j.view()
	defer view.Close()
	for e, err := range view.Scan(from, to, false) {
		return slices.Clone(e.Key), err
	}
	return nil, nil
}

// marks takes the marks of sessions away that are not there any more.
func (c *collector) marks() error {
	return c.owners(kindMark, func(uid abi.SessionID) error {
		prefix := markKey(uid, "")
		return c.sweep(prefix, after(prefix), false, sweeping{
			check: func(st *stage, keys [][]byte) ([][]byte, error) {
				_, err := st.head(uid)
				if st.gone[uid] || !errors.Is(err, ErrNotFound) {
					return nil, nil
				}
				return keys, nil
			},
		})
	})
}

// orphans takes the records away that nobody needs, the last first: one that is
// there so proves those before it.
func (c *collector) orphans() error {
	return c.owners(kindRecord, func(uid abi.SessionID) error {
		low, high := abi.Seq(1), abi.Seq(0)
		if n := c.need[uid]; n != nil && n.high > 0 {
			low, high = n.low, n.high
		}
		if err := c.orphansIn(stretch{uid, high + 1, math.MaxInt64}); err != nil {
			return err
		}
		return c.orphansIn(stretch{uid, 0, low - 1}) // of an import that was given up
	})
}

func (c *collector) orphansIn(s stretch) error {
	return c.sweep(recordKey(s.uid, s.low), append(recordKey(s.uid, s.high), 0), true, sweeping{
		dead: func(key []byte) bool {
			n := c.need[s.uid]
			return n == nil || !n.all && (seqOf(key) < n.low || seqOf(key) > n.high)
		},
		check: func(st *stage, keys [][]byte) ([][]byte, error) {
			now, err := st.readable(s.uid)
			if err != nil {
				return nil, err
			}
			return slices.DeleteFunc(slices.Clone(keys), func(k []byte) bool { return now.has(seqOf(k)) }), nil
		},
		count: &c.out.Records,
	})
}

// readable are the records under uid that its session has, after what the batch has
// so far; none if there is no session.
func (st *stage) readable(uid abi.SessionID) (stretch, error) {
	if st.gone[uid] {
		return stretch{uid, 0, math.MaxInt64}, nil // it is just being deleted, and nothing else yet
	}
	s, segs, err := session(st.snapshot(), uid)
	if errors.Is(err, ErrNotFound) {
		return stretch{uid, 1, 0}, nil
	}
	return own(uid, segs, max(s.last(), st.heads[uid].Seq)), err
}

// unneeded tells of rows that are named by their content.
func (c *collector) unneeded(kind byte) func([]byte) bool {
	return func(key []byte) bool { return !c.live.has(kind, rowDigest(key)) }
}

func rowDigest(key []byte) (d abi.Digest) {
	copy(d[:], key[1:])
	return d
}

func (c *collector) images() error {
	return c.sweepKind(kindImage, c.unneeded(kindImage), &c.out.Images)
}

func (c *collector) pages() error {
	return c.sweepKind(kindPage, c.unneeded(kindPage), &c.out.Pages)
}

// blobs takes blobs away from their first chunk on, by which they are found.
func (c *collector) blobs() error {
	return c.sweepKind(kindBlob, c.unneeded(kindBlob), &c.out.Blobs)
}

// nodes takes tree nodes away, those first that no other one names: what levels they
// are of only their trees know, which may be gone.
func (c *collector) nodes() error {
	left := make(digestSet)
	dead := c.unneeded(kindNode)
	err := c.scan([]byte{kindNode}, []byte{kindNode + 1}, func(e Entry) {
		if dead(e.Key) {
			left.add(kindNode, rowDigest(e.Key))
		}
	})
	for n := math.MaxInt; err == nil && len(left) > 0; {
		if len(left) >= n {
			return fmt.Errorf("%w: %d tree nodes that name one another", ErrCorrupt, len(left))
		}
		n = len(left)
		named := make(digestSet)
		err = c.scan([]byte{kindNode}, []byte{kindNode + 1}, func(e Entry) {
			if !left.has(kindNode, rowDigest(e.Key)) || !dead(e.Key) {
				return
			}
			kidHashes(e.Value, func(kid abi.Digest) {
				if left.has(kindNode, kid) {
					named.add(kindNode, kid)
				}
			})
		})
		if err == nil {
			err = c.sweepKind(kindNode, func(key []byte) bool {
				d := rowDigest(key)
				return left.has(kindNode, d) && !named.has(kindNode, d) && dead(key)
			}, nil)
		}
		left = named
	}
	return err
}

// scan calls f for all entries between two keys.
func (c *collector) scan(from, to []byte, f func(Entry)) error {
	view := c.j.view()
	defer view.Close()
	n := 0
	for e, err := range view.Scan(from, to, false) {
		if n++; err == nil && n&0xff == 0 {
			c.rest()
			err = context.Cause(c.ctx)
		}
		if err != nil {
			return err
		}
		f(e)
	}
	return nil
}

func (c *collector) sweepKind(kind byte, dead func(key []byte) bool, count *int64) error {
	return c.sweep([]byte{kind}, []byte{kind + 1}, false, sweeping{dead: dead, count: count})
}

// sweeping says what goes: what is dead, if it is set, but not what check, if it
// is set, takes out at the moment of the commit.
type sweeping struct {
	dead  func(key []byte) bool
	check func(*stage, [][]byte) ([][]byte, error)
	count *int64 // of what went; of a blob only its first chunk
}

// sweep takes rows between two keys away, a portion at a time.
func (c *collector) sweep(from, to []byte, reverse bool, s sweeping) error {
	for {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		rows, more, err := c.portion(from, to, reverse, s.dead)
		if err != nil {
			return err
		}
		err = c.alone(func() error { return c.drop(rows, s) })
		if err != nil || !more {
			return err
		}
		last := rows[len(rows)-1].key
		if reverse {
			to = last
		} else {
			from = append(last, 0)
		}
	}
}

// drop takes those of the rows away that still are to go.
func (c *collector) drop(rows []doomed, s sweeping) error {
	var keys [][]byte
	size := make(map[string]int, len(rows))
	for _, r := range rows {
		if s.dead == nil || s.dead(r.key) {
			keys = append(keys, r.key)
			size[string(r.key)] = r.size
		}
	}
	done, err := c.commit(keys, nil, s.check)
	if err != nil {
		return err
	}
	for _, k := range done {
		c.out.Bytes += int64(size[string(k)])
		if s.count != nil && (k[0] != kindBlob || string(k) == string(blobKey(rowDigest(k), 0))) {
			*s.count++
		}
	}
	return nil
}

// doomed is a row that is to go.
type doomed struct {
	key  []byte
	size int // with its value
}

// portion gathers the first rows that are dead, and tells whether there are more.
func (c *collector) portion(from, to []byte, reverse bool, dead func(key []byte) bool) (rows []doomed, more bool, err error) {
	view := c.j.view()
	defer view.Close()
	n := 0
	for e, err := range view.Scan(from, to, reverse) {
		if n++; err == nil && n&0xff == 0 {
			c.rest()
			err = context.Cause(c.ctx)
		}
		if err != nil {
			return nil, false, err
		}
		if dead != nil && !dead(e.Key) {
			continue
		}
		if len(rows) == c.rows {
			return rows, true, nil
		}
		rows = append(rows, doomed{slices.Clone(e.Key), len(e.Key) + len(e.Value)})
	}
	return rows, false, nil
}

package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// naming is an event that names a blob and an image.
type naming struct {
	Blob  abi.Digest `json:"blob,omitzero"`
	Image abi.Digest `json:"image,omitzero"`
}

// pin is the note of a ref of kind "pin".
type pin struct {
	UID abi.SessionID
	At  abi.Seq
}

func (p pin) String() string { return fmt.Sprint(p.UID, "@", p.At) }

// testNamer reads namings, pins, and sessions whose Meta is the digest of a blob.
func testNamer(j *Journal) Namer {
	return Namer{
		Session: func(s Session, n *Names) error {
			if len(s.Meta) == 0 {
				return nil
			}
			return n.Blob(abi.Digest(s.Meta))
		},
		Record: func(_ abi.SessionID, r Record, n *Names) error {
			named, err := namedBy(r.Line)
			if err == nil && !named.Blob.IsZero() {
				err = n.Blob(named.Blob)
			}
			if err == nil && !named.Image.IsZero() {
				err = n.Image(named.Image)
			}
			return err
		},
		Pins: func(n *Names) error {
			pins, err := pinsOf(j)
			for _, p := range pins {
				err = errors.Join(err, n.Point(p.UID, p.At, p.String(), abi.Digest{}))
			}
			return err
		},
	}
}

func namedBy(line []byte) (n naming, err error) {
	event, _, _, err := ParseLine(line)
	if err == nil {
		err = json.Unmarshal(event, &n)
	}
	return n, err
}

func pinsOf(j *Journal) (pins []pin, err error) {
	refs, err := j.Refs("pin")
	for _, r := range refs {
		var p pin
		err = errors.Join(err, json.Unmarshal(r.Note, &p))
		pins = append(pins, p)
	}
	return pins, err
}

func collect(t testing.TB, j *Journal) Collected {
	t.Helper()
	c, err := j.Collect(t.Context(), testNamer(j))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rowsOf lists the keys of all rows that Collect may take away.
func rowsOf(t testing.TB, store Storage) map[string]bool {
	t.Helper()
	view := store.View()
	defer view.Close()
	keys := map[string]bool{}
	for e, err := range view.Scan([]byte{1}, []byte{0xff}, false) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsRune("Facn", rune(e.Key[0])) {
			keys[string(e.Key)] = true
		}
	}
	return keys
}

// reachable lists the keys of all rows that somebody needs, found in the plainest
// way. It reads every page, and wants every blob and every image to be whole; exact,
// that of deleted sessions no more is kept than somebody needs.
func reachable(t testing.TB, j *Journal, exact bool) map[string]bool {
	t.Helper()
	view := j.view()
	defer view.Close()
	keys := map[string]bool{}
	needs := map[abi.SessionID]abi.Seq{} // of the records of a session that others need
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	blob := func(d abi.Digest) {
		b, err := j.Blob(d)
		must(err)
		for chunk := 0; chunk == 0 || chunk*blobChunk < len(b); chunk++ {
			keys[string(blobKey(d, uint32(chunk)))] = true
		}
	}
	image := func(root abi.Digest) {
		im, err := j.LoadImage(root)
		must(err)
		keys[string(digestKey(kindImage, root))] = true
		var walk func(nd *pageNode, level int, first uint32)
		walk = func(nd *pageNode, level int, first uint32) {
			if nd == nil {
				return
			}
			if level == 0 {
				must(j.ReadPage(im, first, make([]byte, abi.PageSize)))
				keys[string(digestKey(kindPage, nd.hash))] = true
				return
			}
			keys[string(digestKey(kindNode, nd.hash))] = true
			kids, err := im.tree.kids(nd, level, first)
			must(err)
			for i, kid := range kids {
				walk(kid, level-1, first+uint32(i)*span(level-1))
			}
		}
		walk(im.tree.root, height(im.tree.pages), 0)
	}
	records := func(uid abi.SessionID, upto abi.Seq) {
		_, segs, err := session(view, uid)
		must(err)
		for _, s := range ranges(append(segs, segment{uid, upto}), 1, upto, false) {
			needs[s.uid] = max(needs[s.uid], s.high)
			for seq := s.low; seq <= s.high; seq++ {
				r, err := record(view, s.uid, seq)
				must(err)
				if abi.DigestOf(r.Line) != r.Hash {
					t.Fatalf("record %d of %s is not what was hashed", seq, s.uid)
				}
				keys[string(recordKey(s.uid, seq))] = true
				keys[string(metaKey(s.uid))] = true // somebody's records are kept: so is who it was
				n, err := namedBy(r.Line)
				must(err)
				if !n.Blob.IsZero() {
					blob(n.Blob)
				}
				if !n.Image.IsZero() {
					image(n.Image)
				}
			}
		}
	}
	for s, err := range j.Sessions() {
		must(err)
		if !s.IsDeleted() {
			keys[string(metaKey(s.UID))] = true
			if _, err := j.Mark(s.UID, "m"); err == nil {
				keys[string(markKey(s.UID, "m"))] = true
			}
			records(s.UID, s.Head.Seq)
		}
	}
	pins, err := pinsOf(j)
	must(err)
	for _, p := range pins {
		if _, err := j.Session(p.UID); errors.Is(err, ErrNotFound) {
			continue // of a session that was gone already
		}
		keys[string(metaKey(p.UID))] = true
		records(p.UID, p.At)
		needs[p.UID] = max(needs[p.UID], p.At)
	}
	for s, err := range j.Sessions() {
		must(err)
		if !keys[string(metaKey(s.UID))] {
			continue
		}
		keys[string(headKey(s.UID))] = true
		if s.IsDeleted() {
			keys[string(deletedKey(s.UID))] = true
			if exact && s.Kept != needs[s.UID] {
				t.Fatalf("%d records are kept of session %s, %d are needed", s.Kept, s.UID, needs[s.UID])
			}
			records(s.UID, s.Kept)
		}
		if len(s.Meta) > 0 {
			blob(abi.Digest(s.Meta))
		}
	}
	return keys
}

// checkM5 wants the store to have what somebody needs, and nothing else.
func checkM5(t testing.TB, j *Journal) {
	t.Helper()
	var lost, left []string
	needed, there := reachable(t, j, true), rowsOf(t, j.store)
	for k := range needed {
		if !there[k] {
			lost = append(lost, fmt.Sprintf("%q", k))
		}
	}
	for k := range there {
		if !needed[k] {
			left = append(left, fmt.Sprintf("%q", k))
		}
	}
	if len(lost)+len(left) > 0 {
		t.Fatalf("lost: %v\nleft although nobody needs it: %v", lost, left)
	}
}

// checkM4 wants every row that is there to prove all it names, as saving trusts.
func checkM4(t testing.TB, store Storage) {
	t.Helper()
	view := store.View()
	defer view.Close()
	there := func(kind byte, d abi.Digest) bool {
		_, err := view.Get(digestKey(kind, d))
		return err == nil
	}
	zero := map[abi.Digest]bool{}
	for level := range maxHeight {
		for pages := range uint32(40) {
			if covered(pages, level, 0) == pages {
				zero[zeroHash(level, pages)] = true
			}
		}
		zero[fullZero[level]] = true
	}
	for e, err := range view.Scan([]byte{kindNode}, []byte{kindNode + 1}, false) {
		if err != nil {
			t.Fatal(err)
		}
		kidHashes(e.Value, func(d abi.Digest) {
			if !zero[d] && !there(kindNode, d) && !there(kindPage, d) {
				t.Fatalf("node %v is there and not its child %v", rowDigest(e.Key), d)
			}
		})
	}
	for e, err := range view.Scan([]byte{kindImage}, []byte{kindImage + 1}, false) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeImageRow(e.Value)
		if err != nil || !zero[r.pages] && !there(kindNode, r.pages) && !there(kindPage, r.pages) {
			t.Fatalf("image %v is there and not its pages: %v", rowDigest(e.Key), err)
		}
	}
	for e, err := range view.Scan([]byte{kindBlob}, []byte{kindBlob + 1}, false) {
		if err != nil {
			t.Fatal(err)
		}
		if d := rowDigest(e.Key); string(e.Key) == string(blobKey(d, 0)) {
			if length := len(e.Value) - 8; length == blobChunk {
				if _, err := view.Get(blobKey(d, 1)); err != nil && e.Value[5] != 8 {
					t.Fatalf("blob %v is there and not its second chunk", d)
				}
			}
		}
	}
}

// dice is where a world's randomness comes from.
type dice func(n int) int

// world makes random sessions, whose pages and blobs are much alike, on a journal.
// Its methods are for one goroutine; worlds of one journal may share sessions that
// none of them deletes.
type world struct {
	j    *Journal
	name string
	roll dice
	made int
	mine []abi.SessionID // sessions that are there
	gone []abi.SessionID // sessions that were deleted
	// backups are sessions as they were when they were deleted.
	backups map[abi.SessionID]backup
	pins    []string
	mems    map[abi.SessionID]mem
	bases   map[abi.SessionID]abi.Digest
	// say is told of each append when it is durable, and of each delete before
	// it begins.
	say func(ack)
}

type backup struct {
	s       Session
	records []Record
	blobs   [][]byte
	images  []mem
}

func newWorld(j *Journal, name string, roll dice) *world {
	return &world{
		j: j, say: func(ack) {}, name: name, roll: roll,
		backups: map[abi.SessionID]backup{}, mems: map[abi.SessionID]mem{}, bases: map[abi.SessionID]abi.Digest{},
	}
}

func (w *world) one(uids []abi.SessionID) abi.SessionID { return uids[w.roll(len(uids))] }

// anyBlob is one of a few blobs, of which some have several chunks.
func (w *world) anyBlob() []byte {
	b := fmt.Appendf(nil, "blob %d", w.roll(6))
	if w.roll(8) == 0 {
		b = bytes.Repeat(b, blobChunk/len(b)+2)
	}
	return b
}

func (w *world) step() error {
	ctx := context.Background()
	if len(w.mine) == 0 {
		return w.create(ctx)
	}
	switch w.roll(12) {
	case 0:
		return w.create(ctx)
	case 1, 2, 3, 4:
		return w.append(ctx)
	case 5, 6:
		return w.fork(ctx)
	case 7, 8:
		return w.delete(ctx)
	case 9:
		return w.pin(ctx)
	case 10:
		return w.restore(ctx)
	default:
		return w.litter(ctx)
	}
}

func (w *world) create(ctx context.Context) error {
	defer w.j.Hold()()
	d, err := w.j.PutBlob(ctx, fmt.Appendf(nil, "module %d", w.roll(3)))
	if err != nil {
		return err
	}
	w.made++
	s := Session{UID: abi.SessionID(fmt.Sprintf("%s%d", w.name, w.made)), Project: "p", Created: epoch, Meta: d[:]}
	if _, err = w.j.Create(ctx, s); err != nil {
		return err
	}
	w.mine = append(w.mine, s.UID)
	return nil
}

// append adds a record with a blob, an image, or neither.
func (w *world) append(ctx context.Context) error {
	uid := w.one(w.mine)
	s, err := w.j.Session(uid)
	if err != nil {
		return err
	}
	var n naming
	a := Append{Head: s.Head, Fence: s.Head.Fence, Marks: []Mark{{"m", s.Head.Seq + 1}}}
	if w.roll(2) == 0 {
		b := w.anyBlob()
		n.Blob = abi.DigestOf(b)
		a.Blobs = [][]byte{b}
	}
	next, old := mem{}, w.mems[uid]
	if w.roll(3) > 0 {
		if a.Image, next, err = w.image(uid); err != nil {
			return err
		}
		n.Image = a.Image.Root()
	}
	event, err := json.Marshal(n)
	if err != nil {
		return err
	}
	a.Events = [][]byte{event}
	records, err := w.j.Append(ctx, uid, a)
	if err != nil {
		return err
	}
	w.say(ack{Session: uid, Seq: records[0].Seq, Hash: records[0].Hash})
	if a.Image != nil {
		w.mems[uid], w.bases[uid] = next, n.Image
	} else {
		w.mems[uid] = old
	}
	return nil
}

// image makes the session's next image from the one it has.
func (w *world) image(uid abi.SessionID) (*Image, mem, error) {
	old := w.mems[uid]
	next := mem{pages: slices.Clone(old.pages), clock: int64(w.roll(2))}
	sizes := []int{0, 1, 3, 16, 17, 36, 300}
	if n := sizes[w.roll(len(sizes))]; n > len(next.pages) {
		next.pages = append(next.pages, make([]byte, n-len(next.pages))...)
	}
	for range min(w.roll(4), len(next.pages)) {
		next.pages[w.roll(len(next.pages))] = byte(w.roll(5))
	}
	if len(next.pages) == 300 {
		next.pages[299] = 9
	}
	var base *Image
	if root, ok := w.bases[uid]; ok {
		var err error
		if base, err = w.j.LoadImage(root); err != nil {
			return nil, mem{}, err
		}
	}
	im, err := w.j.NewImage(base, next.spec(next.changedFrom(old)...))
	return im, next, err
}

func (w *world) fork(ctx context.Context) error {
	parent := w.one(w.mine)
	s, err := w.j.Session(parent)
	if err != nil || s.Head.Seq == 0 {
		return err
	}
	at := abi.Seq(1 + w.roll(int(s.Head.Seq)))
	w.made++
	uid := abi.SessionID(fmt.Sprintf("%s%d", w.name, w.made))
	_, err = w.j.Fork(ctx, parent, at, epoch, []ForkChild{{UID: uid, Meta: s.Meta, Event: []byte(`{}`)}})
	if err == nil {
		w.mine = append(w.mine, uid)
	}
	return err
}

func (w *world) delete(ctx context.Context) error {
	i := w.roll(len(w.mine))
	uid := w.mine[i]
	var b backup
	for r, err := range w.j.Read(uid, 1, 0) {
		if err != nil {
			return err
		}
		n, err := namedBy(r.Line)
		if err == nil && !n.Blob.IsZero() {
			var blob []byte
			blob, err = w.j.Blob(n.Blob)
			b.blobs = append(b.blobs, blob)
		}
		if err == nil && !n.Image.IsZero() {
			var m mem
			m, err = readMem(w.j, n.Image)
			b.images = append(b.images, m)
		}
		if err != nil {
			return err
		}
		b.records = append(b.records, r)
	}
	module, err := w.j.Session(uid)
	if err != nil {
		return err
	}
	code, err := w.j.Blob(abi.Digest(module.Meta))
	if err != nil {
		return err
	}
	b.blobs = append(b.blobs, code)
	w.say(ack{Begin: true, Session: uid})
	if b.s, err = w.j.Delete(ctx, uid, epoch); err != nil {
		return err
	}
	w.mine = slices.Delete(w.mine, i, i+1)
	w.gone = append(w.gone, uid)
	w.backups[uid] = b
	delete(w.bases, uid)
	delete(w.mems, uid)
	return nil
}

// pin adds a pin to a session, or takes one away.
func (w *world) pin(ctx context.Context) error {
	if len(w.pins) > 0 && w.roll(2) == 0 {
		i := w.roll(len(w.pins))
		name := w.pins[i]
		w.pins = slices.Delete(w.pins, i, i+1)
		return w.j.RemoveRef(ctx, "pin", name)
	}
	defer w.j.Hold()()
	s, err := w.j.Session(w.one(w.mine))
	if err != nil || s.Head.Seq == 0 {
		return err
	}
	w.made++
	name := fmt.Sprintf("%s%d", w.name, w.made)
	note, err := json.Marshal(pin{s.UID, abi.Seq(1 + w.roll(int(s.Head.Seq)))})
	if err == nil {
		err = w.j.SetRef(ctx, "pin", Ref{Name: name, Note: note})
	}
	w.pins = append(w.pins, name)
	return err
}

// readMem reads a stored image.
func readMem(j *Journal, root abi.Digest) (mem, error) {
	im, err := j.LoadImage(root)
	if err != nil {
		return mem{}, err
	}
	m := mem{pages: make([]byte, im.Size()/abi.PageSize), globals: im.Globals(), clock: im.Clock()}
	pages, err := readPages(j, im, every(len(m.pages)))
	for i, all := range pages {
		m.pages[i] = all[0][4]
	}
	return m, err
}

// restore brings a deleted session back.
func (w *world) restore(ctx context.Context) error {
	if len(w.gone) == 0 {
		return nil
	}
	i := w.roll(len(w.gone))
	uid := w.gone[i]
	b := w.backups[uid]
	b.s.Deleted, b.s.Kept = time.Time{}, 0
	im, err := w.j.Import(b.s)
	if err != nil {
		return err
	}
	defer im.Close()
	for _, blob := range b.blobs {
		if err := im.PutBlob(ctx, blob); err != nil {
			return err
		}
	}
	for _, r := range b.records {
		if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
			return err
		}
	}
	for _, m := range b.images {
		image, err := w.j.NewImage(nil, m.spec(m.changedFrom(mem{})...))
		if err == nil {
			err = w.j.SaveImage(ctx, image)
		}
		if err != nil {
			return err
		}
	}
	if w.roll(4) == 0 {
		return im.flush(ctx) // and given up
	}
	if _, err := im.Commit(ctx, b.s.Summary); err != nil {
		return err
	}
	w.gone = slices.Delete(w.gone, i, i+1)
	w.mine = append(w.mine, uid)
	return nil
}

// litter leaves what nobody needs.
func (w *world) litter(ctx context.Context) error {
	if w.roll(2) == 0 {
		_, err := w.j.PutBlob(ctx, w.anyBlob())
		return err
	}
	im, _, err := w.image(w.one(w.mine))
	if err == nil {
		err = w.j.SaveImage(ctx, im)
	}
	return err
}

// livesAs is what of a journal must not change: each session that is there, and
// its head.
func livesAs(t testing.TB, j *Journal) map[abi.SessionID]Head {
	t.Helper()
	all := map[abi.SessionID]Head{}
	for s, err := range j.Sessions() {
		if err != nil {
			t.Fatal(err)
		}
		if !s.IsDeleted() {
			all[s.UID] = s.Head
		}
	}
	return all
}

func verifyAll(t testing.TB, j *Journal) {
	t.Helper()
	for uid := range livesAs(t, j) {
		if _, _, err := j.Verify(context.Background(), uid, VerifyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// What is left of any history is what somebody needs, and all of it.
func TestM5_Collect(t *testing.T) {
	disk, err := openBadger(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	for name, fresh := range map[string]func(*rapid.T) Storage{
		"memory": func(*rapid.T) Storage { return newMemory() },
		"badger": func(rt *rapid.T) Storage {
			if err := disk.db.DropAll(); err != nil {
				rt.Fatal(err)
			}
			return unclosed{disk}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				j, err := New(fresh(rt), Options{})
				if err != nil {
					rt.Fatal(err)
				}
				defer j.Close()
				w := newWorld(j, "s", func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "roll") })
				for range rapid.IntRange(1, 2).Draw(rt, "collections") {
					for range rapid.IntRange(0, 24).Draw(rt, "steps") {
						if err := w.step(); err != nil {
							rt.Fatal(err)
						}
					}
					before := livesAs(t, j)
					collect(t, j)
					if diff := cmp.Diff(before, livesAs(t, j)); diff != "" {
						rt.Fatalf("sessions (-before +after):\n%s", diff)
					}
					verifyAll(t, j)
					checkM5(t, j)
					checkM4(t, j.store)
				}
			})
		})
	}
}

// Many write while Collect runs again and again: nobody's work is lost.
func TestM5_CollectBesideWriters(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		const writers, steps = 4, 150
		worlds := make([]*world, writers)
		errs := make([]error, writers)
		var all sync.WaitGroup
		for i := range writers {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			worlds[i] = newWorld(j, fmt.Sprintf("w%d.", i), random.IntN)
			all.Go(func() {
				for range steps {
					if errs[i] = worlds[i].step(); errs[i] != nil {
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() {
			all.Wait()
			close(done)
		}()
		rounds := 0
		for going := true; going; rounds++ {
			if _, err := j.Collect(t.Context(), testNamer(j)); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				going = false
			default:
			}
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		t.Logf("collected %d times", rounds)
		checkM4(t, j.store)
		verifyAll(t, j)
		reachable(t, j, false) // all of it is there
		collect(t, j)
		checkM5(t, j)
	})
}

// A crash at every commit of Collect leaves a store in which every row proves what
// it names, and the next Collect finishes the work.
func TestM4_CollectCrash(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		first := newMemory()
		j, err := New(keepOpen{first}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(j, "s", random.IntN)
		for range 70 {
			if err := w.step(); err != nil {
				t.Fatal(err)
			}
		}
		before := livesAs(t, j)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		for commits := 0; ; commits++ {
			store := newMemory()
			store.root.Store(first.root.Load())
			store.seed = first.seed
			j, err := New(&diesAt{Storage: keepOpen{store}, left: commits}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = j.collect(t.Context(), testNamer(j), 3)
			j.Close()
			if err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			over := err == nil
			checkM4(t, store)
			j = journalOn(t, store)
			verifyAll(t, j)
			reachable(t, j, false)
			collect(t, j)
			checkM5(t, j)
			if diff := cmp.Diff(before, livesAs(t, j)); diff != "" {
				t.Fatalf("after %d commits (-before +after):\n%s", commits, diff)
			}
			if over {
				if commits < 10 {
					t.Errorf("%d commits: too few to show anything", commits)
				}
				break
			}
		}
	}
}

// Files shrink when what was in them is gone, although it is spread over all of
// them.
func TestCollect_GivesRoomBack(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir)
	const sessions, pages = 8, 1500
	for i := range sessions {
		uid := abi.SessionID(fmt.Sprint("s", i))
		create(t, j, uid, "p", "")
		im := newImage(t, j, nil, ImageSpec{
			Size: pages * abi.PageSize, Changed: sequence(pages),
			Read: func(page uint32, dst []byte) error {
				random := rand.NewChaCha8([32]byte{byte(i), byte(page), byte(page >> 8)})
				_, err := random.Read(dst)
				return err
			},
		})
		event, err := json.Marshal(naming{Image: im.Root()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Append(t.Context(), uid, Append{Events: [][]byte{event}, Image: im}); err != nil {
			t.Fatal(err)
		}
	}
	all := collect(t, j)
	if all.Bytes != 0 {
		t.Errorf("collected %+v", all)
	}
	for i := range sessions {
		if i%4 > 0 {
			remove(t, j, abi.SessionID(fmt.Sprint("s", i)))
		}
	}
	c := collect(t, j)
	t.Logf("%d MB, after it %d MB", c.Before>>20, c.After>>20)
	if c.Pages != pages*sessions*3/4 || c.Sessions != sessions*3/4 || c.Images != c.Sessions || c.Records != c.Sessions {
		t.Errorf("collected %+v", c)
	}
	if freed := c.Before - c.After; freed < c.Bytes*9/10 {
		t.Errorf("rows of %d bytes went, files shrank by %d, from %d", c.Bytes, freed, c.Before)
	}
	checkM5(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openIn(t, dir)
	checkM5(t, j)
	extend(t, j, "s0", 3)
}

func sequence(n uint32) (all []uint32) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

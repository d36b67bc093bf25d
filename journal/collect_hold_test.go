package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// appendImage appends a record that names an image.
func appendImage(t testing.TB, j *Journal, uid abi.SessionID, im *Image) {
	t.Helper()
	event, err := json.Marshal(naming{Image: im.Root()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), uid, Append{Head: headOf(t, j, uid), Events: [][]byte{event}, Image: im}); err != nil {
		t.Fatal(err)
	}
}

// An image in somebody's hand stays, whole, and so does what another one shares
// with it; in nobody's hand it goes.
func TestCollect_ImagesInHand(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		m := pagesOf(40)
		saved := newImage(t, j, nil, m.spec(sequence(40)...))
		appendImage(t, j, "s", saved)
		// One that was never saved shares what that one's save let go of.
		next := m
		next.pages = append([]byte(nil), m.pages...)
		next.pages[20] = 0
		unsaved := newImage(t, j, saved, next.spec(20))
		loaded, err := j.LoadImage(saved.Root())
		if err != nil {
			t.Fatal(err)
		}
		remove(t, j, "s")
		if c := collect(t, j); c.Pages != 0 || c.Sessions != 1 {
			t.Errorf("collected %+v", c)
		}
		create(t, j, "s", "p", "")
		appendImage(t, j, "s", loaded)
		appendImage(t, j, "s", unsaved)
		collect(t, j)
		checkM5(t, j)
		for root, want := range map[abi.Digest]mem{saved.Root(): m, unsaved.Root(): next} {
			got, err := readMem(j, root)
			if err != nil || string(got.pages) != string(want.pages) {
				t.Errorf("image %v: %v", root, err)
			}
		}
		runtime.KeepAlive(saved)
		runtime.KeepAlive(unsaved)
		runtime.KeepAlive(loaded)
		remove(t, j, "s")
		if c := collect(t, j); c.Images != 2 || c.Pages != 40 {
			t.Errorf("collected %+v", c)
		}
		checkM5(t, j)
	})
}

// What was put under a hold that is older than Collect is there for who names it,
// and so is what was put or found while Collect ran.
func TestCollect_Hold(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		put := func(text string) abi.Digest {
			d, err := j.PutBlob(ctx, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		begin := func(namer Namer) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := j.Collect(ctx, namer)
				done <- err
			}()
			return done
		}
		has := func(d abi.Digest, want bool) {
			t.Helper()
			if got, err := j.HasBlob(d); err != nil || got != want {
				t.Errorf("blob %v is there: %t, %v", d.Short(), got, err)
			}
		}

		release := j.Hold()
		held := put("held")
		done := begin(testNamer(j))
		if _, err := j.Create(ctx, Session{UID: "s", Project: "p", Created: epoch, Meta: held[:]}); err != nil {
			t.Fatal(err)
		}
		release()
		release() // which changes nothing
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		has(held, true)

		found, left := put("found"), put("left")
		walking, goOn := make(chan bool), make(chan bool)
		namer := testNamer(j)
		namer.Pins = func(*Names) error {
			close(walking)
			<-goOn
			return nil
		}
		done = begin(namer)
		<-walking
		release = j.Hold()
		defer release()
		has(found, true)
		fresh := put("fresh")
		close(goOn)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		has(found, true)
		has(fresh, true)
		has(left, false)
		for _, d := range []abi.Digest{found, fresh} {
			if _, err := j.Blob(d); err != nil {
				t.Error(err)
			}
		}
	})
}

// A session that was deleted, and that nobody needed when Collect began its walk,
// can still be forked, or come back: what that needs stays.
func TestCollect_TooLateToGo(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		m := pagesOf(20)
		var backups []Session
		for _, uid := range []abi.SessionID{"forked", "back", "gone"} {
			backups = append(backups, create(t, j, uid, "p", ""))
			m.pages[3]++
			appendImage(t, j, uid, newImage(t, j, nil, m.spec(sequence(20)...)))
			extend(t, j, uid, 3)
			remove(t, j, uid)
		}
		records := collectRecords(t, j.Read("back", 1, 0))
		namer := testNamer(j)
		var im *Import
		namer.Pins = func(*Names) error {
			errs := make(chan error)
			go func() { // as others do, for whom Collect is out of sight
				_, err := j.Fork(ctx, "forked", 3, epoch, []ForkChild{{UID: "child", Event: []byte("{}")}})
				if err == nil {
					back := backups[1]
					last := records[len(records)-1]
					back.Head = Head{Seq: last.Seq, Hash: last.Hash}
					im, err = j.Import(back)
				}
				errs <- err
			}()
			return <-errs
		}
		c, err := j.Collect(ctx, namer)
		if err != nil {
			t.Fatal(err)
		}
		if c.Sessions != 1 || c.Records != 5 {
			t.Errorf("collected %+v", c)
		}
		defer im.Close()
		for _, r := range records {
			if _, err := im.Record(ctx, r.Fence, r.Line); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := im.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		im.Close()
		verifyAll(t, j)
		reachable(t, j, true)
		collect(t, j)
		checkM5(t, j)
		if diff := cmp.Diff([]abi.SessionID{"back", "child"}, slices.Sorted(maps.Keys(livesAs(t, j)))); diff != "" {
			t.Error(diff)
		}
	})
}

// What a session needs and cannot be read keeps everything that is named by content;
// deleted sessions go for all that. Deleting the damaged one lets Collect do the rest.
func TestCollect_Corrupt(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "good", "p", "")
		create(t, j, "bad", "p", "")
		extend(t, j, "good", 3)
		im := newImage(t, j, nil, pagesOf(40).spec(sequence(40)...))
		appendImage(t, j, "bad", im)
		if _, err := j.PutBlob(t.Context(), []byte("litter")); err != nil {
			t.Fatal(err)
		}
		b := new(Batch)
		b.Put(Entry{digestKey(kindNode, im.tree.root.hash), []byte("not what was hashed")})
		if err := j.store.Commit(b); err != nil {
			t.Fatal(err)
		}
		create(t, j, "gone", "p", "")
		extend(t, j, "gone", 3)
		remove(t, j, "gone")
		named := func() (n int) {
			for key := range rowsOf(t, j.store) {
				switch key[0] {
				case kindImage, kindNode, kindPage, kindBlob:
					n++
				}
			}
			return n
		}
		before := named()
		c, err := j.Collect(t.Context(), testNamer(j))
		var damage *Unreadable
		if !errors.As(err, &damage) || !errors.Is(err, ErrCorrupt) || !slices.Equal(damage.Sessions, []abi.SessionID{"bad"}) {
			t.Fatalf("%v, want what cannot be read of bad", err)
		}
		if c.Sessions != 1 || c.Records != 3 || c.Blobs+c.Images+c.Pages != 0 || named() != before {
			t.Errorf("collected %+v; %d rows of %d that are named by content are left", c, named(), before)
		}
		// Not even what it holds of others is known.
		view := j.store.View()
		meta, err := view.Get(metaKey("bad"))
		meta = slices.Clone(meta)
		view.Close()
		if err != nil {
			t.Fatal(err)
		}
		put := func(row []byte) {
			b := new(Batch)
			b.Put(Entry{metaKey("bad"), row})
			if err := j.store.Commit(b); err != nil {
				t.Fatal(err)
			}
		}
		put([]byte("rotten"))
		all := len(rowsOf(t, j.store))
		if _, err := j.Collect(t.Context(), testNamer(j)); !errors.Is(err, ErrCorrupt) || len(rowsOf(t, j.store)) != all {
			t.Errorf("%v, and %d rows of %d are left", err, len(rowsOf(t, j.store)), all)
		}
		put(meta)
		im = nil
		remove(t, j, "bad")
		if c := collect(t, j); c.Sessions != 1 || c.Pages != 40 || c.Blobs != 1 {
			t.Errorf("collected %+v", c)
		}
		checkM5(t, j)
	})
}

// Collect ends when it is asked to, at any moment, and what it holds up goes on.
func TestCollect_Canceled(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		extend(t, j, "s", 3)
		create(t, j, "gone", "p", "")
		extend(t, j, "gone", 3)
		remove(t, j, "gone")
		release := j.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := j.Collect(ctx, testNamer(j))
			done <- err
		}()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("while it waits for a hold: %v", err)
		}
		release()

		ctx, cancel = context.WithCancel(t.Context())
		namer := testNamer(j)
		namer.Session = func(Session, *Names) error { cancel(); return nil }
		if _, err := j.Collect(ctx, namer); !errors.Is(err, context.Canceled) {
			t.Errorf("while it walks: %v", err)
		}
		extend(t, j, "s", 1)
		if c := collect(t, j); c.Sessions != 1 || c.Records != 3 {
			t.Errorf("collected %+v", c)
		}
	})
}

// Closing the journal ends Collect, wherever it is, and is no harm.
func TestCollect_Closed(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		j := openNow(t, dir)
		uid := abi.SessionID(rune('a' + round))
		create(t, j, uid, "p", "")
		appendImage(t, j, uid, newImage(t, j, nil, pagesOf(100).spec(sequence(100)...)))
		remove(t, j, uid)
		namer := testNamer(j)
		walking := make(chan bool)
		switch round {
		case 0: // while it waits
			defer j.Hold()()
			close(walking)
		case 1: // while it walks
			namer.Pins = func(*Names) error { close(walking); return nil }
		default: // perhaps later
			namer.Session = func(Session, *Names) error { return nil }
			close(walking)
		}
		done := make(chan error, 1)
		go func() {
			_, err := j.Collect(context.Background(), namer)
			done <- err
		}()
		<-walking
		closeJournal(t, j)
		if err := <-done; err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("round %d: %v, want ErrClosed", round, err)
		}
	}
	j := openIn(t, dir)
	checkM4(t, j.store)
	collect(t, j)
	checkM5(t, j)
}

// Who rests in Collect may use the journal there, for nobody waits for Collect
// meanwhile, and what is put then stays. A rest that is ended ends Collect.
func TestCollect_Rest(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		m := pagesOf(40)
		image := newImage(t, j, nil, m.spec(sequence(40)...))
		appendImage(t, j, "s", image)
		for i := range 1000 {
			if _, err := j.PutBlob(t.Context(), fmt.Appendf(nil, "nobody needs blob %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		var put []abi.Digest
		namer := testNamer(j)
		namer.Rest = func(ctx context.Context) {
			d, err := j.PutBlob(ctx, fmt.Appendf(nil, "put in rest %d", len(put)))
			if err != nil {
				t.Error(err)
			}
			put = append(put, d)
		}
		c, err := j.Collect(t.Context(), namer)
		if err != nil || c.Blobs != 1000 {
			t.Errorf("collected %+v: %v", c, err)
		}
		// At the record, at the nodes of the image, and in the sweep.
		if len(put) < 1+3+1000/256 {
			t.Errorf("%d rests", len(put))
		}
		for _, d := range put {
			if has, err := j.HasBlob(d); !has || err != nil {
				t.Errorf("blob %v is there: %t, %v", d.Short(), has, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		namer.Rest = func(context.Context) { cancel() }
		if _, err := j.Collect(ctx, namer); !errors.Is(err, context.Canceled) {
			t.Errorf("ended in a rest: %v", err)
		}
		if c := collect(t, j); c.Blobs != int64(len(put)) {
			t.Errorf("collected %+v, want what was put in rests", c)
		}
		runtime.KeepAlive(image)
		checkM5(t, j)
	})
}

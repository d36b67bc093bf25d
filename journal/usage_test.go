package journal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

func usage(t testing.TB, j *Journal) Usage {
	t.Helper()
	u, err := j.Usage(t.Context(), testNamer(j))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// counts leaves the bytes out.
func (a Amount) counts() Amount {
	return Amount{Records: a.Records, Blobs: a.Blobs, Images: a.Images, Pages: a.Pages}
}

func (c Collected) counts() Amount {
	return Amount{Records: c.Records, Blobs: c.Blobs, Images: c.Images, Pages: c.Pages}
}

// neededBy counts, in the plainest way, what a keeper needs.
func neededBy(t testing.TB, j *Journal, k *Keeper) Amount {
	t.Helper()
	upto := k.Session.Head.Seq
	if k.Pin != "" {
		pins, err := pinsOf(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pins {
			if p.String() == k.Pin {
				upto = p.At
			}
		}
	}
	blobs, images, pages := map[abi.Digest]bool{}, map[abi.Digest]bool{}, map[abi.Digest]bool{}
	if len(k.Session.Meta) > 0 {
		blobs[abi.Digest(k.Session.Meta)] = true
	}
	a := Amount{}
	for r, err := range j.Read(k.Session.UID, 1, upto) {
		if err != nil {
			t.Fatal(err)
		}
		a.Records++
		n, err := namedBy(r.Line)
		if err != nil {
			t.Fatal(err)
		}
		if !n.Blob.IsZero() {
			blobs[n.Blob] = true
		}
		if n.Image.IsZero() {
			continue
		}
		images[n.Image] = true
		m, err := readMem(j, n.Image)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range m.pages {
			if id != 0 {
				pages[hashPage(content(id))] = true
			}
		}
	}
	a.Blobs, a.Images, a.Pages = int64(len(blobs)), int64(len(images)), int64(len(pages))
	return a
}

// stored counts the rows that the store has, but for blobs.
func stored(t testing.TB, j *Journal) (a Amount) {
	t.Helper()
	view := j.view()
	defer view.Close()
	for e, err := range view.Scan(nil, []byte{0xff}, false) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Key[0] {
		case kindRecord:
			a.Records++
		case kindImage:
			a.Images++
		case kindPage:
			a.Pages++
		}
	}
	return a
}

// Usage says of each who needs something how much that is, and what goes with it:
// that is what Collect then takes away.
func TestUsage(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		random := rand.New(rand.NewPCG(5, 5))
		w := newWorld(j, "s", random.IntN)
		for range 12 {
			for range 40 {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
			collect(t, j)
			u := usage(t, j)
			if u.Garbage != (Amount{}) {
				t.Errorf("garbage after Collect: %+v", u.Garbage)
			}
			all := u.All.counts()
			all.Blobs = 0 // a large one has several rows
			if diff := cmp.Diff(stored(t, j), all); diff != "" {
				t.Errorf("all that is stored (-rows +usage):\n%s", diff)
			}
			if tree := u.All.TreeBytes; u.All.Images > 0 && (tree < u.All.Images || tree >= u.All.PageBytes) {
				t.Errorf("of the rows of %d images and %d pages, %d bytes, %d are around pages", u.All.Images, u.All.Pages, u.All.PageBytes, tree)
			}
			sessions := 0
			for _, k := range u.Keepers {
				if diff := cmp.Diff(neededBy(t, j, k), k.Total.counts()); diff != "" {
					t.Fatalf("what %s %s needs (-want +got):\n%s", k.Session.UID, k.Pin, diff)
				}
				if k.Pin == "" {
					sessions++
				}
			}
			if n := len(livesAs(t, j)); n != sessions {
				t.Errorf("%d sessions are told of, %d are there", sessions, n)
			}
			for _, r := range u.Deleted {
				if len(r.For) == 0 || r.Kept.Records > int64(r.Session.Kept) {
					t.Errorf("of session %s %+v are kept for %d others", r.Session.UID, r.Kept, len(r.For))
				}
			}
			if len(w.mine) == 0 {
				continue
			}
			uid := w.mine[0]
			own := Amount{}
			for _, k := range u.Keepers {
				if k.Pin == "" && k.Session.UID == uid {
					own = k.Own
				}
			}
			w.mine = w.mine[1:]
			delete(w.bases, uid)
			delete(w.mems, uid)
			remove(t, j, uid)
			if diff := cmp.Diff(own, usage(t, j).Garbage); diff != "" {
				t.Errorf("garbage once session %s was deleted (-own +garbage):\n%s", uid, diff)
			}
			c := collect(t, j)
			if diff := cmp.Diff(own.counts(), c.counts()); diff != "" {
				t.Errorf("of session %s (-own +collected):\n%s", uid, diff)
			}
			if c.Bytes < own.Bytes() {
				t.Errorf("session %s had %d bytes of its own, %d went", uid, own.Bytes(), c.Bytes)
			}
		}
	})
}

func TestUsage_Corrupt(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		extend(t, j, "s", 3)
		create(t, j, "whole", "p", "")
		extend(t, j, "whole", 2)
		b := new(Batch)
		b.Delete(recordKey("s", 2))
		if err := j.store.Commit(b); err != nil {
			t.Fatal(err)
		}
		u, err := j.Usage(t.Context(), testNamer(j))
		var damage *Unreadable
		if !errors.As(err, &damage) || !errors.Is(err, ErrCorrupt) || !slices.Equal(damage.Sessions, []abi.SessionID{"s"}) {
			t.Errorf("%v, want what cannot be read of s", err)
		}
		total := map[abi.SessionID]int64{}
		for _, k := range u.Keepers {
			total[k.Session.UID] = k.Total.Records
		}
		if diff := cmp.Diff(map[abi.SessionID]int64{"s": 1, "whole": 2}, total); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// gate is a Storage whose commits a test can hold, see and break.
type gate struct {
	Storage
	// before, if set, is called with each batch, and may refuse it.
	before func(b *Batch) error
	// after, if set, is called once the batch is durable.
	after func(b *Batch)
}

func (g *gate) Commit(b *Batch) error {
	if g.before != nil {
		if err := g.before(b); err != nil {
			return err
		}
	}
	err := g.Storage.Commit(b)
	if err == nil && g.after != nil {
		g.after(b)
	}
	return err
}

// keysOf counts the puts of a kind.
func keysOf(b *Batch, kind byte) (n int) {
	for _, e := range b.Puts {
		if e.Key[0] == kind {
			n++
		}
	}
	return n
}

// TestGroupCommit holds one commit until 64 sessions wait: theirs is one.
func TestGroupCommit(t *testing.T) {
	const sessions = 64
	g := &gate{Storage: newMemory()}
	j := journalOn(t, g)
	for i := range sessions + 1 {
		create(t, j, uidOf(i), "p", "")
	}
	held, release := make(chan bool), make(chan bool)
	var once sync.Once
	var sizes []int
	g.before = func(b *Batch) error {
		once.Do(func() { held <- true; <-release })
		sizes = append(sizes, keysOf(b, kindRecord))
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { extend(t, j, uidOf(sessions), 1) })
	<-held
	if j.Idle() {
		t.Error("idle during a commit")
	}
	for i := range sessions {
		wg.Go(func() { extend(t, j, uidOf(i), 1) })
	}
	for j.writer.waiting() < sessions {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if len(sizes) != 2 || sizes[0] != 1 || sizes[1] != sessions {
		t.Errorf("records in each commit: %v, want 1 and %d", sizes, sessions)
	}
	for !j.Idle() { // the writer looks for more before it rests
		time.Sleep(time.Millisecond)
	}
}

func uidOf(i int) abi.SessionID { return abi.SessionID(fmt.Sprintf("sess-%04d", i)) }

// TestConcurrentAppends lets 64 sessions append, and others read, list and fork,
// side by side.
func TestConcurrentAppends(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		const sessions, appends = 64, 8
		for i := range sessions {
			create(t, j, uidOf(i), "p", "")
		}
		var wg sync.WaitGroup
		for i := range sessions {
			wg.Go(func() {
				for range appends {
					extend(t, j, uidOf(i), 2)
				}
				fork(t, j, uidOf(i), appends, abi.SessionID(fmt.Sprintf("fork-%d", i)))
			})
		}
		wg.Go(func() {
			for range 5 {
				for i := range sessions {
					if _, _, err := j.Verify(context.Background(), uidOf(i), VerifyOptions{}); err != nil {
						t.Error(err)
					}
				}
				if _, err := j.List("p", "", 10); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		for i := range sessions {
			n, _, err := j.Verify(t.Context(), uidOf(i), VerifyOptions{Strict: true})
			if n != 2*appends || err != nil {
				t.Errorf("%s: %d records, %v", uidOf(i), n, err)
			}
			n, _, err = j.Verify(t.Context(), abi.SessionID(fmt.Sprintf("fork-%d", i)), VerifyOptions{Strict: true})
			if n != appends+1 || err != nil {
				t.Errorf("fork %d: %d records, %v", i, n, err)
			}
		}
	})
}

// TestI7_OneWriterWins races appends that extend the same head.
func TestI7_OneWriterWins(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		var wg sync.WaitGroup
		var won, lost atomic.Int32
		for range 32 {
			wg.Go(func() {
				_, err := j.Append(context.Background(), "s", Append{Events: [][]byte{event("mine")}})
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 31 {
			t.Errorf("%d won, %d lost", won.Load(), lost.Load())
		}
	})
}

// TestAcknowledgedMeansSynced looks, at the storage, for what is acknowledged
// without having been synced.
func TestAcknowledgedMeansSynced(t *testing.T) {
	store, err := openBadger(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !store.db.Opts().SyncWrites {
		t.Fatal("badger does not sync its writes")
	}
	var mu sync.Mutex
	synced := map[string]bool{}
	g := &gate{Storage: store, after: func(b *Batch) {
		time.Sleep(time.Millisecond) // an early acknowledgement would come now
		mu.Lock()
		defer mu.Unlock()
		for _, e := range b.Puts {
			synced[string(e.Key)] = true
		}
	}}
	j := journalOn(t, g)
	check := func(key []byte) {
		mu.Lock()
		defer mu.Unlock()
		if !synced[string(key)] {
			t.Errorf("acknowledged before it was synced: %q", key)
		}
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			create(t, j, uidOf(i), "p", "")
			check(metaKey(uidOf(i)))
			for range 10 {
				head := extend(t, j, uidOf(i), 1)
				check(recordKey(uidOf(i), head.Seq))
			}
			child := abi.SessionID(fmt.Sprintf("child-%d", i))
			fork(t, j, uidOf(i), 10, child)
			check(recordKey(child, 11))
		})
	}
	wg.Wait()
}

// TestPoisoned breaks one sync: that append fails, and every write after it,
// while reading goes on.
func TestPoisoned(t *testing.T) {
	cause := errors.New("input/output error")
	memory := newMemory()
	broken := false
	g := &gate{Storage: memory, before: func(*Batch) error {
		if broken {
			return cause
		}
		return nil
	}}
	j := journalOn(t, g)
	create(t, j, "s", "p", "")
	head := extend(t, j, "s", 1)
	broken = true
	a := Append{Head: head, Events: [][]byte{event("x")}}
	if _, err := j.Append(t.Context(), "s", a); !errors.Is(err, ErrPoisoned) || !errors.Is(err, cause) {
		t.Errorf("the append whose sync failed: %v", err)
	}
	broken = false
	if _, err := j.Append(t.Context(), "s", a); !errors.Is(err, ErrPoisoned) {
		t.Errorf("the append after: %v", err)
	}
	if _, err := j.PutBlob(t.Context(), []byte("x")); !errors.Is(err, ErrPoisoned) {
		t.Errorf("a blob after: %v", err)
	}
	if n, got, err := j.Verify(t.Context(), "s", VerifyOptions{}); n != 1 || got != head || err != nil {
		t.Errorf("reading: %d, %v, %v", n, got, err)
	}
	if _, err := journalOn(t, memory).Append(t.Context(), "s", a); err != nil {
		t.Errorf("after reopening: %v", err)
	}
}

// TestAnAppendFailsAlone has the store refuse every batch with one session's
// records: the others in the batch get theirs.
func TestAnAppendFailsAlone(t *testing.T) {
	for _, refusal := range []error{ErrFull, ErrTooLarge} {
		g := &gate{Storage: newMemory()}
		j := journalOn(t, g)
		for i := range 10 {
			create(t, j, uidOf(i), "p", "")
		}
		held, release := make(chan bool), make(chan bool)
		var once sync.Once
		g.before = func(b *Batch) error {
			once.Do(func() { held <- true; <-release })
			for _, e := range b.Puts {
				if string(e.Key) == string(recordKey(uidOf(5), 1)) {
					return refusal
				}
			}
			return nil
		}
		var wg sync.WaitGroup
		var failed [10]error
		appendTo := func(i int) {
			_, failed[i] = j.Append(context.Background(), uidOf(i), Append{Events: [][]byte{event("x")}})
		}
		wg.Go(func() { appendTo(0) })
		<-held
		for i := 1; i < 10; i++ {
			wg.Go(func() { appendTo(i) })
		}
		for j.writer.waiting() < 9 {
			time.Sleep(time.Millisecond)
		}
		close(release)
		wg.Wait()
		for i, err := range failed {
			want := error(nil)
			if i == 5 {
				want = refusal
			}
			if !errors.Is(err, want) {
				t.Errorf("session %d: %v, want %v", i, err, want)
			}
		}
		g.before = nil
		extend(t, j, uidOf(5), 1) // once there is room
	}
}

// TestContextBoundsTheWait cancels an append in the queue, which then is not
// written, and one that the writer has taken, which is.
func TestContextBoundsTheWait(t *testing.T) {
	g := &gate{Storage: newMemory()}
	j := journalOn(t, g)
	create(t, j, "taken", "p", "")
	create(t, j, "waits", "p", "")
	held, release := make(chan bool), make(chan bool)
	var once sync.Once
	g.before = func(*Batch) error {
		once.Do(func() { held <- true; <-release })
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	outcome := make(chan error)
	appendTo := func(uid abi.SessionID) error {
		_, err := j.Append(ctx, uid, Append{Events: [][]byte{event("x")}})
		return err
	}
	go func() { outcome <- appendTo("taken") }()
	<-held
	waits := make(chan error)
	go func() { waits <- appendTo("waits") }()
	for j.writer.waiting() < 1 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("in the queue: %v", err)
	}
	close(release)
	if err := <-outcome; err != nil {
		t.Errorf("taken by the writer: %v", err)
	}
	if err := appendTo("waits"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before: %v", err)
	}
	g.before = nil
	for uid, want := range map[abi.SessionID]abi.Seq{"taken": 1, "waits": 0} {
		if s, err := j.Session(uid); err != nil || s.Head.Seq != want {
			t.Errorf("%s: seq %d, %v, want %d", uid, s.Head.Seq, err, want)
		}
	}
}

// TestF1_AheadOfTheRecords counts the commits of appends with much that is named
// by its content.
func TestF1_AheadOfTheRecords(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		var head Head
		fill := byte(0)
		for _, tt := range []struct {
			mebibytes int
			commits   uint64
		}{{0, 1}, {1, 1}, {8, 1}, {12, 2}, {20, 3}} {
			var blobs [][]byte
			for range tt.mebibytes * 4 {
				fill++
				b := make([]byte, 256<<10)
				b[0], b[1] = fill, byte(tt.mebibytes)
				blobs = append(blobs, b)
			}
			before := j.Commits()
			records, err := j.Append(t.Context(), "s", Append{Head: head, Events: [][]byte{event("x")}, Blobs: blobs})
			if err != nil {
				t.Fatalf("%d MiB: %v", tt.mebibytes, err)
			}
			head = Head{Seq: records[0].Seq, Hash: records[0].Hash}
			if n := j.Commits() - before; n != tt.commits {
				t.Errorf("%d MiB: %d commits, want %d", tt.mebibytes, n, tt.commits)
			}
			for _, b := range blobs {
				if has, err := j.HasBlob(abi.DigestOf(b)); !has || err != nil {
					t.Fatalf("%d MiB: a blob is not there: %v", tt.mebibytes, err)
				}
			}
		}
	})
}

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/agentcell/agentcell/sdk/abi"
)

// job is one caller's atomic addition to the store.
type job struct {
	// ahead are content-addressed entries that must be durable with or before
	// what stage puts, and may be written again without harm.
	ahead []Entry
	// stage checks the job against the state that the batch so far leads to,
	// and puts its entries. An error refuses the job; stage then has put
	// nothing. It may run again if the batch failed.
	stage func(*stage) error
	// size bounds the size of what stage puts.
	size int
	// frees: the job makes room, or lets it be made.
	frees bool

	state jobState      // guarded by writer.mu
	done  chan struct{} // closed once err is final
	err   error
}

type jobState int

const (
	queued jobState = iota
	taken
	withdrawn
)

// writer is the one goroutine that changes the store (I7). It takes what all
// callers have queued, puts as much as fits into one batch, commits it with one
// sync, and answers each.
type writer struct {
	store  Storage
	limits Limits
	// commits counts those that succeeded.
	commits atomic.Uint64

	mu      sync.Mutex
	wake    sync.Cond // queue or closing changed
	queue   []*job
	busy    bool
	closing bool
	stopped chan struct{}

	// Of the goroutine alone:
	heads    map[abi.SessionID]Head // a cache
	poisoned error
	group    int // how many jobs it took last
}

// maxYields bounds how often the writer lets others run before it looks for jobs.
const maxYields = 16

// maxHeads bounds the cache of heads.
const maxHeads = 16 << 10

func newWriter(store Storage) *writer {
	w := &writer{
		store:   store,
		limits:  store.Limits(),
		stopped: make(chan struct{}),
		heads:   make(map[abi.SessionID]Head),
	}
	w.wake.L = &w.mu
	return w
}

// do hands jb to the writer and waits for the outcome. Once the writer has taken
// it, it is not taken back: ctx only ends the wait in the queue, so that an
// error of ctx means that nothing was written.
func (w *writer) do(ctx context.Context, jb *job) error {
	if jb.size > w.limits.Size {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, jb.size, w.limits.Size)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	jb.done = make(chan struct{})
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.queue = append(w.queue, jb)
	w.wake.Signal()
	w.mu.Unlock()

	select {
	case <-jb.done:
		return jb.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	if jb.state == queued {
		jb.state = withdrawn
		w.mu.Unlock()
		return ctx.Err()
	}
	w.mu.Unlock()
	<-jb.done
	return jb.err
}

// close stops the writer after the batch it is at. It reports whether this was
// the first call.
func (w *writer) close() bool {
	w.mu.Lock()
	first := !w.closing
	w.closing = true
	w.wake.Signal()
	w.mu.Unlock()
	<-w.stopped
	return first
}

func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) == 0 && !w.busy
}

// run writes until the writer is closed.
func (w *writer) run() {
	defer close(w.stopped)
	for {
		jobs, ok := w.next()
		if !ok {
			return
		}
		for len(jobs) > 0 {
			n := w.limits.fitting(jobs)
			w.write(jobs[:n])
			jobs = jobs[n:]
		}
	}
}

// next waits for jobs and takes them all. When the writer is closed it refuses
// them and reports false.
func (w *writer) next() ([]*job, bool) {
	// Those just answered often have more at once: let them queue it, or they
	// would form two groups that wait for one another.
	all := w.waiting() + w.group
	for range maxYields {
		runtime.Gosched()
		if w.waiting() >= all {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	for len(w.queue) == 0 && !w.closing {
		w.wake.Wait()
	}
	jobs := w.queue[:0:0]
	for _, jb := range w.queue {
		if jb.state == withdrawn {
			continue
		}
		jb.state = taken
		if w.closing {
			jb.finish(ErrClosed)
			continue
		}
		jobs = append(jobs, jb)
	}
	w.queue = nil
	w.busy = true
	w.group = len(jobs)
	return jobs, !w.closing
}

func (jb *job) finish(err error) {
	jb.err = err
	close(jb.done)
}

// fitting is how many of the first jobs fit into one batch, but at least one.
func (l Limits) fitting(jobs []*job) int {
	size, ahead := 0, 0
	for i, jb := range jobs {
		size += jb.size
		ahead += entriesSize(jb.ahead)
		if i > 0 && (size > l.Size || ahead > l.Ahead) {
			return i
		}
	}
	return len(jobs)
}

// write commits the jobs together and answers them. If the store refuses the
// batch, each is tried alone, so that a job fails only by itself.
func (w *writer) write(jobs []*job) {
	if w.poisoned != nil {
		for _, jb := range jobs {
			jb.finish(fmt.Errorf("%w: %w", ErrPoisoned, w.poisoned))
		}
		return
	}
	if len(jobs) == 1 {
		if err := w.writeAhead(jobs[0]); err != nil {
			jobs[0].finish(err)
			return
		}
	}
	st := newStage(w.store, w.heads)
	defer st.close()
	ready := make([]*job, 0, len(jobs))
	for _, jb := range jobs {
		if err := jb.stage(st); err != nil {
			jb.finish(err)
			continue
		}
		st.batch.PutAhead(jb.ahead...)
		st.batch.Frees = jb.frees && (len(ready) == 0 || st.batch.Frees)
		ready = append(ready, jb)
	}
	if len(ready) == 0 {
		return
	}
	st.close() // a store may want to be read by nobody when it is written
	err := w.commitBatch(st.batch)
	if refused(err) && len(ready) > 1 {
		for _, jb := range ready {
			w.write([]*job{jb})
		}
		return
	}
	if err == nil {
		w.remember(st)
	}
	for _, jb := range ready {
		jb.finish(err)
	}
}

// writeAhead commits the most of what goes ahead of jb, in batches of its own,
// if it does not fit into one batch with jb.
func (w *writer) writeAhead(jb *job) error {
	for entriesSize(jb.ahead) > w.limits.Ahead {
		n := prefix(jb.ahead, w.limits.Ahead)
		b := new(Batch)
		b.PutAhead(jb.ahead[:n]...)
		if err := w.commitBatch(b); err != nil {
			return err
		}
		jb.ahead = jb.ahead[n:]
	}
	return nil
}

// commitBatch commits b. After an error that leaves open what was written it
// poisons the writer.
func (w *writer) commitBatch(b *Batch) error {
	err := w.store.Commit(b)
	if err == nil {
		w.commits.Add(1)
		return nil
	}
	if refused(err) {
		return err
	}
	w.poisoned = err
	clear(w.heads)
	return fmt.Errorf("%w: %w", ErrPoisoned, err)
}

// refused reports whether err says that nothing was written.
func refused(err error) bool {
	for _, harmless := range []error{ErrConflict, ErrCorrupt, ErrTooLarge, ErrFull, ErrReadOnly} {
		if errors.Is(err, harmless) {
			return true
		}
	}
	return false
}

// remember keeps the heads that are now durable.
func (w *writer) remember(st *stage) {
	if len(w.heads)+len(st.heads) > maxHeads {
		clear(w.heads)
	}
	for uid := range st.gone {
		delete(w.heads, uid)
	}
	maps.Copy(w.heads, st.heads)
}

// stage is a batch in the making: the store's state, and what the batch adds.
type stage struct {
	batch *Batch
	store Storage
	view  View                   // opened when it is needed
	known map[abi.SessionID]Head // heads that are durable
	heads map[abi.SessionID]Head // heads of the batch
	added map[string]bool        // keys that the batch adds
	gone  map[abi.SessionID]bool // sessions that the batch deletes
	// accounts are those that the batch changes, as it leaves them; nil if none.
	accounts map[abi.SessionID]Account
}

func newStage(store Storage, known map[abi.SessionID]Head) *stage {
	return &stage{
		batch: new(Batch),
		store: store,
		known: known,
		heads: make(map[abi.SessionID]Head),
		added: make(map[string]bool),
		gone:  make(map[abi.SessionID]bool),
	}
}

func (st *stage) close() {
	if st.view != nil {
		st.view.Close()
		st.view = nil
	}
}

func (st *stage) get(key []byte) ([]byte, error) { return st.snapshot().Get(key) }

// snapshot is the state before the batch.
func (st *stage) snapshot() View {
	if st.view == nil {
		st.view = st.store.View()
	}
	return st.view
}

// head is the session's head after what the batch has so far. There is none of a
// deleted session.
func (st *stage) head(uid abi.SessionID) (Head, error) {
	if h, ok := st.heads[uid]; ok {
		return h, nil
	}
	if st.gone[uid] {
		return Head{}, errDeleted
	}
	if h, ok := st.known[uid]; ok {
		return h, nil
	}
	row, err := st.get(headKey(uid))
	if err != nil {
		return Head{}, err
	}
	if deleted, err := st.isDeleted(uid); deleted || err != nil {
		return Head{}, cmp.Or(err, errDeleted)
	}
	h, _, err := decodeHead(uid, row)
	return h, err
}

// setHead moves the session's head from one that head returned.
func (st *stage) setHead(uid abi.SessionID, from, to Head, summary []byte) {
	if _, ok := st.heads[uid]; !ok {
		st.batch.Require(headKey(uid), encodeHead(from, nil))
	}
	st.heads[uid] = to
	st.batch.Put(Entry{headKey(uid), encodeHead(to, summary)})
}

// absent reports whether key is neither in the store nor added by the batch.
func (st *stage) absent(key []byte) (bool, error) {
	if st.added[string(key)] {
		return false, nil
	}
	_, err := st.get(key)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	return false, err
}

// add puts an entry whose key was found absent.
func (st *stage) add(e Entry) {
	st.added[string(e.Key)] = true
	st.batch.Require(e.Key, nil)
	st.batch.Put(e)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// scaleOptions are the flags of agentbench scale.
type scaleOptions struct {
	suspended, warm, parallel  int
	million, json, bench, keep bool
	harness, data              string
	// settle is how long idle cells are waited for to be given back.
	settle time.Duration
}

const scaleUsage = `agentbench scale makes sessions of one parent, runs each for a turn and suspends it, and
measures at 1,000, 10,000 … of them what each takes beyond its records and pages (F11), and
how long it takes to list, get and resume. Then it runs some once more and lets them rest,
and measures their memory and their next turn (F12).

It needs about 15 KB of disk for each suspended session, in a directory of its own that it
removes again, and says on standard error how far it is.

Flags:
`

func scale(ctx context.Context, args []string, out, progress io.Writer) error {
	var o scaleOptions
	flags := flag.NewFlagSet("agentbench scale", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.IntVar(&o.suspended, "suspended", 100_000, "make `N` suspended sessions")
	flags.BoolVar(&o.million, "million", false, "make 1,000,000 of them")
	flags.IntVar(&o.warm, "warm", 10_000, "keep `N` of them warm, at rest")
	flags.IntVar(&o.parallel, "parallel", 64, "run `N` turns at once")
	flags.StringVar(&o.harness, "harness", "counter", "run the bundled harness `NAME`")
	flags.StringVar(&o.data, "data", "", "keep the store in a new directory in `DIR` (default: that of temporary files)")
	flags.BoolVar(&o.keep, "keep", false, "leave the directory there")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.BoolVar(&o.bench, "bench", false, "print lines such as go test's")
	flags.DurationVar(&o.settle, "settle", 15*time.Second, "wait so long for idle cells to go before memory is measured")
	flags.Usage = func() {
		fmt.Fprint(progress, scaleUsage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if o.million {
		o.suspended = 1_000_000
	}
	if flags.NArg() > 0 || o.suspended < 1 || o.warm < 0 || o.parallel < 1 {
		return usageError{errors.New("scale takes no arguments, and whole numbers above 0")}
	}
	report, err := runScale(ctx, o, &ticker{w: progress, begin: time.Now()})
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	if o.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	if o.bench {
		return report.benchmark(out)
	}
	return report.print(out)
}

// ticker tells how far things are, not too often.
type ticker struct {
	w           io.Writer
	mu          sync.Mutex
	begin, last time.Time
}

// tickEvery is how often it does.
const tickEvery = 5 * time.Second

func (t *ticker) say(format string, args ...any) {
	fmt.Fprintf(t.w, "%7s  %s\n", time.Since(t.begin).Round(time.Second), fmt.Sprintf(format, args...))
}

// tick says it unless something was said just now.
func (t *ticker) tick(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) >= tickEvery {
		t.last = time.Now()
		t.say(format, args...)
	}
}

// bench is one run of agentbench scale.
type bench struct {
	scaleOptions
	tick     *ticker
	store    string
	host     *edge.Host
	parent   abi.SessionID
	children []abi.SessionID
	random   *rand.Rand
}

func runScale(ctx context.Context, o scaleOptions, t *ticker) (_ *report, err error) {
	dir, err := os.MkdirTemp(o.data, "agentbench-")
	if err != nil {
		return nil, err
	}
	if o.keep {
		t.say("the store is kept in %s", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	b := &bench{
		scaleOptions: o, tick: t, store: filepath.Join(dir, "store"),
		random: rand.New(rand.NewPCG(1, 2)),
	}
	r := &report{Machine: machine(), Harness: o.harness, Parallel: o.parallel}
	if r.References, err = references(dir); err != nil {
		return nil, err
	}
	if _, err := b.open(); err != nil {
		return nil, err
	}
	defer func() {
		if b.host != nil {
			err = errors.Join(err, b.host.Close())
		}
	}()
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if r.Empty, err = b.memory(ctx); err != nil {
		return nil, err
	}
	for _, n := range sizes(o.suspended) {
		p, err := b.point(ctx, n, r.Empty)
		if err != nil {
			return nil, err
		}
		r.Suspended = append(r.Suspended, p)
	}
	r.extrapolate(1_000_000)
	if o.warm > 0 {
		if r.Warm, err = b.measureWarm(ctx, min(o.warm, len(b.children))); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// sizes are the numbers of sessions to measure at.
func sizes(most int) (list []int) {
	for n := 1000; n < most; n *= 10 {
		list = append(list, n)
	}
	return append(list, most)
}

// open opens the host and tells how long that takes. It keeps sessions warm until they
// are suspended: a few hot ones for a second, and as many as there may be at rest.
func (b *bench) open() (time.Duration, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return 0, err
	}
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		cache = dir
	} else {
		cache = filepath.Join(cache, "agentcell")
	}
	begin := time.Now()
	b.host, err = edge.Open(b.store, edge.Options{
		CacheDir: cache, Paused: true, Progress: func(text string) { b.tick.say("%s", text) },
		Warm: host.WarmLimits{For: time.Second, RestFor: 24 * time.Hour, RestCount: 1 << 30, RestBytes: 1 << 40},
	})
	return time.Since(begin), err
}

// reopen is what a host does that starts: it opens the store and looks for turns to
// recover.
func (b *bench) reopen(ctx context.Context) (open, look time.Duration, err error) {
	old := b.host
	b.host = nil
	if err := old.Close(); err != nil {
		return 0, 0, err
	}
	if open, err = b.open(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	err = b.host.Recover(ctx, host.RecoverRequest{})
	return open, time.Since(begin), err
}

// begin makes the parent, which has run a turn.
func (b *bench) begin(ctx context.Context) error {
	harness, err := edge.Bundled(b.harness)
	if err != nil {
		return err
	}
	parent, err := b.host.Create(ctx, host.CreateRequest{Harness: harness})
	if err != nil {
		return err
	}
	b.parent = parent.UID
	return b.turn(ctx, b.parent, 0)
}

// turn runs one turn of a session, whose input is a number.
func (b *bench) turn(ctx context.Context, uid abi.SessionID, n int) error {
	e, err := b.host.Exec(ctx, host.ExecRequest{Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, fmt.Sprint(n))}})
	if err == nil && e.State != abi.StateCompleted {
		err = fmt.Errorf("session %s: a turn ended %s, %s", uid, e.State, e.Reason)
	}
	return err
}

// grow makes children until there are n, runs each for a turn and suspends it.
func (b *bench) grow(ctx context.Context, n int) error {
	from, begin := len(b.children), time.Now()
	for len(b.children) < n {
		done := len(b.children)
		made, err := b.host.Fork(ctx, host.ForkRequest{Session: b.parent, Count: min(host.MaxForkCount, n-done)})
		if err != nil {
			return err
		}
		for _, s := range made {
			b.children = append(b.children, s.UID)
		}
		err = b.each(b.children[done:], func(i int, uid abi.SessionID) error {
			if err := b.turn(ctx, uid, done+i); err != nil {
				return err
			}
			_, err := b.host.Suspend(ctx, uid)
			return err
		})
		if err != nil {
			return err
		}
		done = len(b.children)
		b.tick.tick("%d of %d sessions forked, run and suspended, %.0f a second", done, b.suspended, float64(done-from)/time.Since(begin).Seconds())
	}
	return nil
}

// each does something with each session, several side by side, and returns what went
// wrong first.
func (b *bench) each(list []abi.SessionID, do func(i int, uid abi.SessionID) error) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		next   int
		failed error
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		i := next
		next++
		return i, i < len(list) && failed == nil
	}
	for range min(b.parallel, len(list)) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := do(i, list[i]); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// samples is how often an answer is timed at most.
const samples = 500

// some are random children.
func (b *bench) some(list []abi.SessionID) []abi.SessionID {
	chosen := make([]abi.SessionID, 0, samples)
	for _, i := range b.random.Perm(len(list))[:min(samples, len(list))] {
		chosen = append(chosen, list[i])
	}
	return chosen
}

// timed does something with each session, one after another.
func timed(list []abi.SessionID, do func(uid abi.SessionID) error) (latency, error) {
	took := make([]time.Duration, len(list))
	for i, uid := range list {
		begin := time.Now()
		if err := do(uid); err != nil {
			return latency{}, err
		}
		took[i] = time.Since(begin)
	}
	return newLatency(took), nil
}

// point measures with n suspended sessions.
func (b *bench) point(ctx context.Context, n int, empty memory) (p point, err error) {
	if err := b.grow(ctx, n); err != nil {
		return p, err
	}
	p.Sessions = n
	if p.Memory, err = b.memory(ctx); err != nil {
		return p, err
	}
	p.Memory = p.Memory.less(empty)
	b.tick.say("%d sessions: measuring", n)
	if p.Open, p.Look, err = b.reopen(ctx); err != nil {
		return p, err
	}
	if p.Opened, err = b.memory(ctx); err != nil {
		return p, err
	}
	p.Opened = p.Opened.less(empty)
	if p.Get, err = timed(b.some(b.children), func(uid abi.SessionID) error {
		_, err := b.host.Get(ctx, uid)
		return err
	}); err != nil {
		return p, err
	}
	if p.List, err = b.list(ctx); err != nil {
		return p, err
	}
	u, err := b.host.Usage(ctx)
	if err != nil {
		return p, err
	}
	p.stored(u.Disk, u.All)
	resumed := b.some(b.children)
	if p.Resume, err = timed(resumed, func(uid abi.SessionID) error { return b.turn(ctx, uid, n) }); err != nil {
		return p, err
	}
	b.tick.say("%d sessions: %.1f KiB each of files beyond records and pages, get %s, list %s, resume %s",
		n, float64(p.beyond())/float64(n)/1024, p.Get, p.List, p.Resume)
	return p, b.suspend(ctx, resumed)
}

func (b *bench) suspend(ctx context.Context, list []abi.SessionID) error {
	return b.each(list, func(_ int, uid abi.SessionID) error {
		_, err := b.host.Suspend(ctx, uid)
		return err
	})
}

// list times pages of the list, from the newest session on.
func (b *bench) list(ctx context.Context) (latency, error) {
	var took []time.Duration
	var req host.ListRequest
	for range samples {
		begin := time.Now()
		page, err := b.host.List(ctx, req)
		if err != nil {
			return latency{}, err
		}
		took = append(took, time.Since(begin))
		req.Token = page.Next
	}
	return newLatency(took), nil
}

// measureWarm runs n sessions for one more turn, lets them rest, and measures their
// memory and their next turn beside that of one that is hot and of one that is not
// in memory.
func (b *bench) measureWarm(ctx context.Context, n int) (*warm, error) {
	// The measurement's own garbage, and what the store keeps for writing, are there
	// before.
	if _, _, err := b.reopen(ctx); err != nil {
		return nil, err
	}
	w := &warm{Sessions: n}
	list := b.children[:n]
	sample := b.some(list)
	var err error
	if w.Cold, err = timed(sample, func(uid abi.SessionID) error { return b.turn(ctx, uid, 1) }); err != nil {
		return nil, err
	}
	if err := b.suspend(ctx, sample); err != nil {
		return nil, err
	}
	before, err := b.memory(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	err = b.each(list, func(i int, uid abi.SessionID) error {
		b.tick.tick("%d of %d sessions warm", i, n)
		return b.turn(ctx, uid, 2)
	})
	if err != nil {
		return nil, err
	}
	w.Made = time.Since(begin)
	after, err := b.memory(ctx)
	if err != nil {
		return nil, err
	}
	w.Memory = after.less(before)
	for _, uid := range list {
		if s, err := b.host.Get(ctx, uid); err != nil {
			return nil, err
		} else if s.Compute == host.ComputeWarm {
			w.Kept++
		}
	}
	if w.Rested, err = timed(sample, func(uid abi.SessionID) error { return b.turn(ctx, uid, 3) }); err != nil {
		return nil, err
	}
	one := slices.Repeat(list[:1], len(sample))
	w.Hot, err = timed(one, func(uid abi.SessionID) error { return b.turn(ctx, uid, 4) })
	return w, err
}

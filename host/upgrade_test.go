package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/journal/portable"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// How a counting cell saves its count, and takes it over with what load can notice
// of seed and clock.
const (
	savesCount = "i32.const 256 i32.const 4 call $reply drop i32.const 0"
	loadsCount = `i32.const 0 i32.const 0 call $start drop
		i32.const 256 i32.const 4 call $read i32.const 4 i32.ne if unreachable end
		i32.const 256 i32.load global.set 0
		i32.const 12288 i32.const 16 call $random_get drop
		i32.const 0 i64.const 1 i32.const 12304 call $clock_time_get drop
		i32.const 0`
)

// version is a build of a harness that counts in steps and can be upgraded.
func version(step int) host.Harness {
	return counting(fmt.Sprintf("count-by-%d", step), step, savesCount, loadsCount)
}

func (r *rig) upgrade(uid abi.SessionID, h host.Harness) host.Upgrade {
	r.t.Helper()
	up, err := r.Upgrade(r.t.Context(), host.UpgradeRequest{Session: uid, Harness: h})
	if err != nil {
		r.t.Fatal(err)
	}
	if !up.Done || up.Session.Module != abi.DigestOf(h.Code) || up.Session.Harness != h.Name || up.Session.Root != up.Root || up.Session.Closed != up.Session.Head.Seq {
		r.t.Errorf("upgraded %+v", up)
	}
	return up
}

// closedPoint is a point of a session: what a fork there counts next, and the module
// that it runs.
type closedPoint struct {
	at     abi.Seq
	counts string
	module abi.Digest
}

// upgradedTwice makes a session of three builds, with two turns of each.
func upgradedTwice(t *testing.T, r *rig) (host.Session, []closedPoint) {
	t.Helper()
	s := r.createFrom(version(1))
	var points []closedPoint
	count := 0
	for i, step := range []int{1, 10, 100} {
		h := version(step)
		if i > 0 {
			r.upgrade(s.UID, h)
		}
		for turn := range 3 {
			if i > 0 || turn > 0 {
				points = append(points, closedPoint{mustGet(t, r, s.UID).Head.Seq, fmt.Sprintf("%04d", count+step), abi.DigestOf(h.Code)})
			}
			if turn == 2 {
				break
			}
			count += step
			if got := r.counts(s.UID); got != fmt.Sprintf("%04d", count) {
				t.Errorf("build %d, turn %d: %s, want %d", i, turn, got, count)
			}
		}
	}
	return mustGet(t, r, s.UID), points
}

// M2: an upgraded session counts on, is proven over its upgrades, and is the same on
// both engines; at each of its points it is forked and saved with the module and
// the memory that it had there, also where only its head's image is.
func TestM2_Upgrade(t *testing.T) {
	transcripts := map[string][]string{}
	onBoth(t, func(t *testing.T, r *rig) {
		r.still = true
		r.open()
		s, _ := upgradedTwice(t, r)
		transcripts[t.Name()] = r.transcript(s.UID)
		if v := r.verify(s.UID); v.Reexecuted != 6 || v.Upgrades != 2 || v.Root != s.Root {
			t.Errorf("verified %+v", v)
		}
	})
	for _, lines := range transcripts {
		for _, other := range transcripts {
			if diff := cmp.Diff(lines, other); diff != "" {
				t.Errorf("the engines differ: %s", diff)
			}
		}
	}
	r := newRig(t).open()
	s, points := upgradedTwice(t, r)
	r.collect()
	for _, there := range []*rig{r, carry(t, r, s.UID)} {
		for _, p := range points {
			child := fork(t, there, host.ForkRequest{Session: s.UID, At: p.at})[0]
			if child.Module != p.module {
				t.Errorf("a fork at seq %d has module %s, want %s", p.at, child.Module.Short(), p.module.Short())
			}
			saved := save(t, there, host.SaveRequest{Session: s.UID, At: p.at, Name: fmt.Sprintf("at-%d", p.at)})
			if saved.Module != p.module {
				t.Errorf("a snapshot at seq %d has module %s, want %s", p.at, saved.Module.Short(), p.module.Short())
			}
			for _, uid := range []abi.SessionID{child.UID, fromSnapshot(t, there, saved.Name).UID} {
				if got := there.counts(uid); got != p.counts {
					t.Errorf("a session from seq %d counts %s, want %s", p.at, got, p.counts)
				}
				there.verify(uid)
			}
			carry(t, there, child.UID)
			// A fork goes its own way, to a build of its own.
			there.upgrade(child.UID, version(1000))
			want := "1" + p.counts[1:]
			if got := there.counts(child.UID); got != want {
				t.Errorf("upgraded, it counts %s, want %s", got, want)
			}
			there.verify(child.UID)
			carry(t, there, child.UID)
		}
		there.verify(s.UID)
		// What all of them stand on is named, and nothing else is missing.
		there.delete(s.UID)
		there.collect()
		for _, other := range list(t, there) {
			there.verify(other.UID)
			there.counts(other.UID)
		}
	}
}

// A fork inside a turn owns that turn, with the module that ran it.
func TestUpgradeAndForkInsideTurn(t *testing.T) {
	r := newRig(t).open()
	s := r.createFrom(version(1))
	r.counts(s.UID)
	inside := mustGet(t, r, s.UID).Head.Seq + 3 // MODEL_CALL of the next turn
	r.counts(s.UID)
	r.upgrade(s.UID, version(10))
	child := fork(t, r, host.ForkRequest{Session: s.UID, At: inside})[0]
	if child.State != host.ExecInterrupted || child.Harness != "count-by-1" {
		t.Fatalf("child %+v", child)
	}
	if got := r.resume(child.UID); !slices.Contains(got, "0002") {
		t.Errorf("put out %q", got)
	}
	r.verify(child.UID)
	if got := r.counts(s.UID); got != "0012" {
		t.Errorf("the parent counts %s", got)
	}
}

// speaker holds no memory and says a text.
func speaker(name, text string) host.Harness {
	return cell{
		stateless: true,
		texts:     []string{`{"messages":[{"role":"user","parts":[{"text":{"text":"what?"}}]}]}`, fmt.Sprintf(`{"parts":[{"text":{"text":%q}}]}`, text)},
		run:       "$json 0 call $model drop $json 1 call $output drop i32.const 0",
	}.harness(name)
}

// What holds no memory is run again under the new module first; what that does in
// another way is told, and refused unless it is accepted.
func TestUpgradeWithoutMemory(t *testing.T) {
	r := newRig(t).open()
	s := r.createFrom(speaker("one", "hello"))
	for range 3 {
		r.exec(s.UID, "go")
	}
	before := mustGet(t, r, s.UID)
	ask := func(h host.Harness, dry, force bool) (host.Upgrade, error) {
		return r.Upgrade(t.Context(), host.UpgradeRequest{Session: s.UID, Harness: h, DryRun: dry, Force: force})
	}
	untouched := func(what string) {
		t.Helper()
		if diff := cmp.Diff(before, mustGet(t, r, s.UID)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	other, same := speaker("other", "goodbye"), speaker("same", "hello")

	up, err := ask(same, true, false)
	if err != nil || up.Done || up.Turns != 3 || up.Divergence != nil || up.Root == before.Root {
		t.Errorf("dry run: %+v, %v", up, err)
	}
	up, err = ask(other, true, false)
	if err != nil || up.Done || up.Turns != 0 || !errors.Is(up.Divergence, host.ErrDivergence) || !strings.Contains(up.Divergence.Error(), "turn 1 ") {
		t.Errorf("dry run: %+v, %v", up, err)
	}
	if ok, err := r.store.HasBlob(abi.DigestOf(other.Code)); ok || err != nil {
		t.Errorf("a dry run has stored the module: %v", err)
	}
	untouched("dry runs")
	if _, err = ask(other, false, false); !errors.Is(err, host.ErrDivergence) {
		t.Errorf("an upgrade that diverges: %v", err)
	}
	untouched("an upgrade that diverges")

	r.upgrade(s.UID, same)
	r.exec(s.UID, "go")
	// The turns of the build before are no longer asked of the next one.
	if up, err = ask(other, false, true); err != nil || !up.Done || up.Divergence == nil || !strings.Contains(up.Divergence.Error(), "turn 4 ") {
		t.Errorf("an upgrade that diverges, accepted: %+v, %v", up, err)
	}
	if got := r.exec(s.UID, "go"); got[1] != "goodbye" {
		t.Errorf("put out %q", got)
	}
	up, err = ask(other, false, false)
	if err != nil || up.Done || up.Module != up.OldModule {
		t.Errorf("again: %+v, %v", up, err)
	}
	if v := r.verify(s.UID); v.Reexecuted != 5 || v.Upgrades != 2 {
		t.Errorf("verified %+v", v)
	}
	for _, p := range []struct {
		at   abi.Seq
		says string
	}{{before.Head.Seq, "hello"}, {before.Head.Seq + 1, "hello"}, {up.Session.Head.Seq, "goodbye"}} {
		child := fork(t, r, host.ForkRequest{Session: s.UID, At: p.at})[0]
		if got := r.exec(child.UID, "go"); got[1] != p.says {
			t.Errorf("a fork at seq %d puts out %q", p.at, got)
		}
		r.verify(child.UID)
		carry(t, r, child.UID)
	}
	carry(t, r, s.UID)
}

// What cannot be upgraded stays as it was, and says why.
func TestUpgradeRefusals(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["gate"] = g
	r.open()
	fresh := r.createFrom(version(1))
	ran := r.createFrom(version(1))
	r.counts(ran.UID)
	left := r.createFrom(version(1))
	r.counts(left.UID)
	r.drop(left.UID, "go", "committed")
	speaks := r.createFrom(speaker("one", "hello"))
	r.exec(speaks.UID, "go")
	stays := r.createFrom(tally())
	r.exec(stays.UID, "go")
	busy := r.createFrom(version(1))
	r.counts(busy.UID)
	runs := r.start(host.ExecRequest{Session: busy.UID, Inputs: say("go"), Model: "gate"})
	<-g.entered

	for _, test := range []struct {
		name string
		uid  abi.SessionID
		to   host.Harness
		is   error
		text string
	}{
		{"never run", fresh.UID, version(2), host.ErrConflict, "it has never run: make one with the new harness instead"},
		{"open", left.UID, version(2), host.ErrOpenTurn, "since seq 8: recover, cancel or abandon it first"},
		{"running", busy.UID, version(2), host.ErrBusy, "a turn is running"},
		{"unknown", "sess-0", version(2), host.ErrNotFound, ""},
		{"no module", ran.UID, host.Harness{Name: "text", Code: []byte("text")}, runtimes.ErrModule, ""},
		{"memory is lost", ran.UID, speaker("two", "hi"), host.ErrNotPortable, `"two" holds no memory and "count-by-1", which the session runs, does`},
		{"memory is new", speaks.UID, version(2), host.ErrNotPortable, `"count-by-2" holds memory and "one", which the session runs, does not`},
		{"no agent_save", stays.UID, version(2), host.ErrNotPortable, `"tally", which the session runs, cannot save what it remembers (the module does not export agent_save)`},
		{"no agent_load", ran.UID, counting("two", 2, savesCount, ""), host.ErrNotPortable, `"two" cannot load what the session remembers (the module does not export agent_load)`},
	} {
		before, err := r.store.Session(test.uid)
		if err != nil && test.is != host.ErrNotFound {
			t.Fatal(err)
		}
		for _, dry := range []bool{true, false} {
			_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: test.uid, Harness: test.to, DryRun: dry, Force: true})
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v; want %v, %q", test.name, err, test.is, test.text)
			}
		}
		if after, _ := r.store.Session(test.uid); test.name != "running" && !cmp.Equal(before, after) {
			t.Errorf("%s: %s", test.name, cmp.Diff(before, after))
		}
	}
	g.open <- struct{}{}
	if end := <-runs; end.err != nil || end.State != abi.StateCompleted {
		t.Errorf("the turn beside it: %+v", end)
	}
	r.resume(left.UID)
	r.upgrade(left.UID, version(2))
	r.upgrade(busy.UID, version(2))
}

// A parked turn is refused too, and a session at rest awakes.
func TestUpgradeParkedAndSuspended(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output before")
	r.park(s.UID, "wait go")
	_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: s.UID, Harness: version(1)})
	if !errors.Is(err, host.ErrOpenTurn) || !strings.Contains(err.Error(), "parked: settle what it waits for") {
		t.Errorf("parked: %v", err)
	}
	rests := r.createFrom(version(1))
	r.counts(rests.UID)
	if _, err := r.Suspend(t.Context(), rests.UID); err != nil {
		t.Fatal(err)
	}
	if up := r.upgrade(rests.UID, version(10)); up.Session.Suspended {
		t.Error("it is still suspended")
	}
	r.verify(rests.UID)
	carry(t, r, rests.UID)
}

// S3: whatever agent_save and agent_load do, the session stays as it was, the host
// lives, and others work.
func TestS3_HostileUpgrade(t *testing.T) {
	bodies := map[string]struct{ body, text string }{
		"loops":      {"loop br 0 end i32.const 0", "(fuel: "},
		"traps":      {"unreachable", "(trap: "},
		"exits":      {"i32.const 0 call $proc_exit i32.const 0", "(exit: "},
		"fails":      {"i32.const 7", "returned 7"},
		"bombs":      {"loop i32.const 16 memory.grow i32.const -1 i32.ne br_if 0 end unreachable", "(fuel: "},
		"asks":       {`$model i64.const 32 i64.shr_u i32.wrap_i64`, "returned 2"},
		"floods":     {"loop i32.const 0 i32.const 65536 call $log drop br 0 end i32.const 0", "(fuel: "},
		"a gigabyte": {"i32.const 16383 memory.grow drop i32.const 0 i32.const 1073741824 call $reply i64.const 32 i64.shr_u i32.wrap_i64", "returned "},
	}
	onBoth(t, func(t *testing.T, r *rig) {
		r.open()
		for name, test := range bodies {
			body := strings.ReplaceAll(test.body, "$model", "i32.const 0 i32.const 0 call $model")
			for _, saves := range []bool{true, false} {
				from, to, in := version(1), counting("bad", 2, savesCount, body), "agent_load"
				if saves {
					from, to, in = counting("bad", 1, body, loadsCount), version(2), "agent_save"
				}
				s := r.createFrom(from)
				r.counts(s.UID)
				before := mustGet(t, r, s.UID)
				_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: s.UID, Harness: to})
				if !errors.Is(err, host.ErrNotPortable) || !strings.Contains(err.Error(), in+" failed") || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%s in %s: %v", name, in, err)
				}
				after := mustGet(t, r, s.UID)
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("%s in %s: %s", name, in, diff)
				}
				if got := r.counts(s.UID); got != "0002" {
					t.Errorf("%s in %s: it counts %s", name, in, got)
				}
				r.verify(s.UID)
			}
		}
		stillHonest(r)
	})
}

// A host that dies at any step of an upgrade, and a disk that is full at any of its
// commits, leave the session as it was or wholly upgraded.
func TestUpgradeIsWhole(t *testing.T) {
	whole := func(t *testing.T, r *rig, uid abi.SessionID, done bool) {
		t.Helper()
		s, want := mustGet(t, r, uid), "0002"
		if done {
			want = "0011"
		}
		if got := s.Harness == "count-by-10"; got != done {
			t.Fatalf("it runs %s", s.Harness)
		}
		r.verify(uid)
		if got := r.counts(uid); got != want {
			t.Errorf("it counts %s, want %s", got, want)
		}
		if !done {
			r.upgrade(uid, version(10))
			r.counts(uid)
		}
		r.verify(uid)
		carry(t, r, uid)
	}
	for _, c := range []crash{
		{Phase: "upgrading", Point: "upgrading", Record: "END"},
		{Phase: "upgrading", Point: "upgraded", Record: "LIFECYCLE"},
	} {
		for _, kills := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/kill=%t", c.Point, kills), func(t *testing.T) {
				dir := t.TempDir() // removed after the rig has closed its store
				r := newRig(t)
				if kills {
					if err := r.store.Close(); err != nil {
						t.Fatal(err)
					}
					r.reopenDir(dir)
				}
				r.open()
				s := r.createFrom(version(1))
				r.counts(s.UID)
				if kills {
					c.Dir, c.Cache, c.Session = dir, compileCache(t), s.UID
					r.die(c)
				} else {
					r.drops(c, s.UID)
				}
				r.collect() // the module that nobody has got
				whole(t, r, s.UID, c.Point == "upgraded")
			})
		}
	}
	for n := range 3 {
		t.Run(fmt.Sprint("commit ", n), func(t *testing.T) {
			r := newRig(t)
			f := r.spoil()
			r.open()
			s := r.createFrom(version(1))
			r.counts(s.UID)
			letGo := f.failAt(n, journal.ErrFull)
			_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: s.UID, Harness: version(10)})
			letGo()
			// The module, then the record with the image.
			if done := n == 2; done != (err == nil) || !done && !errors.Is(err, journal.ErrFull) {
				t.Fatalf("commit %d: %v", n, err)
			}
			whole(t, r, s.UID, n == 2)
		})
	}
}

// A harness in Go, with a real heap, goes from one build to another and back; one
// that is not an sdk.Portable stays, and is told what it lacks.
func TestUpgradeInGo(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a big module")
	}
	first, second := harness(t, "counter"), built(t, "counter-again", "../harnesses/counter", "-w")
	r := newRig(t).open()
	s := r.createFrom(first)
	r.exec(s.UID, "3 4 3")
	r.upgrade(s.UID, second)
	if got := r.exec(s.UID, "3"); got[0] != "added 3, total 13" {
		t.Errorf("put out %q", got)
	}
	r.upgrade(s.UID, first)
	if got := r.exec(s.UID, "times 3"); got[0] != "3" {
		t.Errorf("put out %q", got)
	}
	if v := r.verify(s.UID); v.Reexecuted != 3 || v.Upgrades != 2 {
		t.Errorf("verified %+v", v)
	}
	carry(t, r, s.UID)

	stays := r.create("notebook")
	r.exec(stays.UID, "note milk")
	for _, test := range []struct {
		uid abi.SessionID
		to  host.Harness
	}{{stays.UID, first}, {s.UID, harness(t, "notebook")}} {
		_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: test.uid, Harness: test.to})
		if !errors.Is(err, host.ErrNotPortable) || !strings.Contains(err.Error(), "the harness is not an sdk.Portable") {
			t.Errorf("%v", err)
		}
	}
}

// I8: an upgrade that somebody made up is found by what it says, by a proof and,
// where no engine runs, by an import.
func TestI8_ForgedUpgrade(t *testing.T) {
	build := func(name string) host.Harness {
		return cell{
			run:  "i32.const 256 i32.const 256 i32.load i32.const 1 i32.add i32.store i32.const 0",
			save: savesCount, load: loadsCount,
		}.harness(name)
	}
	r := newRig(t).open()
	s := r.createFrom(build("one"))
	r.exec(s.UID, "go")
	r.upgrade(s.UID, build("two"))
	r.exec(s.UID, "go")
	r.upgrade(s.UID, build("three"))
	r.exec(s.UID, "go")
	s = mustGet(t, r, s.UID)
	other := abi.DigestOf([]byte("another"))
	for name, test := range map[string]struct {
		edit     func(*abi.Cell)
		summary  func(map[string]any)
		verifies error
		imports  bool
	}{
		"nothing":    {imports: true},
		"old module": {edit: func(c *abi.Cell) { c.OldModule = other }, verifies: host.ErrDivergence},
		"base root":  {edit: func(c *abi.Cell) { c.BaseRoot = other }, verifies: host.ErrDivergence},
		"since":      {edit: func(c *abi.Cell) { c.Since = 2 }, verifies: journal.ErrCorrupt},
		"state":      {edit: func(c *abi.Cell) { c.State = other }, verifies: host.ErrDivergence, imports: true},
		"seed":       {edit: func(c *abi.Cell) { c.Seed[0]++ }, verifies: host.ErrDivergence, imports: true},
		"fuel":       {edit: func(c *abi.Cell) { c.Limits.Fuel = 1 }, verifies: host.ErrDivergence, imports: true},
		"limits":     {edit: func(c *abi.Cell) { c.Limits = nil }, verifies: journal.ErrCorrupt, imports: true},
		"rewriter":   {edit: func(c *abi.Cell) { c.Rewriter++ }, verifies: host.ErrPlacement, imports: true},
		"turns":      {edit: func(c *abi.Cell) { c.Turn++ }},
		"another module in the summary": {
			summary: func(m map[string]any) { m["upgraded"].(map[string]any)["module"] = s.Module.String()[1:] + "0" }, verifies: journal.ErrCorrupt,
		},
		"no upgrade in the summary": {
			summary: func(m map[string]any) { delete(m, "upgraded") }, verifies: journal.ErrCorrupt,
		},
	} {
		t.Run(name, func(t *testing.T) {
			forged := newRig(t)
			if err := forged.store.Close(); err != nil {
				t.Fatal(err)
			}
			var seq, last abi.Seq // the newest upgrade alone is edited
			for _, rec := range r.records(s.UID) {
				if rec.Event.Kind == abi.EventLifecycle {
					last = rec.Seq
				}
			}
			forged.store = r.forge(s, s.UID, func(e *abi.Event) {
				if seq++; seq == last && test.edit != nil {
					test.edit(e.Cell)
				}
			}, func(m map[string]any) {
				if test.summary != nil {
					test.summary(m)
				}
			})
			forged.open()
			_, err := forged.Verify(t.Context(), host.VerifyRequest{Session: s.UID, Reexecute: true, Strict: true})
			if !errors.Is(err, test.verifies) {
				t.Errorf("verify: %v, want %v", err, test.verifies)
			}
			if test.summary != nil {
				return
			}
			var file bytes.Buffer
			if _, err := forged.Export(t.Context(), s.UID, &file); err != nil {
				t.Fatal(err)
			}
			_, err = newRig(t).open().Import(t.Context(), &file, host.ImportRequest{})
			if test.imports != (err == nil) || err != nil && !errors.Is(err, portable.ErrMixed) {
				t.Errorf("import: %v", err)
			}
		})
	}
}

// A runtime that cannot run a turn again shows nothing of a new module first, and
// upgrades all the same: what holds no memory has nothing to lose.
func TestUpgradeNatively(t *testing.T) {
	r := newRig(t)
	r.runtimes = []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{
		"one": func() sdk.Harness { return native{} }, "two": func() sdk.Harness { return native{} },
	})}
	r.open()
	s := r.createFrom(host.Harness{Name: "one", Code: []byte("one")})
	r.exec(s.UID, "go")
	if up := r.upgrade(s.UID, host.Harness{Name: "two", Code: []byte("two")}); up.Turns != 0 || up.Divergence != nil {
		t.Errorf("upgraded %+v", up)
	}
	r.exec(s.UID, "go")
	if v := r.verify(s.UID); v.ChainOnly != 2 || v.Upgrades != 1 {
		t.Errorf("verified %+v", v)
	}
	_, err := r.Upgrade(t.Context(), host.UpgradeRequest{Session: s.UID, Harness: host.Harness{Name: "three", Code: []byte("three")}})
	if !errors.Is(err, runtimes.ErrModule) {
		t.Errorf("a harness that is not there: %v", err)
	}
}

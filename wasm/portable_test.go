package wasm

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// mover counts its turns at 0. What it saves is that, the time and a random
// number; what it loads it keeps at 200, with a time and a random number behind it.
func mover() guest {
	observe := func(at int) string {
		p := itoa(at)
		return "i32.const 1 i64.const 0 i32.const " + p + " call $clock_time_get drop i32.const " + itoa(at+8) + " i32.const 8 call $random_get drop "
	}
	return guest{
		imports: []string{"agent.read", "agent.start", "agent.reply", moduleWASI + ".clock_time_get", moduleWASI + ".random_get"},
		run:     "i32.const 0 i32.const 0 i64.load i64.const 1 i64.add i64.store i32.const 0",
		module: wasmtest.Module{Funcs: []wasmtest.Func{
			{Export: exportSave, Type: "-> i32", Body: observe(8) + "i32.const 0 i32.const 24 call $reply" + wantStatus(abi.StatusOK) + "i32.const 0"},
			{Export: exportLoad, Type: "-> i32", Body: "i32.const 0 i32.const 0 call $start" + wantStatus(abi.StatusOK) +
				"i32.const 200 i32.const 100 call $read" + wantI32(24) + observe(224) + "i32.const 0"},
		}},
	}
}

// A state that is saved and loaded is a function of the modules, the image and the
// Turn (M2), and what loading leads to is an instance like any other.
func TestM2_SaveAndLoad(t *testing.T) {
	type result struct {
		State        []byte
		Saved, Loads Outcome
		Page         []byte
	}
	results := map[string]result{}
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, mover().bytes())
		old := instantiate(t, c)
		for range 3 {
			if out, err := old.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
		}
		turn := Turn{Seed: [32]byte{1}, Start: time.Unix(2_000_000_000, 0), Limits: abi.Limits{Fuel: 1_000_000}}
		state, saved, err := old.Save(t.Context(), turn)
		if err != nil || saved.Reason != abi.ReasonCompleted {
			t.Fatal(saved, err)
		}
		if old.Status() != Stopped {
			t.Error("an instance that has saved is not stopped")
		}
		if len(state) != 24 || le.Uint64(state) != 3 || le.Uint64(state[8:]) != 2_000_000_000_000_000_000 || le.Uint64(state[16:]) == 0 {
			t.Errorf("state %x", state)
		}
		in := instantiate(t, c)
		turn.Seed = [32]byte{2}
		loads, err := in.Load(t.Context(), turn, state)
		if err != nil || loads.Reason != abi.ReasonCompleted || loads.Fuel == 0 {
			t.Fatal(loads, err)
		}
		img, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]uint32{0}, img.Changed); diff != "" {
			t.Errorf("pages that differ from golden: %s", diff)
		}
		page := make([]byte, abi.PageSize)
		if err := img.Pages.ReadPage(0, page); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(page[200:224], state) || bytes.Equal(page[232:240], state[16:]) {
			t.Errorf("memory %x", page[200:240])
		}
		if out, err := in.Run(t.Context(), Turn{}, &world{}); err != nil || out.Reason != abi.ReasonCompleted {
			t.Error("a turn behind it:", out, err)
		}
		results[t.Name()] = result{state, saved, loads, page}
	})
	for _, r := range results {
		for _, other := range results {
			if diff := cmp.Diff(r, other); diff != "" {
				t.Errorf("the engines differ: %s", diff)
			}
		}
	}
}

// S1: who saves or loads reaches nobody, and each may do its own request alone,
// once.
func TestS1_SaveAndLoadReachNobody(t *testing.T) {
	refused := ""
	for _, op := range abi.Ops() {
		if op != abi.OpReply && op != abi.OpFail && op != abi.OpLog && op != abi.OpStart {
			refused += "i32.const 0 i32.const 2 call $" + string(op) + wantStatus(abi.StatusRefused)
		}
	}
	reply := "i32.const 0 i32.const 2 call $reply"
	start := "i32.const 0 i32.const 0 call $start"
	g := guest{run: "i32.const 0", imports: allOps(), module: wasmtest.Module{Funcs: []wasmtest.Func{
		{Export: exportSave, Type: "-> i32", Body: refused + start + wantStatus(abi.StatusRefused) +
			"i32.const 0 i32.const 2 call $log" + wantStatus(abi.StatusOK) + reply + wantStatus(abi.StatusOK) + reply + wantStatus(abi.StatusRefused) + "i32.const 0"},
		{Export: exportLoad, Type: "-> i32", Body: reply + wantStatus(abi.StatusRefused) + start + wantStatus(abi.StatusOK) + refused + "i32.const 0"},
	}}}
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, g.bytes())
		state, out, err := instantiate(t, c).Save(t.Context(), Turn{})
		if err != nil || out.Reason != abi.ReasonCompleted || !bytes.Equal(state, []byte{0, 0}) {
			t.Errorf("save: %q, %+v, %v", state, out, err)
		}
		if out, err := instantiate(t, c).Load(t.Context(), Turn{}, state); err != nil || out.Reason != abi.ReasonCompleted {
			t.Errorf("load: %+v, %v", out, err)
		}
	})
}

// How a module can fail to save or load.
func TestS2_SaveAndLoadFail(t *testing.T) {
	const told = `{"code":9,"description":"no such form"}`
	tells := "i32.const 100 i32.const " + itoa(len(told)) + " call $fail drop i32.const 1"
	huge := "i32.const 16383 memory.grow i32.const -1 i32.eq if unreachable end "
	for _, test := range []struct {
		name, save, load string // bodies, absent if empty
		reason           abi.EndReason
		code             abi.ErrorCode
		text             string
	}{
		{"not there", "", "", abi.ReasonError, abi.CodeUnimplemented, "does not export agent_"},
		{"an error", "i32.const 3", "i32.const 3", abi.ReasonError, abi.CodeUnknown, "returned 3"},
		{
			"an error that is told", tells, tells,
			abi.ReasonError, abi.CodeFailedPrecondition, "no such form",
		},
		{"no reply", "i32.const 0", "unreachable", "", 0, ""},
		{
			"a reply of 1 GB", huge + "i32.const 0 i32.const 1073741824 call $reply" + wantStatus(abi.StatusLimit) + "i32.const 1", "i32.const 1",
			abi.ReasonError, abi.CodeUnknown, "returned 1",
		},
	} {
		onEngines(t, func(t *testing.T, e *Engine) {
			g := guest{run: "i32.const 0", imports: []string{"agent.reply", "agent.fail"}, module: wasmtest.Module{
				Datas: []wasmtest.Data{{Offset: 100, Bytes: []byte(told)}},
			}}
			for export, body := range map[string]string{exportSave: test.save, exportLoad: test.load} {
				if body != "" {
					g.module.Funcs = append(g.module.Funcs, wasmtest.Func{Export: export, Type: "-> i32", Body: body})
				}
			}
			slices.SortFunc(g.module.Funcs, func(a, b wasmtest.Func) int { return strings.Compare(a.Export, b.Export) })
			c := loaded(t, e, g.bytes())
			turn := Turn{Limits: abi.Limits{MemoryBytes: 2 << 30, Fuel: 5_000_000_000}}
			state, saved, err := instantiate(t, c).Save(t.Context(), turn)
			if err != nil || state != nil {
				t.Fatalf("%s: %q, %v", test.name, state, err)
			}
			in := instantiate(t, c)
			loads, err := in.Load(t.Context(), turn, nil)
			if err != nil || in.Status() != Stopped {
				t.Fatalf("%s: %v, status %d", test.name, err, in.Status())
			}
			if test.name == "no reply" {
				if saved.Reason != abi.ReasonError || !strings.Contains(saved.Err.Description, "did not reply") {
					t.Errorf("%s: %+v", test.name, saved)
				}
				return
			}
			for _, out := range []Outcome{saved, loads} {
				if out.Reason != test.reason || out.Err.Code != test.code || !strings.Contains(out.Err.Description, test.text) {
					t.Errorf("%s: %+v, %+v", test.name, out, out.Err)
				}
			}
		})
	}
}

func TestSaveAndLoadGivenUp(t *testing.T) {
	onEngines(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, mover().bytes())
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		if _, _, err := instantiate(t, c).Save(ctx, Turn{}); !errors.Is(err, enough) {
			t.Errorf("save: %v", err)
		}
		in := instantiate(t, c)
		if _, err := in.Load(ctx, Turn{}, nil); !errors.Is(err, enough) || in.Status() != Stopped {
			t.Errorf("load: %v, status %d", err, in.Status())
		}
		if _, err := in.Load(t.Context(), Turn{}, nil); !errors.Is(err, ErrStopped) {
			t.Errorf("load again: %v", err)
		}
		in = instantiate(t, c)
		if _, err := in.Load(t.Context(), Turn{}, make([]byte, abi.MaxStateBytes+1)); err == nil || in.Status() != Stopped {
			t.Errorf("a state that is too large: %v", err)
		}
	})
}

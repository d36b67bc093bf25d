package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// The marker, as a number and as a text.
const (
	marker     = 0x5555555555555555
	markerText = "UUUUUUUU"
)

// stores is code that writes text, of a multiple of 8 bytes, to memory.
func stores(at int, text string) (code string) {
	for ; text != ""; text = text[8:] {
		code += fmt.Sprintf(" i32.const %d i64.const %#x i64.store ", at, le.Uint64([]byte(text)))
		at += 8
	}
	return code
}

// tenant does what its start says: 'f' fills all that a guest can write with the
// marker, and leaves an answer half read, a failure and a line without end; 'i'
// traps if it finds anything that is not golden.
func tenant() guest {
	const next = " local.get 0 i32.const 8 i32.add local.tee 0 i32.const 131072 i32.ne br_if 0 "
	return guest{
		imports: append(allOps(), moduleWASI+".fd_write", moduleWASI+".clock_time_get", moduleWASI+".random_get"),
		locals:  "i32 i32",
		module: wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 2, Export: "memory"}},
			Globals: []wasmtest.Global{
				{Type: "i32", Mutable: true, Init: "i32.const 1"},
				{Type: "i64", Mutable: true, Init: "i64.const 2"},
				{Type: "f32", Mutable: true, Init: "f32.const 3"},
				{Type: "f64", Mutable: true, Init: "f64.const 4"},
			},
		},
		run: `
			i32.const 0 i32.const 8 call $read` + wantI32(0) + `
			i32.const 0 i32.const 0 call $start drop
			i32.const 0 i32.const 1 call $read` + wantI32(1) + `
			i32.const 0 i32.load8_u local.set 1
			i32.const 0 i32.const 0 i32.store8
			local.get 1 i32.const 102 i32.eq
			if
				loop
					local.get 0 i64.const 0x5555555555555555 i64.store` + next + `
				end
				i32.const 0x55555555 global.set 0
				i64.const 0x5555555555555555 global.set 1
				i32.const 0x55555555 f32.reinterpret_i32 global.set 2
				i64.const 0x5555555555555555 f64.reinterpret_i64 global.set 3
				i32.const 0 i32.const 16 i32.store
				i32.const 4 i32.const 8 i32.store
				i32.const 1 i32.const 0 i32.const 1 i32.const 8 call $fd_write drop
				i32.const 0 i32.const 9 call $random_get drop
				` + stores(64, `{"description":"UUUUUUUU"}      `) + `
				i32.const 64 i32.const 32 call $fail drop
				i32.const 0 i32.const 0 call $model drop
				i32.const 0 i32.const 3 call $read drop
				i32.const 0 i64.const 0x5555555555555555 i64.store
				i32.const 16 i32.const 8 call $log drop
				i32.const 0 local.set 0
				loop
					local.get 0 i64.const 0x5555555555555555 i64.store` + next + `
				end
			else
				loop
					local.get 0 i64.load i64.const 0 i64.ne if unreachable end` + next + `
				end
				global.get 0 i32.const 1 i32.ne if unreachable end
				global.get 1 i64.const 2 i64.ne if unreachable end
				global.get 2 f32.const 3 f32.ne if unreachable end
				global.get 3 f64.const 4 f64.ne if unreachable end
			end
			i32.const 0`,
	}
}

// marked lists where in v the marker stands. What many cells share, and the engine's
// own, is left out.
func marked(v reflect.Value, path string) (found []string) {
	has := func(raw []byte) {
		if bytes.Contains(raw, []byte(markerText)) {
			found = append(found, path)
		}
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.Int() == marker || v.Int() == marker>>32 {
			found = append(found, path)
		}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		if v.Uint() == marker || v.Uint() == marker>>32 {
			found = append(found, path)
		}
	case reflect.String:
		has([]byte(v.String()))
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			raw := make([]byte, v.Len())
			for i := range raw {
				raw[i] = byte(v.Index(i).Uint())
			}
			has(raw)
			break
		}
		for i := range v.Len() {
			found = append(found, marked(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Pointer:
		shared := []reflect.Type{reflect.TypeFor[*Compiled](), reflect.TypeFor[*cell](), reflect.TypeFor[*flat](), reflect.TypeFor[*sync.Pool](), reflect.TypeFor[*strings.Builder]()}
		if !v.IsNil() && !slices.Contains(shared, v.Type()) {
			found = marked(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			found = append(found, marked(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
	}
	return found
}

// TestM3_NextTenantFindsNothing has a guest, and the host around it, put the marker
// wherever one tenant can leave something, and looks for it when the cell is in the
// pool and when it has its next tenant.
func TestM3_NextTenantFindsNothing(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		c := loaded(t, e, tenant().bytes())
		golden := memoryOf(t, c.Golden(), nil)
		for _, snapshot := range []bool{false, true, false, true} {
			first := instantiate(t, c)
			used := first.cell
			testFilled(t, first, snapshot, golden)
			first.Stop()

			if !slices.Contains(c.pool.idle, used) {
				t.Fatal("the cell is not in the pool; the test shows nothing")
			}
			if left := marked(reflect.ValueOf(used).Elem(), "cell"); left != nil {
				t.Errorf("the marker is left in %v", left)
			}
			if counters(used) != [3]uint64{} || !reflect.ValueOf(used.call).IsZero() {
				t.Errorf("left: fuel, depth and pages %v, call %+v", counters(used), used.call)
			}
			second := instantiate(t, c)
			if second.cell != used {
				t.Fatal("the cell was not used again; the test shows nothing")
			}
			img, err := second.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(memoryOf(t, img, golden), golden) || !bytes.Equal(used.mem.bytes(), golden) {
				t.Error("memory is left")
			}
			if diff := cmp.Diff(c.Golden().Globals, img.Globals); diff != "" || img.Clock != int64(goldenClock) {
				t.Errorf("clock %d, globals (-golden +next):\n%s", img.Clock, diff)
			}
			w := starting("i?")
			if out, err := second.Run(t.Context(), Turn{}, w); err != nil || out.Reason != abi.ReasonCompleted {
				t.Errorf("the next tenant: %v %v, %v", out.Reason, out.Err, err)
			}
			if diff := cmp.Diff([]string{"start "}, w.asked); diff != "" {
				t.Errorf("the next tenant asked (-want +got):\n%s", diff)
			}
			second.Stop()
			first.Stop() // must not reach the cell any more
		}
	})
}

// testFilled runs the first tenant and shows that the marker is where it is looked for.
func testFilled(t *testing.T, in *Instance, snapshot bool, golden []byte) {
	t.Helper()
	var found []string
	w := starting("f?")
	w.before = func(op abi.Op) {
		if op != abi.OpLog || found != nil {
			return
		}
		cell := in.cell
		for _, g := range []api.MutableGlobal{cell.fuel, cell.depth, cell.pages} {
			g.Set(marker)
		}
		found = marked(reflect.ValueOf(cell).Elem(), "cell")
	}
	turn := Turn{Start: time.Unix(0, marker), Limits: abi.Limits{Fuel: marker, Depth: marker >> 32}}
	copy(turn.Seed[:], bytes.Repeat([]byte(markerText), 4))
	out, err := in.Run(t.Context(), turn, w)
	if err != nil || out.Reason != abi.ReasonCompleted {
		t.Fatal(out, err)
	}
	want := []string{
		"cell.mem.whole", "cell.clock", "cell.call.limits.Depth", "cell.call.limits.Fuel", "cell.call.fuel.limit",
		"cell.call.random.preimage", "cell.call.pending", "cell.call.failure.Description", "cell.call.log.lines[0].buf",
	}
	slices.Sort(want)
	slices.Sort(found)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Fatalf("the marker is in other places than thought (-want +got):\n%s", diff)
	}
	for i, g := range in.cell.globals {
		if raw := binary.LittleEndian.AppendUint64(nil, g.Get()); !bytes.HasPrefix(raw, []byte("UUUU")) {
			t.Fatalf("global %d is %#x", i, g.Get())
		}
	}
	if snapshot {
		img, err := in.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(memoryOf(t, img, golden), bytes.Repeat([]byte(markerText), int(img.Size)/8)) {
			t.Fatal("the first tenant has not filled its memory")
		}
	}
}

func starting(text string) *world {
	return &world{answers: map[abi.Op]Response{abi.OpStart: {Body: []byte(text)}, abi.OpModel: {Body: []byte("..." + markerText)}}}
}

// counters are the engine's own globals.
func counters(c *cell) [3]uint64 { return [3]uint64{c.fuel.Get(), c.depth.Get(), c.pages.Get()} }

// A cell is used again only if its guest has simply returned, and one whose memory
// has grown only for an image as large.
func TestM3_WhichCellsAreUsedAgain(t *testing.T) {
	broken := errors.New("broken")
	asks := "i32.const 0 i32.const 0 call $start drop i32.const 0"
	for _, test := range []struct {
		name    string
		run     string
		turn    Turn
		handler *world
		cancel  bool // at the first request
		again   bool
	}{
		{name: "completed", run: "i32.const 0", again: true},
		{name: "failed", run: "i32.const 1"},
		{name: "trapped", run: "unreachable"},
		{name: "exited", run: "i32.const 0 call $proc_exit i32.const 0"},
		{name: "out of fuel", run: forever, turn: Turn{Limits: abi.Limits{Fuel: 1000}}},
		{name: "out of frames", run: "call $agent_run", turn: Turn{Limits: abi.Limits{Depth: 10}}},
		{name: "out of stack", run: "call $agent_run", turn: Turn{Limits: abi.Limits{Depth: 1 << 30}}},
		{name: "canceled", run: "i32.const 0 i32.const 0 call $start drop " + forever, cancel: true},
		{name: "handler failed", run: asks, handler: &world{err: map[abi.Op]error{abi.OpStart: broken}}},
		{name: "handler panicked", run: asks, handler: &world{before: func(abi.Op) { panic("oops") }}},
		{name: "grown", run: "i32.const 1 memory.grow drop i32.const 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			onMemories(t, func(t *testing.T, e *Engine) {
				g := guest{run: test.run, imports: []string{moduleWASI + ".proc_exit", "agent.start"}}
				c := loaded(t, e, g.bytes())
				for cell := c.pool.get(wasmPage); cell != nil; cell = c.pool.get(wasmPage) {
					cell.free()
				}
				in := instantiate(t, c)
				cell := in.cell
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h := test.handler
				switch {
				case test.cancel:
					h = &world{before: func(abi.Op) { cancel() }}
				case h == nil:
					h = &world{}
				}
				out, err := in.Run(ctx, test.turn, h)
				if done := err == nil && out.Reason == abi.ReasonCompleted; done != (test.again || test.name == "grown") {
					t.Fatalf("outcome %v, %v", out, err)
				}
				in.Stop()
				next := instantiate(t, c)
				if (next.cell == cell) != test.again {
					t.Errorf("used again: %v", !test.again)
				}
				if img, err := next.Snapshot(); err != nil || img.Size != wasmPage || len(img.Changed) != 0 {
					t.Errorf("the next one: %d bytes, pages %v, %v", img.Size, img.Changed, err)
				}
			})
		})
	}
}

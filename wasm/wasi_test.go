package wasm

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// All of preview 1 is there, by the right types: wazero's own implementation is
// the reference.
func TestWASISignatures(t *testing.T) {
	rt := wazero.NewRuntime(t.Context())
	defer rt.Close(t.Context())
	reference, err := wasi_snapshot_preview1.NewBuilder(rt).Compile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for name, f := range reference.ExportedFunctions() {
		want[name] = signature(f.ParamTypes(), f.ResultTypes())
	}
	got := map[string]string{}
	for _, f := range wasiFuncs() {
		got[f.name] = signature(f.params, f.results)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signatures (-wazero +ours):\n%s", diff)
	}
	if len(got) != 46 {
		t.Errorf("%d functions; preview 1 has 46", len(got))
	}
}

// TestWASIErrors calls functions with words that are in range.
func TestWASIErrors(t *testing.T) {
	for _, test := range []struct {
		call string // name and arguments
		want errno
	}{
		{"args_get 0 0", errnoSuccess},
		{"args_sizes_get 0 4", errnoSuccess},
		{"args_sizes_get 65533 0", errnoFault},
		{"environ_get 0 0", errnoSuccess},
		{"environ_sizes_get 0 65535", errnoFault},
		{"clock_res_get 0 8", errnoSuccess},
		{"clock_res_get 2 8", errnoNotsup},
		{"clock_res_get 1 65535", errnoFault},
		{"clock_time_get 0 0 8", errnoSuccess},
		{"clock_time_get 3 0 8", errnoNotsup},
		{"clock_time_get 0 0 65535", errnoFault},
		{"fd_close 1", errnoNotsup},
		{"fd_close 3", errnoBadf},
		{"fd_fdstat_get 0 8", errnoSuccess},
		{"fd_fdstat_get 3 8", errnoBadf},
		{"fd_fdstat_get 0 65530", errnoFault},
		{"fd_filestat_get 1 8", errnoSuccess},
		{"fd_filestat_get 9 8", errnoBadf},
		{"fd_prestat_get 3 8", errnoBadf},
		{"fd_prestat_dir_name 3 8 8", errnoBadf},
		{"fd_read 0 16 1 8", errnoSuccess},
		{"fd_read 0 16 2000 8", errnoInval},
		{"fd_read 0 65530 1 8", errnoFault},
		{"fd_read 0 24 1 8", errnoFault},
		{"fd_read 1 16 1 8", errnoBadf},
		{"fd_read 3 16 1 8", errnoBadf},
		{"fd_write 0 16 1 8", errnoBadf},
		{"fd_write 3 16 1 8", errnoBadf},
		{"fd_write 1 16 1 8", errnoSuccess},
		{"fd_write 1 16 1 65535", errnoFault},
		{"fd_write 1 24 1 8", errnoFault},
		{"fd_seek 1 0 0 8", errnoSpipe},
		{"fd_readdir 1 0 0 0 8", errnoNotdir},
		{"path_open 3 0 0 1 0 0 0 0 8", errnoBadf},
		{"path_open 1 0 0 1 0 0 0 0 8", errnoNotdir},
		{"path_unlink_file 3 0 1", errnoBadf},
		{"path_symlink 0 1 3 0 1", errnoBadf},
		{"poll_oneoff 64 256 0 8", errnoInval},
		{"poll_oneoff 64 256 1 8", errnoSuccess},
		{"poll_oneoff 64 256 5000 8", errnoInval},
		{"poll_oneoff 65500 256 1 8", errnoFault},
		{"poll_oneoff 64 65530 1 8", errnoFault},
		{"poll_oneoff 64 256 1 65535", errnoFault},
		{"poll_oneoff 112 256 1 8", errnoInval},
		{"proc_raise 9", errnoNosys},
		{"random_get 8 8", errnoSuccess},
		{"random_get 65535 8", errnoFault},
		{"sched_yield", errnoSuccess},
		{"sock_accept 3 0 8", errnoBadf},
		{"sock_recv 1 0 0 0 8 8", errnoNotsock},
		{"sock_send 3 0 0 0 8", errnoBadf},
		{"sock_shutdown 3 0", errnoBadf},
	} {
		name, args, _ := strings.Cut(test.call, " ")
		var f hostFunc
		for _, f = range wasiFuncs() {
			if f.name == name {
				break
			}
		}
		run := ""
		for i, arg := range strings.Fields(args) {
			typ := map[api.ValueType]string{api.ValueTypeI32: "i32", api.ValueTypeI64: "i64"}[f.params[i]]
			run += typ + ".const " + arg + " "
		}
		onEngines(t, func(t *testing.T, e *Engine) {
			g := guest{
				imports: []string{moduleWASI + "." + name},
				run:     run + "call $" + name,
				module: wasmtest.Module{Datas: []wasmtest.Data{
					{Offset: 16, Bytes: []byte("\x20\x00\x00\x00\x04\x00\x00\x00")}, // a vector, 4 bytes at 32
					{Offset: 24, Bytes: []byte("\x20\x00\x00\x00\xff\xff\xff\xff")}, // one that is too long
					{Offset: 112 + 8, Bytes: []byte{9}},                             // a subscription of no kind
				}},
			}
			out, err := runOnce(t, e, g, Turn{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := "0"
			if out.Err != nil {
				got = strings.TrimPrefix(out.Err.Description, "agent_run returned ")
			}
			if got != itoa(int(test.want)) {
				t.Errorf("%s: errno %s, want %d", test.call, got, test.want)
			}
		})
	}
}

func TestM2_ClockIsVirtual(t *testing.T) {
	read := func(id, at int) string {
		return " i32.const " + itoa(id) + " i64.const 0 i32.const " + itoa(at) + " call $clock_time_get if unreachable end "
	}
	begin := time.Unix(1_700_000_000, 0)
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, guest{
			imports: []string{moduleWASI + ".clock_time_get"},
			run:     read(0, 0) + read(1, 8) + read(0, 16) + "i32.const 0",
		}.bytes()))
		for turn := range int64(2) {
			if _, err := in.Run(t.Context(), Turn{Start: begin}, &world{}); err != nil {
				t.Fatal(err)
			}
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var p page
			if err := img.Pages.ReadPage(0, p[:]); err != nil {
				t.Fatal(err)
			}
			// The second turn begins where the first has ended, later than Start.
			first := begin.UnixNano() + turn*3*clockTick
			want := []int64{first, first + clockTick, first + 2*clockTick, first + 3*clockTick}
			got := []int64{int64(le.Uint64(p[0:])), int64(le.Uint64(p[8:])), int64(le.Uint64(p[16:])), img.Clock}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("turn %d (-want +got):\n%s", turn, diff)
			}
		}
	})
}

func TestPoll(t *testing.T) {
	const begin = int64(1_700_000_000_000_000_000)
	clockSub := func(userdata uint64, id uint32, timeout uint64, flags uint16) []byte {
		b := make([]byte, subscriptionSize)
		le.PutUint64(b, userdata)
		b[8] = eventClock
		le.PutUint32(b[16:], id)
		le.PutUint64(b[24:], timeout)
		le.PutUint16(b[40:], flags)
		return b
	}
	fdSub := func(userdata uint64, kind byte, fd uint32) []byte {
		b := make([]byte, subscriptionSize)
		le.PutUint64(b, userdata)
		b[8] = kind
		le.PutUint32(b[16:], fd)
		return b
	}
	type event struct {
		Userdata uint64
		Err      errno
		Kind     byte
	}
	for _, test := range []struct {
		name   string
		subs   [][]byte
		clock  int64
		events []event
	}{
		{"a time-out", [][]byte{clockSub(7, 1, 5000, 0)}, begin + 5000, []event{{7, 0, eventClock}}},
		{"a time-out in the past", [][]byte{clockSub(7, 0, 5, subclockAbsolute)}, begin, []event{{7, 0, eventClock}}},
		{"an absolute one", [][]byte{clockSub(7, 0, uint64(begin)+9, subclockAbsolute)}, begin + 9, []event{{7, 0, eventClock}}},
		{"the first of several", [][]byte{clockSub(1, 1, 900, 0), clockSub(2, 1, 100, 0), clockSub(3, 0, uint64(begin)+100, subclockAbsolute)}, begin + 100, []event{{2, 0, eventClock}, {3, 0, eventClock}}},
		{"for ever", [][]byte{clockSub(7, 1, math.MaxUint64, 0)}, math.MaxInt64, []event{{7, 0, eventClock}}},
		{"another clock", [][]byte{clockSub(7, 2, 900, 0)}, begin, []event{{7, errnoNotsup, eventClock}}},
		{"what is ready does not wait", [][]byte{clockSub(1, 1, 900, 0), fdSub(2, eventFdWrite, 1)}, begin, []event{{2, 0, eventFdWrite}}},
		{"no such descriptor", [][]byte{fdSub(2, eventFdRead, 5), clockSub(1, 1, 900, 0)}, begin, []event{{2, errnoBadf, eventFdRead}}},
	} {
		onEngines(t, func(t *testing.T, e *Engine) {
			data := []byte{}
			for _, s := range test.subs {
				data = append(data, s...)
			}
			// The events overwrite the subscriptions, as they may.
			c := loaded(t, e, guest{
				imports: []string{moduleWASI + ".poll_oneoff"},
				run:     "i32.const 64 i32.const 64 i32.const " + itoa(len(test.subs)) + " i32.const 8 call $poll_oneoff",
				module:  wasmtest.Module{Datas: []wasmtest.Data{{Offset: 64, Bytes: data}}},
			}.bytes())
			in := instantiate(t, c)
			out, err := in.Run(t.Context(), Turn{Start: time.Unix(0, begin)}, &world{})
			if err != nil || out.Reason != abi.ReasonCompleted {
				t.Fatal(out, err)
			}
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var p page
			if err := img.Pages.ReadPage(0, p[:]); err != nil {
				t.Fatal(err)
			}
			var got []event
			for i := range int(le.Uint32(p[8:])) {
				b := p[64+i*eventSize:]
				got = append(got, event{le.Uint64(b), errno(le.Uint16(b[8:])), b[10]})
			}
			if diff := cmp.Diff(test.events, got); diff != "" || img.Clock != test.clock {
				t.Errorf("%s: clock %+d, want %+d; events (-want +got):\n%s", test.name, img.Clock-begin, test.clock-begin, diff)
			}
		})
	}
}

// The stream is part of the ABI: anyone can compute it.
func TestM6_Random(t *testing.T) {
	var r random
	r.reset([32]byte{1, 2, 3})
	got := make([]byte, 40)
	r.fill(got[:5])
	r.fill(got[5:])
	const want = "d2665287f38946ed424fea06a50bb9dee1ddeef753159f372107c17f576c220dc1b858659e674094"
	if hex.EncodeToString(got) != want {
		t.Errorf("stream %x, want %s", got, want)
	}
	fill := guest{imports: []string{moduleWASI + ".random_get"}, run: "i32.const 0 i32.const 40 call $random_get"}
	onEngines(t, func(t *testing.T, e *Engine) {
		in := instantiate(t, loaded(t, e, fill.bytes()))
		seen := map[string]bool{}
		for turn := range 3 {
			seed := [32]byte{1, 2, 3, byte(turn)}
			if _, err := in.Run(t.Context(), Turn{Seed: seed}, &world{}); err != nil {
				t.Fatal(err)
			}
			img, err := in.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var p page
			if err := img.Pages.ReadPage(0, p[:]); err != nil {
				t.Fatal(err)
			}
			stream := hex.EncodeToString(p[:40])
			if turn == 0 && stream != want {
				t.Errorf("stream %s, want %s", stream, want)
			}
			if seen[stream] {
				t.Errorf("turn %d has the stream of another", turn)
			}
			seen[stream] = true
		}
	})
}

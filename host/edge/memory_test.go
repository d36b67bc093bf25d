package edge_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// waits is a model that answers when it is released.
type waits struct {
	called  chan struct{}
	release chan struct{}
}

func (w waits) Complete(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
	w.called <- struct{}{}
	select {
	case <-w.release:
		return model.Result{Message: abi.Text("", "ok")}, nil
	case <-ctx.Done():
		return model.Result{}, ctx.Err()
	}
}

// BenchmarkSession is what a session takes of its host's memory, by what it is
// doing: of the Go heap, and of all memory that is the process's own, which has the
// cells. The harness is the bundled counter, whose memory is saved, and for what
// runs or is parked one that asks the model or waits.
func BenchmarkSession(b *testing.B) {
	const sessions = 64
	asks := small("asks", `{"messages":[{"parts":[{"text":{"text":"x"}}]}]}`, "model", 1)
	for _, state := range []struct {
		name    string
		harness func(b *testing.B) host.Harness
		// reach brings a session that has run once to the state, in which it stays.
		reach func(b *testing.B, h *edge.Host, uid abi.SessionID)
	}{
		{"running", func(*testing.B) host.Harness { return asks }, nil},
		{"parked", func(*testing.B) host.Harness { return small("parks", `{"signal":"go"}`, "wait", 1) }, nil},
		{"warm", func(b *testing.B) host.Harness { return bundled(b, "counter") }, func(b *testing.B, h *edge.Host, uid abi.SessionID) {
			benchTurn(b, h, uid)
		}},
		{"idle", func(b *testing.B) host.Harness { return bundled(b, "counter") }, func(b *testing.B, h *edge.Host, uid abi.SessionID) {
			benchTurn(b, h, uid)
			if _, err := h.Suspend(context.Background(), uid); err != nil {
				b.Fatal(err)
			}
		}},
	} {
		b.Run(state.name, func(b *testing.B) {
			slow := waits{make(chan struct{}, 2*sessions), make(chan struct{})}
			h, err := edge.Open(b.TempDir(), edge.Options{
				CacheDir: testCache(b), Models: map[string]model.Provider{"slow": slow}, DefaultModel: "slow",
				Warm: host.WarmLimits{For: time.Hour, Count: 1 << 16, Bytes: 1 << 40}, MaxTurns: 1 << 20, Paused: true,
			})
			if err != nil {
				b.Fatal(err)
			}
			harness := state.harness(b)
			var turns sync.WaitGroup
			// more makes so many sessions more and brings them to the state.
			more := func(n int) {
				for range n {
					s, err := h.Create(context.Background(), host.CreateRequest{Harness: harness})
					if err != nil {
						b.Fatal(err)
					}
					if state.reach != nil {
						state.reach(b, h, s.UID)
						continue
					}
					exec := func() {
						_, _ = h.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: hello})
					}
					if state.name == "running" {
						turns.Go(exec)
						<-slow.called
					} else {
						exec()
					}
				}
			}
			more(sessions) // what is made once and for all is there then
			heap, whole := held(b)
			for b.Loop() {
				more(sessions)
			}
			heapNow, wholeNow := held(b)
			n := float64(b.N * sessions)
			b.ReportMetric(float64(heapNow-heap)/n/1024, "heap-KiB/session")
			b.ReportMetric(float64(wholeNow-whole)/n/1024, "whole-KiB/session")
			close(slow.release)
			turns.Wait()
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

// held is the live heap, and the memory that is the process's own.
func held(b *testing.B) (heap, whole int64) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), resident(b)
}

// BenchmarkRecovery is the memory that recovering a turn of 1,000 effects takes,
// whose results have so many KiB each: "peak" is how far the heap grows meanwhile,
// garbage included.
func BenchmarkRecovery(b *testing.B) {
	for _, kib := range []int{1, 64} {
		b.Run(fmt.Sprintf("effects=1000/KiB=%d", kib), func(b *testing.B) {
			dir, slow := b.TempDir(), waits{make(chan struct{}, 1), make(chan struct{})}
			open := func() *edge.Host {
				h, err := edge.Open(dir, edge.Options{
					CacheDir: testCache(b), Models: map[string]model.Provider{"slow": slow}, DefaultModel: "slow", Paused: true,
				})
				if err != nil {
					b.Fatal(err)
				}
				return h
			}
			// interrupt leaves a turn open whose last effect is a call of the model.
			interrupt := func() abi.SessionID {
				h := open()
				report := `{"id":"x","output":{"text":"` + strings.Repeat("x", kib<<10) + `"}}`
				s, err := h.Create(context.Background(), host.CreateRequest{Harness: small("reports", report, "report", 999)})
				if err != nil {
					b.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = h.Exec(context.Background(), host.ExecRequest{Session: s.UID, Inputs: hello})
				}()
				<-slow.called
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
				<-done
				return s.UID
			}
			var peak int64
			for b.Loop() {
				b.StopTimer()
				uid := interrupt()
				h := open()
				before, _ := held(b)
				stop := make(chan struct{})
				var sampler sync.WaitGroup
				sampler.Go(func() { peak = max(peak, highest(stop)-before) })
				b.StartTimer()
				recovered := make(chan host.Execution, 1)
				go func() {
					e, err := h.Resume(context.Background(), uid, nil)
					if err != nil {
						b.Error(err)
					}
					recovered <- e
				}()
				<-slow.called
				slow.release <- struct{}{}
				if e := <-recovered; e.State != abi.StateCompleted {
					b.Fatalf("%+v", e)
				}
				b.StopTimer()
				close(stop)
				sampler.Wait()
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		})
	}
}

// highest is the largest heap that is seen until stop is closed.
func highest(stop <-chan struct{}) (bytes int64) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		metrics.Read(heap)
		bytes = max(bytes, int64(heap[0].Value.Uint64()))
		select {
		case <-stop:
			return bytes
		case <-tick.C:
		}
	}
}

// small is a harness that makes one request n times, and then, if it was not that,
// asks the model.
func small(name, request, op string, n int) host.Harness {
	const at, ask = 1 << 16, `{"messages":[{"parts":[{"text":{"text":"x"}}]}]}`
	descriptor := fmt.Sprintf(`{"id":%q,"capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"}}`, name)
	call := func(from, n int, op string) string {
		return fmt.Sprintf("i32.const %d i32.const %d call $%s drop ", from, n, op)
	}
	run := call(0, 0, "start") + fmt.Sprintf("i32.const %d local.set 0 loop ", n) + call(at, len(request), op) +
		"local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end "
	if op == "report" {
		run += call(1024, len(ask), "model")
	}
	var imports []wasmtest.Import
	for _, op := range []string{"reply", "start", "model", "wait", "report"} {
		imports = append(imports, wasmtest.Import{Module: "agent", Name: op, Type: "i32 i32 -> i64"})
	}
	return host.Harness{Name: name, Code: wasmtest.Module{
		Imports: imports,
		Funcs: []wasmtest.Func{
			{Export: "agent_abi_v1"},
			{Export: "agent_describe", Type: "-> i32", Body: call(0, len(descriptor), "reply") + "i32.const 0"},
			{Export: "agent_run", Type: "-> i32", Locals: "i32", Body: run + "i32.const 0"},
		},
		Memories: []wasmtest.Memory{{Min: uint32(at+len(request))>>16 + 1, Export: "memory"}},
		Datas:    []wasmtest.Data{{Bytes: []byte(descriptor)}, {Offset: 1024, Bytes: []byte(ask)}, {Offset: at, Bytes: []byte(request)}},
	}.Bytes()}
}

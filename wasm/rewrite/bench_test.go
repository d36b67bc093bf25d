package rewrite_test

import (
	"testing"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

func BenchmarkRewrite(b *testing.B) {
	code := buildGo(b)
	b.SetBytes(int64(len(code)))
	b.ReportAllocs()
	var out int
	for b.Loop() {
		m, err := rewrite.Rewrite(code, rewrite.Options{Allowed: allowAll})
		if err != nil {
			b.Fatal(err)
		}
		out = len(m.Code)
	}
	b.ReportMetric(float64(out)/float64(len(code)), "size-ratio")
}

var tight = []wasmtest.Func{
	{Name: "add", Type: "i32 -> i32", Body: "local.get 0 i32.const 7 i32.add"},
	{Name: "fib", Type: "i32 -> i32", Body: `
		local.get 0 i32.const 2 i32.lt_u if i32 local.get 0 else
		local.get 0 i32.const 1 i32.sub call $fib local.get 0 i32.const 2 i32.sub call $fib i32.add end`},
}

var benchGuests = []struct{ name, body string }{
	{"count", `loop local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end`},
	{"sum", `loop
		local.get 1 local.get 0 i32.const 65532 i32.and i32.load i32.add local.set 1
		local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end`},
	{"calls", `loop
		local.get 0 call $add local.set 1
		local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end`},
	{"fib", `local.get 0 call $fib drop`},
	{"copies", `loop
		i32.const 0 i32.const 64 i32.const 16 memory.copy
		local.get 0 i32.const 1 i32.sub local.tee 0 br_if 0 end`},
}

package rewrite_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// What is kept under a revision must be what this code would make.
func TestRevision(t *testing.T) {
	sum := sha256.New()
	add := func(m wasmtest.Module) { sum.Write(mustRewrite(t, m.Bytes()).Code) }
	for _, g := range benchGuests {
		m := function("i32", "i32", g.body)
		m.Funcs = append(m.Funcs, tight...)
		add(m)
	}
	all := function("i32 f64", "i32", `
		block block block local.get 0 br_table 0 1 2 end end end
		local.get 0 i32.const 1 i32.and
		if i32.const 1 memory.grow drop else i32.const 0 i32.const 7 i32.const 70000 memory.fill end
		i32.const 0 local.get 1 f64.store
		local.get 1 f64.const 1 f64.copysign global.set 1
		global.get 0 local.get 0 i32.add global.set 0
		local.get 1 i64.reinterpret_f64 drop
		local.get 0 i32.eqz if unreachable end
		`+strings.Repeat("loop ", 40)+strings.Repeat("end ", 40)+`
		local.get 0 i32.const 1 i32.sub call $add`)
	all.Funcs = append(all.Funcs, tight...)
	all.Globals = []wasmtest.Global{{Type: "i32", Mutable: true, Init: "i32.const 3"}, {Type: "f64", Mutable: true, Init: "f64.const 0"}}
	all.Datas = []wasmtest.Data{{Bytes: []byte("ab")}, {Offset: 9, Bytes: []byte("cd")}, {Offset: 900, Bytes: []byte("ef")}}
	add(all)
	const known = "5 a5394d323706da0e"
	if got := fmt.Sprintf("%d %x", rewrite.Revision, sum.Sum(nil)[:8]); got != known {
		t.Errorf("the rewriting has changed from %q to %q: raise Revision, unless the modules of this test have changed, and then correct this", known, got)
	}
}

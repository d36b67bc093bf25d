package host_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// The guest of the import fuzzer: in every other turn it takes a program from its
// input into memory, and in the ones between it runs that program, which calls
// any import with any arguments, and this before start if it likes.
//
// A program is a list of instructions: an opcode, how often it is done, and eight
// bytes for each argument. Opcode 0 returns the byte behind it. What an
// instruction gives is mixed into a global, so that the root depends on it.
const (
	programAt = 1 << 16
	dataAt    = programAt + 16<<10
	programs  = 32 << 10 // room for the program and its data
	scratchAt = 4 << 16  // where a turn reads its start response
	guestSize = 7 << 16
)

// imported lists what the guest imports: name and parameters, i for i32 and I for
// i64. Those of agent give an i64, but for read; those of WASI an i32.
const imported = `agent.start ii agent.model ii agent.output ii agent.tool_call ii agent.report ii agent.usage ii agent.wait ii
agent.history ii agent.log ii agent.reply ii agent.fail ii agent.read ii
args_get ii args_sizes_get ii environ_get ii environ_sizes_get ii clock_res_get ii clock_time_get iIi
fd_advise iIIi fd_allocate iII fd_close i fd_datasync i fd_fdstat_get ii fd_fdstat_set_flags ii fd_fdstat_set_rights iII
fd_filestat_get ii fd_filestat_set_size iI fd_filestat_set_times iIIi fd_pread iiiIi fd_prestat_get ii fd_prestat_dir_name iii
fd_pwrite iiiIi fd_read iiii fd_readdir iiiIi fd_renumber ii fd_seek iIii fd_sync i fd_tell ii fd_write iiii
path_create_directory iii path_filestat_get iiiii path_filestat_set_times iiiiIIi path_link iiiiiii path_open iiiiiIIii
path_readlink iiiiii path_remove_directory iii path_rename iiiiii path_symlink iiiii path_unlink_file iii poll_oneoff iiii
proc_raise i random_get ii sched_yield - sock_accept iii sock_recv iiiiii sock_send iiiii sock_shutdown ii proc_exit i env.abort iiii`

// instruction is one of the guest's: its code finds its arguments at global $pc.
type instruction struct {
	name   string
	params string // of an import, one letter each
	code   string
}

// The guest's globals.
const (
	gLoaded = "0"
	gPC     = "1"
	gMixed  = "2"
)

const mix = " global.get " + gMixed + " i64.const 31 i64.mul i64.xor global.set " + gMixed + " "

// own are the instructions that are not imports.
var own = []instruction{
	{"grow", "i", arg("i", 0) + "memory.grow i64.extend_i32_s" + mix},
	{"fill", "iii", arg("i", 0) + arg("i", 1) + arg("i", 2) + "memory.fill "},
	{"copy", "iii", arg("i", 0) + arg("i", 1) + arg("i", 2) + "memory.copy "},
	{"store", "iI", arg("i", 0) + arg("I", 1) + "i64.store "},
	{"load", "i", arg("i", 0) + "i64.load" + mix},
	{"again", "i", "global.get " + gPC + " i32.const 8 i32.add global.set " + gPC + " call $interpret i64.extend_i32_s" + mix +
		"global.get " + gPC + " i32.const 8 i32.sub global.set " + gPC + " "},
	{"indirect", "i", arg("i", 0) + "call_indirect 0 i64.extend_i32_s" + mix},
	{"jump", "i", arg("i", 0) + fmt.Sprintf("i32.const 0x3fff i32.and i32.const %d i32.add global.set ", programAt) + gPC + " "},
	{"trap", "", "unreachable "},
	{"divide", "II", arg("I", 0) + arg("I", 1) + "i64.div_s" + mix},
}

// arg is argument n of the instruction at hand.
func arg(kind string, n int) string {
	if kind == "i" {
		return fmt.Sprintf("global.get %s i32.load offset=%d ", gPC, 8*n)
	}
	return fmt.Sprintf("global.get %s i64.load offset=%d ", gPC, 8*n)
}

// instructions are all of them; opcode n is the n-th, from 1.
func instructions() (list []instruction, imports []wasmtest.Import) {
	words := strings.Fields(imported)
	for i := 0; i < len(words); i += 2 {
		name, params := words[i], strings.Trim(words[i+1], "-")
		module, result := "wasi_snapshot_preview1", "i32"
		if m, n, ok := strings.Cut(name, "."); ok {
			if module, name = m, n; name != "read" {
				result = "i64"
			}
		}
		if name == "proc_exit" || name == "abort" {
			result = ""
		}
		typ, code := "", ""
		for n, p := range strings.Split(params, "") {
			typ += map[string]string{"i": "i32 ", "I": "i64 "}[p]
			code += arg(p, n)
		}
		code += "call $" + name
		switch result {
		case "i32":
			code += " i64.extend_i32_u" + mix
		case "i64":
			code += mix
		}
		imports = append(imports, wasmtest.Import{Module: module, Name: name, Type: wasmtest.Type(typ + "-> " + result)})
		list = append(list, instruction{name, params, code + " "})
	}
	return append(list, own...), imports
}

// importsGuest assembles the guest.
func importsGuest() host.Harness {
	list, imports := instructions()
	var dispatch strings.Builder
	for i, in := range list {
		fmt.Fprintf(&dispatch, `local.get 0 i32.const %d i32.eq if
			loop %s
				local.get 1 i32.const 1 i32.gt_s if local.get 1 i32.const 1 i32.sub local.set 1 br 1 end
			end
			global.get %s i32.const %d i32.add global.set %s br 1 end `, i+1, in.code, gPC, 8*len(in.params), gPC)
	}
	next := func(local int) string {
		return fmt.Sprintf("global.get %s i32.load8_u local.set %d global.get %s i32.const 1 i32.add global.set %s ", gPC, local, gPC, gPC)
	}
	interpret := "loop " + next(0) + next(1) + `local.get 0 i32.eqz if local.get 1 return end ` + dispatch.String() + `br 0 end unreachable`
	// Digits are the letters a to p, behind the first '#' of the start response.
	load := fmt.Sprintf(`
		i32.const 0 i32.const 0 call $start drop
		i32.const %[1]d i32.const %[2]d call $read i32.const %[1]d i32.add local.set 1
		i32.const %[1]d local.set 0
		block loop
			local.get 0 local.get 1 i32.ge_u br_if 1
			local.get 0 i32.load8_u i32.const 35 i32.eq br_if 1
			local.get 0 i32.const 1 i32.add local.set 0 br 0
		end end
		i32.const %[3]d local.set 2
		loop
			local.get 0 i32.load8_u offset=1 i32.const 97 i32.sub local.tee 3 i32.const 15 i32.le_u if
				local.get 2
				local.get 3 i32.const 4 i32.shl local.get 0 i32.load8_u offset=2 i32.const 97 i32.sub i32.add
				i32.store8
				local.get 2 i32.const 1 i32.add local.set 2
				local.get 0 i32.const 2 i32.add local.set 0
				br 1
			end
		end
		i32.const 1 global.set %[4]s i32.const 0`, scratchAt, 3<<16-8, programAt, gLoaded)
	run := fmt.Sprintf("i32.const %d global.set %s call $interpret ", programAt, gPC)
	descriptor := `{"id":"imports","capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT"}}`
	return host.Harness{Name: "imports", Code: wasmtest.Module{
		Types:   []wasmtest.Type{"-> i32"},
		Imports: imports,
		Funcs: []wasmtest.Func{
			{Export: "agent_abi_v1"},
			{Export: "agent_describe", Type: "-> i32", Body: fmt.Sprintf("i32.const 0 i32.const %d call $reply drop i32.const 0", len(descriptor))},
			{Export: "agent_run", Type: "-> i32", Locals: "i32 i32 i32 i32", Body: "global.get " + gLoaded + " i32.eqz if " + load + " return end " +
				"i32.const 0 global.set " + gLoaded + " " + run},
			{Export: "agent_cloned", Body: "global.get " + gLoaded + " if " + run + " drop end"},
			{Name: "interpret", Type: "-> i32", Locals: "i32 i32", Body: interpret},
		},
		Tables:   []wasmtest.Table{{Min: 3}},
		Elems:    []wasmtest.Elem{{Offset: 1, Funcs: []string{"interpret"}}},
		Memories: []wasmtest.Memory{{Min: guestSize >> 16, Export: "memory"}},
		Globals: []wasmtest.Global{
			{Type: "i32", Mutable: true, Init: "i32.const 0"},
			{Type: "i32", Mutable: true, Init: "i32.const 0"},
			{Type: "i64", Mutable: true, Init: "i64.const 0"},
		},
		Datas: []wasmtest.Data{{Bytes: []byte(descriptor)}},
	}.Bytes()}
}

// program puts a program for the guest together.
type program struct {
	list []instruction
	code []byte
	data []byte
}

// place puts bytes into the program's data and gives their address; false if
// there is no room.
func (p *program) place(b []byte) (at int, ok bool) {
	if len(p.data)+len(b) > programs-(dataAt-programAt) {
		return 0, false
	}
	at = dataAt + len(p.data)
	p.data = append(p.data, b...)
	return at, true
}

// do adds an instruction by its name.
func (p *program) do(name string, times byte, args ...uint64) {
	i := slices.IndexFunc(p.list, func(in instruction) bool { return in.name == name })
	p.op(i, times, args)
}

func (p *program) op(i int, times byte, args []uint64) {
	if len(p.code)+2+8*len(args) > dataAt-programAt-2 {
		return
	}
	p.code = append(p.code, byte(i+1), times)
	for _, a := range args {
		p.code = binary.LittleEndian.AppendUint64(p.code, a)
	}
}

// input is the text that takes the program to the guest, which then returns code.
func (p *program) input(code byte) string {
	whole := make([]byte, dataAt-programAt, programs)
	copy(whole, append(slices.Clone(p.code), 0, code))
	whole = append(whole, p.data...)
	text := make([]byte, 1, 1+2*len(whole))
	text[0] = '#'
	for _, b := range whole {
		text = append(text, 'a'+b>>4, 'a'+b&15)
	}
	return string(text)
}

package wasm

import "github.com/agentcell/agentcell/sdk/abi"

// errno is an error number of WASI preview 1.
type errno uint32

const (
	errnoSuccess errno = 0
	errnoBadf    errno = 8
	errnoFault   errno = 21
	errnoInval   errno = 28
	errnoNosys   errno = 52
	errnoNotdir  errno = 54
	errnoNotsock errno = 57
	errnoNotsup  errno = 58
	errnoSpipe   errno = 70
)

// wasiFuncs is WASI preview 1 as a cell has it: a clock and random numbers that
// are functions of the turn, three descriptors that behave like a terminal
// nobody types at, and nothing else. Nothing here has a state that is not in
// the image, so what would change a descriptor is refused.
func wasiFuncs() []hostFunc {
	table := []struct {
		name, params string
		call         func(c *call, args []uint64) errno
	}{
		{"args_get", "ii", noStrings},
		{"args_sizes_get", "ii", noStringSizes},
		{"environ_get", "ii", noStrings},
		{"environ_sizes_get", "ii", noStringSizes},
		{"clock_res_get", "ii", clockResGet},
		{"clock_time_get", "iIi", clockTimeGet},
		{"fd_advise", "iIIi", stdio(errnoSpipe)},
		{"fd_allocate", "iII", stdio(errnoNotsup)},
		{"fd_close", "i", stdio(errnoNotsup)},
		{"fd_datasync", "i", stdio(errnoInval)},
		{"fd_fdstat_get", "ii", fdFdstatGet},
		{"fd_fdstat_set_flags", "ii", stdio(errnoNotsup)},
		{"fd_fdstat_set_rights", "iII", stdio(errnoNotsup)},
		{"fd_filestat_get", "ii", fdFilestatGet},
		{"fd_filestat_set_size", "iI", stdio(errnoInval)},
		{"fd_filestat_set_times", "iIIi", stdio(errnoNotsup)},
		{"fd_pread", "iiiIi", stdio(errnoSpipe)},
		{"fd_prestat_get", "ii", always(errnoBadf)},
		{"fd_prestat_dir_name", "iii", always(errnoBadf)},
		{"fd_pwrite", "iiiIi", stdio(errnoSpipe)},
		{"fd_read", "iiii", fdRead},
		{"fd_readdir", "iiiIi", stdio(errnoNotdir)},
		{"fd_renumber", "ii", stdio(errnoNotsup)},
		{"fd_seek", "iIii", stdio(errnoSpipe)},
		{"fd_sync", "i", stdio(errnoInval)},
		{"fd_tell", "ii", stdio(errnoSpipe)},
		{"fd_write", "iiii", fdWrite},
		{"path_create_directory", "iii", stdio(errnoNotdir)},
		{"path_filestat_get", "iiiii", stdio(errnoNotdir)},
		{"path_filestat_set_times", "iiiiIIi", stdio(errnoNotdir)},
		{"path_link", "iiiiiii", stdio(errnoNotdir)},
		{"path_open", "iiiiiIIii", stdio(errnoNotdir)},
		{"path_readlink", "iiiiii", stdio(errnoNotdir)},
		{"path_remove_directory", "iii", stdio(errnoNotdir)},
		{"path_rename", "iiiiii", stdio(errnoNotdir)},
		{"path_symlink", "iiiii", always(errnoBadf)}, // the descriptor stands third
		{"path_unlink_file", "iii", stdio(errnoNotdir)},
		{"poll_oneoff", "iiii", pollOneoff},
		{"proc_raise", "i", always(errnoNosys)},
		{"random_get", "ii", randomGet},
		{"sched_yield", "", always(errnoSuccess)},
		{"sock_accept", "iii", stdio(errnoNotsock)},
		{"sock_recv", "iiiiii", stdio(errnoNotsock)},
		{"sock_send", "iiiii", stdio(errnoNotsock)},
		{"sock_shutdown", "ii", stdio(errnoNotsock)},
	}
	funcs := []hostFunc{{module: moduleWASI, name: "proc_exit", params: values("i"), call: procExit}}
	for _, f := range table {
		funcs = append(funcs, hostFunc{
			module: moduleWASI, name: f.name, params: values(f.params), results: values("i"),
			call: func(c *call, args []uint64) { args[0] = uint64(f.call(c, args)) },
		})
	}
	return funcs
}

// always answers e.
func always(e errno) func(*call, []uint64) errno {
	return func(*call, []uint64) errno { return e }
}

// stdio answers e for the descriptors 0 to 2; there are no others.
func stdio(e errno) func(*call, []uint64) errno {
	return func(_ *call, args []uint64) errno {
		if uint32(args[0]) > 2 {
			return errnoBadf
		}
		return e
	}
}

func noStrings(*call, []uint64) errno { return errnoSuccess }

func noStringSizes(c *call, args []uint64) errno {
	count, ok1 := c.cell.mem.view(uint32(args[0]), 4)
	size, ok2 := c.cell.mem.view(uint32(args[1]), 4)
	if !ok1 || !ok2 {
		return errnoFault
	}
	le.PutUint32(count, 0)
	le.PutUint32(size, 0)
	return errnoSuccess
}

// procExit ends the turn whatever the code is: the guest's stack is not empty,
// so there is no image to go on from.
func procExit(c *call, args []uint64) {
	c.leave(endedf(abi.ReasonExit, abi.CodeAborted, "the harness called proc_exit(%d)", uint32(args[0])))
}

// randomChunk is how much randomness is made between two looks at the context.
const randomChunk = 64 << 10

func randomGet(c *call, args []uint64) errno {
	buf, ok := c.cell.mem.view(uint32(args[0]), uint32(args[1]))
	if !ok {
		return errnoFault
	}
	for len(buf) > 0 {
		n := min(len(buf), randomChunk)
		c.charge(n * fuelPerRandomByte)
		c.random.fill(buf[:n])
		buf = buf[n:]
	}
	return errnoSuccess
}

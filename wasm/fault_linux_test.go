package wasm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// TestS3_ProcessOutOfResources has a process of its own for each test, which has no
// file or no address left.
func TestS3_ProcessOutOfResources(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, e *Engine){
		"files": outOfFiles, "files from the beginning": nil, "addresses": outOfAddresses,
	} {
		t.Run(name, func(t *testing.T) {
			const variable = "AGENTCELL_TEST_OUT_OF"
			switch os.Getenv(variable) {
			case name:
				if test == nil {
					outOfFilesAtFirst(t)
				} else {
					test(t, newEngine(t, Config{}))
				}
			case "":
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestS3_ProcessOutOfResources$", "-test.v")
				cmd.Env = append(os.Environ(), variable+"="+name)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
}

func setLimit(t *testing.T, resource int, to uint64) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: to, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(resource, &old); err != nil {
			t.Fatal(err)
		}
	}
}

// noFiles lets the process open no file.
func noFiles(t *testing.T) (lift func()) {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	next := f.Fd() // the lowest that is free
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lift = setLimit(t, unix.RLIMIT_NOFILE, uint64(next))
	if f, err := os.Open(os.DevNull); !errors.Is(err, unix.EMFILE) {
		t.Fatal(f, err)
	}
	return lift
}

func outOfFiles(t *testing.T, e *Engine) {
	before := loaded(t, e, bump(true))
	lift := noFiles(t)
	during := loaded(t, e, bump(false))
	completes(t, instantiate(t, before))
	completes(t, instantiate(t, before)) // a new cell
	completes(t, instantiate(t, during))
	img, _ := large(before, 600, 0)
	in := restore(t, before, img)
	completes(t, in)
	lift()
	if again := restore(t, before, img); e.Memory().Memory != MemoryCopy && (in.cell.flat != nil || again.cell.flat == nil) {
		t.Error("a large image is mapped without a file, or not when there are some")
	}
}

func outOfFilesAtFirst(t *testing.T) {
	t.Setenv("AGENTCELL_TEST_MEMORY", string(MemoryAuto))
	defer noFiles(t)()
	e := newEngine(t, Config{})
	if m := e.Memory(); m.Memory != MemoryCopy || m.Why == nil {
		t.Errorf("memory %+v", m)
	}
	c := loaded(t, e, bump(true))
	completes(t, instantiate(t, c))
	img, _ := large(c, 600, 0)
	completes(t, restore(t, c, img))
}

func outOfAddresses(t *testing.T, e *Engine) {
	if e.Memory().Memory == MemoryCopy {
		t.Skip("copies are of the Go heap")
	}
	const pages = 1024 // 64 MiB
	c := loaded(t, e, guest{
		run:    "i32.const 1 memory.grow i32.const -1 i32.eq",
		module: wasmtest.Module{Memories: []wasmtest.Memory{{Min: pages, Export: "memory"}}},
	}.bytes())
	var size, resident uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer setLimit(t, unix.RLIMIT_AS, size*uint64(os.Getpagesize())+2*reservation+(100<<20))()
	var all []*Instance
	for len(all) < 100 {
		in, err := c.Instantiate()
		if err != nil {
			if !errors.Is(err, ErrShortage) || !strings.Contains(err.Error(), "67108864 bytes") {
				t.Error(err)
			}
			break
		}
		all = append(all, in)
	}
	if len(all) < 3 || len(all) == 100 {
		t.Fatalf("%d cells", len(all))
	}
	// The last one has no more addresses than it needs, so it cannot grow.
	if out, err := all[len(all)-1].Run(t.Context(), Turn{}, &world{}); !errors.Is(err, ErrShortage) || out.Reason != "" {
		t.Errorf("outcome %v, %v", out, err)
	}
	completes(t, all[0]) // it has
	for _, in := range all {
		in.Stop()
	}
	completes(t, instantiate(t, c))
}

//go:build unix

package wasm

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// refusing has the kernel of e refuse calls while they are set to.
type refusing struct{ files, mappings, growth bool }

func refuse(t *testing.T, e *Engine) *refusing {
	t.Helper()
	m, ok := e.backend.(*mapping)
	if !ok {
		t.Skip("memories are not mapped")
	}
	r, sys := new(refusing), m.sys
	m.sys.file = func() (*os.File, error) {
		if r.files {
			return nil, unix.EMFILE
		}
		return sys.file()
	}
	m.sys.mmap = func(fd int, at unsafe.Pointer, size, prot, flags int) (unsafe.Pointer, error) {
		if r.mappings {
			return nil, unix.ENOMEM
		}
		return sys.mmap(fd, at, size, prot, flags)
	}
	m.sys.protect = func(b []byte, prot int) error {
		if r.growth {
			return unix.ENOMEM
		}
		return sys.protect(b, prot)
	}
	return r
}

// grows is a guest whose memory grows by so many pages, and not at all if it cannot.
func grows(pages string) []byte {
	return guest{
		run:    "i32.const " + pages + " memory.grow i32.const -1 i32.eq",
		module: wasmtest.Module{Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}}},
	}.bytes()
}

// What the kernel refuses, the host does without, or the turn is given up with
// ErrShortage: the guest is never told, and the next turn works.
func TestS3_KernelRefuses(t *testing.T) {
	onMemories(t, func(t *testing.T, e *Engine) {
		r := refuse(t, e)
		check := func(name string, test func(t *testing.T)) {
			t.Run(name, func(t *testing.T) {
				defer func() {
					*r = refusing{}
					completes(t, instantiate(t, loaded(t, e, grows("1"))))
				}()
				test(t)
			})
		}
		check("a file for the golden image", func(t *testing.T) {
			r.files = true
			c := loaded(t, e, bump(true))
			if c.memory.mapped() {
				t.Fatal("it has one")
			}
			completes(t, instantiate(t, c))
		})
		check("a file for a large image", func(t *testing.T) {
			c := loaded(t, e, bump(false))
			img, counter := large(c, 600, 0)
			r.files = true
			in := restore(t, c, img)
			if in.cell.flat != nil || !bytes.Equal(in.cell.mem.bytes(), counter.content) {
				t.Error("not copied")
			}
			completes(t, in)
			r.files = false
			if restore(t, c, img).cell.flat == nil {
				t.Error("it is not tried again")
			}
		})
		check("a mapping for a cell", func(t *testing.T) {
			c := loaded(t, e, grows("2"))
			instantiate(t, c) // the one that is idle
			r.mappings = true
			if _, err := c.Instantiate(); !errors.Is(err, ErrShortage) || !errors.Is(err, unix.ENOMEM) {
				t.Errorf("error %v", err)
			}
			r.mappings = false
			completes(t, instantiate(t, c))
		})
		check("a mapping for an image", func(t *testing.T) {
			c := loaded(t, e, bump(false))
			in := instantiate(t, c)
			img, counter := large(c, 600, 7)
			in.Stop()
			r.mappings = true
			if in = restore(t, c, img); in.cell.flat != nil || !bytes.Equal(in.cell.mem.bytes(), counter.content) {
				t.Error("not copied")
			}
			completes(t, in)
		})
		check("growth in place", func(t *testing.T) {
			in := instantiate(t, loaded(t, e, grows("1")))
			r.growth = true
			if out, err := in.Run(t.Context(), Turn{}, &world{}); !errors.Is(err, ErrShortage) || out.Reason != "" {
				t.Errorf("outcome %v, %v", out, err)
			}
		})
		check("growth elsewhere", func(t *testing.T) {
			in := instantiate(t, loaded(t, e, grows(itoa(reservation/wasmPage))))
			r.mappings = true
			turn := Turn{Limits: abi.Limits{MemoryBytes: 2 * reservation}}
			if out, err := in.Run(t.Context(), turn, &world{}); !errors.Is(err, ErrShortage) || out.Reason != "" {
				t.Errorf("outcome %v, %v", out, err)
			}
		})
		check("one mapping too many", func(t *testing.T) {
			m := e.backend.(*mapping)
			defer func(most int64) { m.most = most }(m.most)
			c := loaded(t, e, bump(true))
			instantiate(t, c)
			m.most = m.regions.Load()
			r.mappings = true // is not asked for
			in := instantiate(t, c)
			completes(t, in)
			if _, ok := in.cell.mem.region.(*copied); !ok {
				t.Error("it is mapped")
			}
			if img, err := in.Snapshot(); err != nil || len(img.Changed) != 2 {
				t.Errorf("changed: %v, %v", img.Changed, err)
			}
		})
	})
}

package wasm

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// bulkPages is a PagesReader that ends at the page that it cannot read.
type bulkPages struct {
	pagesOf
	bad int64
}

var errBadPage = errors.New("page 70 is damaged")

func (p bulkPages) ReadPage(index uint32, dst []byte) error {
	if int64(index) == p.bad {
		return errBadPage
	}
	return p.pagesOf.ReadPage(index, dst)
}

func (p bulkPages) ReadPages(list []uint32, use func(uint32, []byte) error) error {
	for _, i := range slices.Backward(list) {
		var content page
		if err := p.ReadPage(i, content[:]); err != nil {
			return err
		}
		if err := use(i, content[:]); err != nil {
			return err
		}
	}
	return nil
}

// TestReadPages reads pages of both kinds of readers: each comes once, and the
// first error ends it.
func TestReadPages(t *testing.T) {
	mem := make([]byte, 300*abi.PageSize)
	for i := range mem {
		mem[i] = byte(i>>12) ^ byte(i>>20)
	}
	var list []uint32
	for i := uint32(0); i < 300; i += 2 {
		list = append(list, i)
	}
	for name, reader := range map[string]func(bad int64) PageReader{
		"one by one": func(bad int64) PageReader { return struct{ PageReader }{bulkPages{mem, bad}} },
		"at once":    func(bad int64) PageReader { return bulkPages{mem, bad} },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []uint32
			note := func(i uint32, content []byte) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
				if !bytes.Equal(content, mem[int(i)*abi.PageSize:][:abi.PageSize]) {
					t.Errorf("page %d is another one", i)
				}
				return nil
			}
			if err := readPages(reader(-1), list, 4, note); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if diff := cmp.Diff(list, got); diff != "" {
				t.Error(diff)
			}
			err := readPages(reader(70), list, 4, note)
			if !errors.Is(err, errBadPage) || !strings.HasPrefix(err.Error(), "image: ") {
				t.Errorf("a damaged page: %v", err)
			}
			full := errors.New("full")
			if err := readPages(reader(-1), list, 4, func(uint32, []byte) error { return full }); !errors.Is(err, full) {
				t.Errorf("nowhere to put it: %v", err)
			}
		})
	}
}

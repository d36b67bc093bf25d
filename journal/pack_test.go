package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// TestPackPages: a page is packed where that saves a quarter of it, and comes out as
// it went in.
func TestPackPages(t *testing.T) {
	mixed := func(n int) []byte { // its first n bytes are noise
		page := make([]byte, abi.PageSize)
		copy(page, noise(1)[:n])
		return page
	}
	tests := []struct {
		name   string
		page   []byte
		packed bool
	}{
		{"a byte", append(make([]byte, abi.PageSize-1), 1), true},
		{"text", bytes.Repeat([]byte("all work and no play\n"), 200)[:abi.PageSize], true},
		{"half", mixed(abi.PageSize / 2), true},
		{"most", mixed(abi.PageSize * 7 / 8), false},
		{"noise", noise(2), false},
		{"like a packed one", append([]byte{packedTag}, noise(3)[1:]...), false},
	}
	var rows []Entry
	for _, tt := range tests {
		rows = append(rows, Entry{Value: tt.page})
	}
	if !packPages(rows) {
		t.Error("none was packed")
	}
	if packPages([]Entry{{Value: noise(4)}}) || packPages(nil) {
		t.Error("some were packed")
	}
	for i, tt := range tests {
		row := rows[i].Value
		if packed := len(row) < abi.PageSize; packed != tt.packed {
			t.Errorf("%s: a row of %d bytes", tt.name, len(row))
		}
		got, err := unpackPage(row, new([abi.PageSize]byte))
		if err != nil || !bytes.Equal(got, tt.page) {
			t.Errorf("%s: another page comes out, %v", tt.name, err)
		}
	}
}

// FuzzPageRow: any row of a page is refused, or is as long as it is, or a page.
func FuzzPageRow(f *testing.F) {
	row := []Entry{{Value: append(make([]byte, abi.PageSize-1), 1)}}
	packPages(row)
	f.Add(row[0].Value)
	f.Add(row[0].Value[:len(row[0].Value)-1])
	f.Add([]byte{packedTag, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(noise(1))
	f.Fuzz(func(t *testing.T, row []byte) {
		before := slices.Clone(row)
		page, err := unpackPage(row, new([abi.PageSize]byte))
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt):
			t.Fatal(err)
		case err == nil && len(page) != abi.PageSize && !bytes.Equal(page, row):
			t.Fatalf("a page of %d bytes", len(page))
		case !bytes.Equal(before, row):
			t.Fatal("the row was changed")
		}
	})
}

// TestFormat_PackedPages: an older store becomes one of this version with the first
// page that is packed, and its own pages stay readable.
func TestFormat_PackedPages(t *testing.T) {
	store := newMemory()
	j := journalOn(t, keepOpen{store})
	page := noise(1)
	spec := ImageSpec{Size: 2 * abi.PageSize, Changed: []uint32{0}, Read: func(_ uint32, dst []byte) error { copy(dst, page); return nil }}
	old := newImage(t, j, nil, spec)
	saveImage(t, j, old)
	b := new(Batch)
	b.Put(Entry{[]byte{kindFormat}, binary.BigEndian.AppendUint32(nil, 3)})
	if err := store.Commit(b); err != nil {
		t.Fatal(err)
	}

	j = journalOn(t, keepOpen{store})
	version := func() uint32 {
		row, err := j.get([]byte{kindFormat})
		if err != nil {
			t.Fatal(err)
		}
		return binary.BigEndian.Uint32(row)
	}
	old, err := j.LoadImage(old.Root())
	if err != nil {
		t.Fatal(err)
	}
	page = noise(2)
	spec.Changed = []uint32{1}
	saveImage(t, j, newImage(t, j, old, spec))
	if v := version(); v != 3 {
		t.Errorf("version %d after a page that is not packed, want 3", v)
	}
	page = content(1)
	im := newImage(t, j, old, spec)
	rows, err := j.unsaved(im)
	if err != nil {
		t.Fatal(err)
	}
	var kinds strings.Builder
	for _, e := range rows {
		kinds.WriteByte(e.Key[0])
	}
	if diff := cmp.Diff("Fpti", kinds.String()); diff != "" {
		t.Errorf("rows in their order: %s", diff)
	}
	saveImage(t, j, im)
	if v := version(); v != formatVersion {
		t.Errorf("version %d after a packed page, want %d", v, formatVersion)
	}
	if err := errors.Join(readAll(j, old.Root()), readAll(j, im.Root())); err != nil {
		t.Error(err)
	}
}

package rewrite_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/wasm/rewrite"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// The module begins with the same memory, or fails to, whatever its segments are:
// over each other, out of order, beyond the memory, by a name that an
// instruction has.
func TestMergedSegmentsFillTheSameMemory(t *testing.T) {
	e := newEngines(t)[0]
	const size = 64 << 10
	begin := func(code []byte) []byte {
		g, err := e.instantiate(code)
		if err != nil {
			return nil
		}
		defer g.close()
		memory, _ := g.Memory().Read(0, size)
		return bytes.Clone(memory)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := wasmtest.Module{
			Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}},
		}
		offset := rapid.IntRange(0, 2000).Draw(t, "first")
		for range rapid.IntRange(0, 90).Draw(t, "segments") {
			switch rapid.IntRange(0, 99).Draw(t, "jump") {
			case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
				offset = rapid.IntRange(0, 3000).Draw(t, "offset")
			case 10:
				offset = rapid.SampledFrom([]int{size - 3, size - 1, size, -1}).Draw(t, "edge")
			}
			content := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "content")
			passive := rapid.IntRange(0, 500).Draw(t, "passive") == 0
			m.Datas = append(m.Datas, wasmtest.Data{Offset: int32(offset), Bytes: content, Passive: passive})
			offset += len(content) + rapid.IntRange(0, 80).Draw(t, "gap")
		}
		code := m.Bytes()
		rewritten, err := rewrite.Rewrite(code, rewrite.Options{Allowed: allowAll})
		if err != nil {
			t.Fatal(err)
		}
		if want, got := begin(code), begin(rewritten.Code); !bytes.Equal(want, got) {
			t.Fatalf("memory differs; the original's began: %v", want != nil)
		}
	})
}

func TestWhichSegmentsAreMerged(t *testing.T) {
	abc := []byte("abc")
	at := func(offsets ...int32) (list []wasmtest.Data) {
		for _, o := range offsets {
			list = append(list, wasmtest.Data{Offset: o, Bytes: abc})
		}
		return list
	}
	for _, test := range []struct {
		name  string
		datas []wasmtest.Data
		want  int
	}{
		{"side by side", at(0, 3, 6), 1},
		{"near", at(0, 10, 30), 1},
		{"far", at(0, 68), 2},
		{"back", at(500, 503, 0, 10), 2},
		{"over what was written", at(30, 0, 40), 3},
		{"up to what was written", at(30, 0, 20, 23), 2},
		{"with one that has a name", append(at(0, 3), wasmtest.Data{Bytes: abc, Passive: true}), 3},
		{"zeros for a small module only", at(0, 60, 120, 180, 240, 300, 360, 420, 480, 540), 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			code := wasmtest.Module{
				Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}}, Datas: test.datas,
			}.Bytes()
			if diff := cmp.Diff(test.want, segments(mustRewrite(t, code).Code)); diff != "" {
				t.Errorf("segments (-want +got):\n%s", diff)
			}
		})
	}
}

// segments counts the data segments of a module.
func segments(code []byte) int {
	number := func(b []byte) (int, []byte) {
		n, size := binary.Uvarint(b) // unsigned LEB128
		return int(n), b[size:]
	}
	for code = code[8:]; len(code) > 0; {
		id := code[0]
		size, rest := number(code[1:])
		if id == 11 {
			count, _ := number(rest)
			return count
		}
		code = rest[size:]
	}
	return 0
}

// What TakeData takes out and what it leaves come to the same memory, and
// instructions find the segments that they name.
func TestTakeData(t *testing.T) {
	e := newEngines(t)[0]
	const size = 64 << 10
	rapid.Check(t, func(t *rapid.T) {
		m := wasmtest.Module{Memories: []wasmtest.Memory{{Min: 1, Export: "memory"}}}
		named := rapid.Bool().Draw(t, "named")
		for range rapid.IntRange(0, 20).Draw(t, "segments") {
			m.Datas = append(m.Datas, wasmtest.Data{
				Offset:  int32(rapid.IntRange(0, 500).Draw(t, "offset")),
				Bytes:   rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "content"),
				Passive: named && rapid.IntRange(0, 2).Draw(t, "passive") == 0,
			})
		}
		rewritten, err := rewrite.Rewrite(m.Bytes(), rewrite.Options{Allowed: allowAll})
		if err != nil {
			t.Fatal(err)
		}
		rest, data, err := rewrite.TakeData(rewritten.Code)
		if err != nil {
			t.Fatal(err)
		}
		begin := func(code []byte, data []rewrite.Segment) []byte {
			g, err := e.instantiate(code)
			if err != nil {
				t.Fatal(err)
			}
			defer g.close()
			memory, _ := g.Memory().Read(0, size)
			for _, s := range data {
				copy(memory[s.Offset:], s.Content)
			}
			return bytes.Clone(memory)
		}
		if want, got := begin(rewritten.Code, nil), begin(rest, data); !bytes.Equal(want, got) {
			t.Fatal("memory differs")
		}
		if untouched := begin(rest, nil); !bytes.Equal(untouched, make([]byte, size)) {
			t.Fatal("something is left")
		}
	})
}

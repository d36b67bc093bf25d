package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
)

// TestI5_GoldenChain reproduces the vectors of the protocol's reference
// implementation byte for byte.
func TestI5_GoldenChain(t *testing.T) {
	text, err := os.ReadFile("testdata/golden-chain.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, Canonical, SHA256 string }
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	records := 0
	for _, v := range vectors {
		var record struct {
			Event json.RawMessage `json:"event"`
		}
		if err := json.Unmarshal([]byte(v.Canonical), &record); err != nil {
			t.Fatal(err)
		}
		got, err := abi.Canonical([]byte(v.Canonical))
		if record.Event != nil {
			records++
			got = EncodeLine(record.Event, abi.Digest{}, 1)
		}
		if err != nil || string(got) != v.Canonical {
			t.Errorf("%s: %v\n got %s\nwant %s", v.Name, err, got, v.Canonical)
		}
		if hash := abi.DigestOf(got).String(); hash != v.SHA256 {
			t.Errorf("%s: hash %s, want %s", v.Name, hash, v.SHA256)
		}
	}
	if records == 0 || records == len(vectors) {
		t.Errorf("%d of %d vectors are records", records, len(vectors))
	}
}

func TestParseLine(t *testing.T) {
	hash := abi.DigestOf([]byte("x"))
	for _, tt := range []struct {
		event string
		prev  abi.Digest
		seq   abi.Seq
	}{
		{`{}`, abi.Digest{}, 1},
		{`{"a":"b"}`, hash, 2},
		{`{"a":"\",\"prev_hash\":\"\",\"seq\":\"9\"}"}`, hash, 1<<63 - 1},
		{`{"prev_hash":"","seq":"1"}`, abi.Digest{}, 10},
		{`{"event":{"x":1},"prev_hash":"","seq":"1"}`, hash, 100},
	} {
		line := EncodeLine([]byte(tt.event), tt.prev, tt.seq)
		event, prev, seq, err := ParseLine(line)
		if err != nil || string(event) != tt.event || prev != tt.prev || seq != tt.seq {
			t.Errorf("%s: %s, %v, %d, %v", line, event, prev, seq, err)
		}
	}
	good := string(EncodeLine([]byte(`{}`), hash, 12))
	for _, bad := range []string{
		"", "{", "}", `"}`, `1"}`, `","seq":"1"}`, `{"event":`, good[1:], good[:len(good)-1], good + "\n",
		strings.Replace(good, `"12"`, `""`, 1),
		strings.Replace(good, `"12"`, `"0"`, 1),
		strings.Replace(good, `"12"`, `"012"`, 1),
		strings.Replace(good, `"12"`, `"-12"`, 1),
		strings.Replace(good, `"12"`, `"9223372036854775808"`, 1),
		strings.Replace(good, hash.String(), strings.ToUpper(hash.String()), 1),
		strings.Replace(good, hash.String(), hash.String()[1:], 1),
		strings.Replace(good, hash.String(), strings.Repeat("0", 64), 1),
		strings.Replace(good, "prev_hash", "prev", 1),
		strings.Replace(good, "seq", "seqs", 1),
	} {
		if _, _, _, err := ParseLine([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("accepted %q: %v", bad, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"event":{},"prev_hash":"","seq":"1"}`))
	f.Add(EncodeLine([]byte(`{"a":1}`), abi.DigestOf(nil), 1<<40))
	f.Add([]byte(`{"event":,"prev_hash":"","seq":"1"}`))
	f.Add([]byte(`","seq":"1"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		event, prev, seq, err := ParseLine(line)
		if err != nil {
			return
		}
		if got := EncodeLine(event, prev, seq); !bytes.Equal(got, line) {
			t.Errorf("%q came back as %q", line, got)
		}
	})
}

// FuzzRows gives the decoders of rows any bytes: they refuse them or read what
// encodes to the same.
func FuzzRows(f *testing.F) {
	s := Session{Project: "p", Name: "n", Created: epoch, Parent: "q", At: 3, Meta: []byte("m")}
	f.Add(encodeMeta(s, []segment{{"a", 1}, {"b", 2}}))
	f.Add(encodeHead(Head{Seq: 1, Fence: 2}, []byte("summary")))
	value, _ := encodeRecord([]byte(`{}`), abi.Digest{}, 1, 1)
	f.Add(value)
	f.Fuzz(func(t *testing.T, row []byte) {
		if s, segs, err := decodeMeta("u", row); err == nil {
			again, segs2, err := decodeMeta("u", encodeMeta(s, segs))
			if err != nil || again.Name != s.Name || len(segs) != len(segs2) {
				t.Errorf("meta %q: %v", row, err)
			}
		}
		if h, summary, err := decodeHead("u", row); err == nil && !bytes.Equal(encodeHead(h, summary), row) {
			t.Errorf("head %q changed", row)
		}
		if r, err := decodeRecord("u", 1, row); err == nil && !bytes.HasSuffix(row, r.Line) {
			t.Errorf("record %q changed", row)
		}
	})
}

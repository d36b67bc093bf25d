package portable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// contents is a file's session and pieces, made by hand: the lines are none.
type contents struct {
	Session Session
	Pieces  []Piece
}

func small() contents {
	page := bytes.Repeat([]byte("page"), abi.PageSize/4)
	return contents{
		Session: Session{
			UID: "sess-1", Project: "p", Name: "n", Parent: "sess-0", At: 1,
			Created: abi.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)),
			Head:    Head{Seq: 2, Hash: abi.DigestOf([]byte("head"))},
			Meta:    json.RawMessage(`{"harness":"h"}`),
		},
		Pieces: []Piece{
			{Kind: KindBlob, Bytes: []byte("module")},
			{Kind: KindImage, Image: &Image{
				Root: abi.DigestOf([]byte("root")), Size: 4 * abi.PageSize, Clock: -7,
				Globals: []abi.Global{{Type: 0x7f, Value: [16]byte{1, 2}}, {Type: 0x7e}}, Pages: []uint32{0, 3},
			}},
			{Kind: KindPage, Bytes: page},
			{Kind: KindPage, Bytes: bytes.Repeat([]byte{9}, abi.PageSize)},
			{Kind: KindRecord, Fence: 1, Bytes: []byte("first line")},
			{Kind: KindBlob, Bytes: []byte("blob")},
			{Kind: KindBlob, Bytes: []byte{}},
			{Kind: KindRecord, Fence: 2, Bytes: []byte("second line")},
		},
	}
}

// write makes a file; it does not care about the order.
func (c contents) write(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, c.Session)
	for _, p := range c.Pieces {
		if err != nil {
			break
		}
		switch p.Kind {
		case KindBlob:
			err = w.Blob(p.Bytes)
		case KindImage:
			err = w.Image(*p.Image)
		case KindPage:
			err = w.Page(p.Bytes)
		case KindRecord:
			err = w.Record(p.Fence, p.Bytes)
		default:
			err = w.piece(p.Kind, p.Bytes)
		}
	}
	if err == nil {
		var digest abi.Digest
		digest, err = w.Close()
		if err == nil && !bytes.HasSuffix(b.Bytes(), digest[:]) {
			t.Error("the file does not end with its digest")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a file to its end.
func readAll(r io.Reader) (c contents, err error) {
	pr, err := NewReader(r)
	if err != nil {
		return c, err
	}
	defer pr.Close()
	c.Session = pr.Session()
	for {
		p, err := pr.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			if _, again := pr.Next(); !errors.Is(again, err) {
				return c, fmt.Errorf("the error %w did not stay: %w", err, again)
			}
			return c, err
		}
		c.Pieces = append(c.Pieces, p)
	}
}

func TestRoundTrip(t *testing.T) {
	big := small()
	random := make([]byte, 3*chunkBytes)
	rand.NewChaCha8([32]byte{}).Read(random)
	big.Pieces[0].Bytes = random
	for _, want := range []contents{
		small(), big,
		{Session: Session{UID: "sess-2", Project: "p", Meta: json.RawMessage(`{}`)}},
	} {
		file := want.write(t)
		for name, r := range map[string]io.Reader{
			"at once":      bytes.NewReader(file),
			"byte by byte": iotest.OneByteReader(bytes.NewReader(file)),
		} {
			got, err := readAll(r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if again := want.write(t); !bytes.Equal(again, file) {
			t.Error("the same contents made two different files")
		}
	}
}

// chunksOf takes a file apart: its first line, and its chunks.
func chunksOf(t testing.TB, file []byte) (parts [][]byte) {
	t.Helper()
	at := bytes.IndexByte(file, '\n') + 1
	parts = append(parts, file[:at])
	for at < len(file) {
		n := chunkHeader + int(file[at])<<24 + int(file[at+1])<<16 + int(file[at+2])<<8 + int(file[at+3])
		parts = append(parts, file[at:at+n])
		at += n
	}
	return parts
}

func checkDamage(t *testing.T, name string, err, kind error) {
	t.Helper()
	var d *Damage
	if !errors.As(err, &d) || !errors.Is(err, kind) || !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("%s: got %v, want a *Damage that is %v", name, err, kind)
	}
}

func TestCut(t *testing.T) {
	file := small().write(t)
	if _, err := readAll(bytes.NewReader(nil)); !errors.Is(err, ErrFormat) {
		t.Errorf("nothing: %v, want ErrFormat", err)
	}
	for n := 1; n < len(file); n++ {
		_, err := readAll(bytes.NewReader(file[:n]))
		checkDamage(t, fmt.Sprintf("%d of %d bytes", n, len(file)), err, ErrCut)
	}
}

func TestEdited(t *testing.T) {
	file := small().write(t)
	first := len(firstLine())
	last := len(file) - chunkHeader
	for at := first; at < len(file); at++ {
		edited := bytes.Clone(file)
		edited[at] ^= 0x10
		_, err := readAll(bytes.NewReader(edited))
		kind := ErrEdited
		// A length that is more than there is cannot be told from a cut.
		if errors.Is(err, ErrCut) && (at < first+4 || at >= last && at < last+4) {
			kind = ErrCut
		}
		checkDamage(t, fmt.Sprintf("byte %d", at), err, kind)
	}
	for at := range first {
		edited := bytes.Clone(file)
		edited[at] ^= 0x10
		if _, err := readAll(bytes.NewReader(edited)); err == nil {
			t.Errorf("byte %d of the first line: no error", at)
		}
	}
}

// Whole chunks in the wrong place, of this file and of another one.
func TestMixed(t *testing.T) {
	c := small()
	c.Pieces[0].Bytes = make([]byte, 3*chunkBytes)
	rand.NewChaCha8([32]byte{1}).Read(c.Pieces[0].Bytes)
	a := chunksOf(t, c.write(t))
	rand.NewChaCha8([32]byte{2}).Read(c.Pieces[0].Bytes)
	b := chunksOf(t, c.write(t))
	if len(a) < 5 || len(b) != len(a) {
		t.Fatalf("%d and %d parts", len(a), len(b))
	}
	last := len(a) - 1
	for name, parts := range map[string][][]byte{
		"another file's chunk": {a[0], a[1], b[2], a[3]},
		"another file's rest":  append(append([][]byte{}, a[:2]...), b[2:]...),
		"another file's end":   append(append([][]byte{}, a[:last]...), b[last]),
		"one taken out":        append(append([][]byte{}, a[:2]...), a[3:]...),
		"the first taken out":  append([][]byte{a[0]}, a[2:]...),
		"two exchanged":        {a[0], a[1], a[3], a[2]},
		"one twice":            {a[0], a[1], a[1], a[2]},
		"an early end":         {a[0], a[1], a[last]},
	} {
		_, err := readAll(bytes.NewReader(bytes.Join(parts, nil)))
		checkDamage(t, name, err, ErrMixed)
	}
	_, err := readAll(bytes.NewReader(bytes.Join(a[:last], nil)))
	checkDamage(t, "no end", err, ErrCut)
}

func TestTrailing(t *testing.T) {
	file := small().write(t)
	for _, more := range [][]byte{{0}, []byte("\n"), file, chunksOf(t, file)[1]} {
		_, err := readAll(bytes.NewReader(append(bytes.Clone(file), more...)))
		checkDamage(t, fmt.Sprintf("%d bytes", len(more)), err, ErrTrailing)
	}
}

func TestFirstLine(t *testing.T) {
	rest := strings.TrimPrefix(string(small().write(t)), firstLine())
	for line, want := range map[string]error{
		"agentcell session 2\n":                                ErrNewer,
		"agentcell session 4294967295\n":                       ErrNewer,
		"agentcell session 0\n":                                ErrFormat,
		"agentcell session 01\n":                               ErrFormat,
		"agentcell session -1\n":                               ErrFormat,
		"agentcell session one\n":                              ErrFormat,
		"agentcell session 1\r\n":                              ErrFormat,
		"agentcell session " + strings.Repeat("1", 100) + "\n": ErrFormat,
		"agentcell sessions 1\n":                               ErrFormat,
		"PK\x03\x04":                                           ErrFormat,
		`{"event":{}`:                                          ErrFormat,
	} {
		if _, err := readAll(strings.NewReader(line + rest)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", line, err, want)
		}
	}
}

// Files that are whole but were written by something that does not keep to the
// format.
func TestInvalid(t *testing.T) {
	base := small()
	with := func(pieces ...Piece) contents { return contents{base.Session, pieces} }
	p := base.Pieces
	for name, tt := range map[string]struct {
		contents
		want error
	}{
		"second session":          {with(Piece{Kind: kindSession, Bytes: []byte("{}")}), ErrInvalid},
		"page without image":      {with(p[0], p[2]), ErrInvalid},
		"page missing":            {with(p[0], p[1], p[2], p[4], p[5], p[7]), ErrInvalid},
		"one page too many":       {with(p[0], p[1], p[2], p[3], p[3]), ErrInvalid},
		"ends within the image":   {with(p[0], p[1], p[2]), ErrInvalid},
		"small page":              {with(p[0], p[1], Piece{Kind: KindPage, Bytes: []byte{1}}), ErrInvalid},
		"two images":              {with(p[0], p[1], p[2], p[3], p[1]), ErrInvalid},
		"image behind a record":   {with(p[0], p[4], p[1]), ErrInvalid},
		"blob at the end":         {with(p[0], p[4], p[7], p[5]), ErrInvalid},
		"record missing":          {with(p[0], p[4]), ErrMixed},
		"one record too many":     {with(p[0], p[4], p[7], p[7]), ErrMixed},
		"pages not ascending":     {with(p[0], Piece{Kind: KindImage, Image: &Image{Pages: []uint32{2, 2}}}), ErrInvalid},
		"meta is no object":       {contents{Session: Session{Meta: json.RawMessage(`1`)}}, ErrInvalid},
		"head without hash":       {contents{Session: Session{Head: Head{Seq: 1}, Meta: json.RawMessage(`{}`)}}, ErrInvalid},
		"head with negative seq":  {contents{Session: Session{Head: Head{Seq: -1, Hash: base.Session.Head.Hash}, Meta: json.RawMessage(`{}`)}}, ErrInvalid},
		"hash without head":       {contents{Session: Session{Head: Head{Hash: base.Session.Head.Hash}, Meta: json.RawMessage(`{}`)}}, ErrInvalid},
		"negative fence":          {with(p[0], Piece{Kind: KindRecord, Fence: -1, Bytes: []byte("line")}), ErrInvalid},
		"nothing but its session": {with(), ErrMixed},
	} {
		_, err := readAll(bytes.NewReader(tt.write(t)))
		checkDamage(t, name, err, tt.want)
	}
	oneRecord := `{"meta":{},"head":{"seq":"1","hash":"` + strings.Repeat("1", 64) + `"}}`
	for name, content := range map[string]string{
		"nothing":             "",
		"a piece's kind only": "s",
		"a piece cut":         "s\x00\x00\x00\x05{}",
		"too large":           "s\xff\xff\xff\xff",
		"unknown kind":        "x\x00\x00\x00\x00",
		"no session":          "b\x00\x00\x00\x00",
		"unknown field":       "s\x00\x00\x00\x09{\"new\":1}",
		"two objects":         "s\x00\x00\x00\x04{}{}",
		"no metadata":         "s\x00\x00\x00\x02{}",
		"no fence":            "s\x00\x00\x00\x68" + oneRecord + "r\x00\x00\x00\x01x",
	} {
		_, err := readAll(bytes.NewReader(wrap(t, zip(t, content))))
		checkDamage(t, name, err, ErrInvalid)
	}
	whole := string(small().write(t))
	_, err := readAll(bytes.NewReader(wrap(t, []byte("no zstd at all"))))
	checkDamage(t, "not compressed", err, ErrInvalid)
	_, err = readAll(bytes.NewReader(wrap(t, []byte(whole))))
	checkDamage(t, "a file in a file", err, ErrInvalid)
	stream := zip(t, "s\x00\x00\x00\x0b{\"meta\":{}}")
	_, err = readAll(bytes.NewReader(wrap(t, stream[:len(stream)-1])))
	checkDamage(t, "compressed data cut", err, ErrInvalid)
}

func zip(t testing.TB, content string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll([]byte(content), nil)
}

// wrap makes a whole file of data.
func wrap(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newChunkWriter(&b)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		_, err = w.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriter_TooLarge(t *testing.T) {
	w, err := NewWriter(io.Discard, Session{Meta: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Record(1, make([]byte, maxRecord)); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// What is read is passed on as it is: an error of the disk is no damage.
func TestReader_Error(t *testing.T) {
	file := small().write(t)
	for n := range len(file) {
		_, err := readAll(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(errors.New("disk"))))
		var d *Damage
		if errors.As(err, &d) || err == nil || !strings.Contains(err.Error(), "disk") {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// FuzzReader: no bytes make a reader panic, and none but a file as it is written
// is taken.
func FuzzReader(f *testing.F) {
	file := small().write(f)
	f.Add(file, false)
	f.Add(file[:len(file)/2], false)
	for _, content := range []string{"", "s\x00\x00\x00\x0b{\"meta\":{}}", "s\x00\x00\x00\x0b{\"meta\":{}}b\x00\x00\x00\x00"} {
		f.Add(zip(f, content), true)
	}
	f.Add([]byte("s\x00\x00\x00\x0b{\"meta\":{}}i\x00\x00\x00\x38"+strings.Repeat("\x00", 56)), true)
	f.Fuzz(func(t *testing.T, data []byte, wrapped bool) {
		if wrapped { // get behind the digests: as a stream, and as content
			data = wrap(t, data)
		}
		c, err := readAll(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := readAll(bytes.NewReader(c.write(t)))
		if err != nil || cmp.Diff(c, again) != "" {
			t.Errorf("%v (-read +written again):\n%s", err, cmp.Diff(c, again))
		}
	})
}

// BenchmarkWrite and BenchmarkRead take records as they come from small turns.
func BenchmarkWrite(b *testing.B) {
	c := manyRecords(1000)
	b.ReportAllocs()
	for b.Loop() {
		c.write(b)
	}
	b.ReportMetric(float64(len(c.Pieces))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkRead(b *testing.B) {
	c := manyRecords(1000)
	file := c.write(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readAll(bytes.NewReader(file)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(c.Pieces))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func manyRecords(n int) contents {
	c := contents{Session: Session{
		UID: "sess-1", Project: "p", Meta: json.RawMessage(`{}`),
		Head: Head{Seq: abi.Seq(n), Hash: abi.DigestOf([]byte("head"))},
	}}
	for i := range n {
		line := journal.EncodeLine(fmt.Appendf(nil, `{"message":{"parts":[{"text":{"text":"text %d"}}]}}`, i), abi.DigestOf(fmt.Append(nil, i)), abi.Seq(i+1))
		c.Pieces = append(c.Pieces, Piece{Kind: KindRecord, Fence: 1, Bytes: line})
	}
	return c
}

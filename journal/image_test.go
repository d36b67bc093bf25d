package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// mem is what the tests know of an image: for each page one byte that stands
// for its content, 0 for a page of zeros.
type mem struct {
	pages   []byte
	globals []abi.Global
	clock   int64
}

// content is the page that id stands for.
func content(id byte) []byte {
	if id == 0 {
		return make([]byte, abi.PageSize)
	}
	page := bytes.Repeat([]byte{id, 0, 0, 0}, abi.PageSize/4)
	copy(page, "page")
	return page
}

// referenceRoot is the root of m, from the text of the format alone.
func referenceRoot(m mem) abi.Digest {
	hash := func(parts ...[]byte) []byte {
		h := sha256.Sum256(bytes.Join(parts, nil))
		return h[:]
	}
	var level [][]byte
	for _, id := range m.pages {
		level = append(level, hash([]byte{0}, content(id)))
	}
	if len(level) == 0 {
		level = [][]byte{hash([]byte{1})}
	}
	for len(level) > 1 {
		var above [][]byte
		for kids := range slices.Chunk(level, 16) {
			above = append(above, hash([]byte{1}, bytes.Join(kids, nil)))
		}
		level = above
	}
	le := binary.LittleEndian
	root := []byte("agentcell image 1\n")
	root = le.AppendUint64(root, uint64(len(m.pages))*4096)
	root = append(root, level[0]...)
	root = le.AppendUint32(root, uint32(len(m.globals)))
	for _, g := range m.globals {
		root = append(root, g.Type)
		root = append(root, g.Value[:]...)
	}
	root = le.AppendUint64(root, uint64(m.clock))
	return abi.Digest(hash(root))
}

// spec is what makes m of a base, where changed pages may differ.
func (m mem) spec(changed ...uint32) ImageSpec {
	return ImageSpec{
		Size:    uint64(len(m.pages)) * abi.PageSize,
		Globals: m.globals,
		Clock:   m.clock,
		Changed: changed,
		Read: func(page uint32, dst []byte) error {
			copy(dst, content(m.pages[page]))
			return nil
		},
		// Half of them as they come.
		AnyOrder: len(changed)%2 == 0,
	}
}

// changedFrom lists the pages of m that differ from base's.
func (m mem) changedFrom(base mem) []uint32 {
	var changed []uint32
	for i, id := range m.pages {
		was := byte(0)
		if i < len(base.pages) {
			was = base.pages[i]
		}
		if id != was {
			changed = append(changed, uint32(i))
		}
	}
	return changed
}

// pagesOf makes a memory of n pages, all of them different and none zero.
func pagesOf(n int) mem {
	m := mem{pages: make([]byte, n), clock: 7}
	for i := range m.pages {
		m.pages[i] = byte(1 + i%255)
	}
	return m
}

func newImage(t testing.TB, j *Journal, base *Image, spec ImageSpec) *Image {
	t.Helper()
	im, err := j.NewImage(base, spec)
	if err != nil {
		t.Fatal(err)
	}
	root, changed, err := j.ImageRoot(base, spec)
	if err != nil || root != im.Root() || changed != im.Changed(base) {
		t.Fatalf("ImageRoot gives %v, %d, %v; NewImage has made %v, %d", root, changed, err, im.Root(), im.Changed(base))
	}
	return im
}

func saveImage(t testing.TB, j *Journal, im *Image) {
	t.Helper()
	if err := j.SaveImage(t.Context(), im); err != nil {
		t.Fatal(err)
	}
}

// requirePages checks every page of im against m.
func requirePages(t interface {
	Helper()
	Fatalf(string, ...any)
}, j *Journal, im *Image, m mem,
) {
	t.Helper()
	if want := uint64(len(m.pages)) * abi.PageSize; im.Size() != want {
		t.Fatalf("image %v has %d bytes, want %d", im.Root(), im.Size(), want)
	}
	page := make([]byte, abi.PageSize)
	for i, id := range m.pages {
		for k := range page {
			page[k] = 0xee
		}
		if err := j.ReadPage(im, uint32(i), page); err != nil {
			t.Fatalf("read page %d: %v", i, err)
		}
		if !bytes.Equal(page, content(id)) {
			t.Fatalf("page %d is not what was written", i)
		}
	}
	requireBulk(t, j, im, m)
}

func every(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// TestImageRoots pins the format: if one of these changes, no journal that was
// ever written can be read.
func TestImageRoots(t *testing.T) {
	global := abi.Global{Type: 0x7f, Value: [16]byte{1, 2, 3, 4}}
	tests := []struct {
		name string
		m    mem
		want string
	}{
		{"empty", mem{}, "3283ea6119f8fefb21985688b8a4d60359c31d0e115225f544eb6ec59f378f54"},
		{"one zero page", mem{pages: make([]byte, 1)}, "9a54d302cc8423e71dc9c5ff6e95ea4c4a09e532f973618204d8966389ac313e"},
		{"seventeen pages", pagesOf(17), "d232f407b7fd31e0c4d33c186d7f70b6c3fd63a38b4596ab26313d5e2ecfacfe"},
		{"globals and clock", mem{pages: []byte{1}, globals: []abi.Global{global, global}, clock: -5}, "565ce631f32d0ac7b968906fc7a69b8ff60c34d7ecb08bf2c933eae8fda6ec26"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := journalOn(t, newMemory())
			im := newImage(t, j, nil, tt.m.spec(every(len(tt.m.pages))...))
			if got := im.Root().String(); got != tt.want {
				t.Errorf("root %s, want %s", got, tt.want)
			}
			if reference := referenceRoot(tt.m).String(); reference != tt.want {
				t.Errorf("the reference gives %s, want %s", reference, tt.want)
			}
		})
	}
}

// TestImages drives images through random writes, growth, shrinking, saves and
// reopenings, and holds them against the reference: same root, same pages, same
// differences.
func TestImages(t *testing.T) {
	dir, store := t.TempDir(), newMemory()
	for name, open := range map[string]func() (*Journal, error){
		"memory": func() (*Journal, error) { return New(store, Options{}) },
		"badger": func() (*Journal, error) { return Open(dir, Options{FreeReserve: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				run := imageRun{open: open}
				run.start(rt)
				defer func() { run.j.Close() }()
				rt.Repeat(map[string]func(*rapid.T){
					"write":   run.write,
					"resize":  run.resize,
					"save":    run.save,
					"load":    run.load,
					"diff":    run.diff,
					"restart": run.restart,
				})
			})
		})
	}
}

type imageRun struct {
	open   func() (*Journal, error)
	j      *Journal
	images []knownImage
}

type knownImage struct {
	im    *Image
	m     mem
	saved bool
}

func (r *imageRun) pick(t *rapid.T) *knownImage {
	return &r.images[rapid.IntRange(0, len(r.images)-1).Draw(t, "image")]
}

func (r *imageRun) add(t *rapid.T, base *knownImage, m mem, more ...uint32) {
	var from *Image
	var was mem
	if base != nil {
		from, was = base.im, base.m
	}
	changed := append(m.changedFrom(was), more...)
	slices.Sort(changed)
	im, err := r.j.NewImage(from, m.spec(slices.Compact(changed)...))
	if err != nil {
		t.Fatal(err)
	}
	if want := referenceRoot(m); im.Root() != want {
		t.Fatalf("root %v, the reference gives %v", im.Root(), want)
	}
	if from != nil && from.root == im.root && from != im {
		t.Fatal("an equal image is not its base")
	}
	if want := len(m.changedFrom(was)); im.Changed(from) != want {
		t.Fatalf("%d pages changed, want %d", im.Changed(from), want)
	}
	r.images = append(r.images, knownImage{im: im, m: m})
}

// write makes an image with some pages written, some of them to what they were.
func (r *imageRun) write(t *rapid.T) {
	base := r.pick(t)
	if len(base.m.pages) == 0 {
		t.Skip("no pages")
	}
	m := mem{pages: slices.Clone(base.m.pages), clock: base.m.clock}
	m.clock += rapid.Int64Range(0, 1).Draw(t, "tick")
	m.globals = []abi.Global{{Type: 0x7e, Value: [16]byte{rapid.Byte().Draw(t, "global")}}}
	var touched []uint32
	for range rapid.IntRange(0, 6).Draw(t, "writes") {
		page := rapid.IntRange(0, len(m.pages)-1).Draw(t, "page")
		m.pages[page] = rapid.ByteRange(0, 3).Draw(t, "content")
		touched = append(touched, uint32(page))
	}
	r.add(t, base, m, touched...)
}

func (r *imageRun) resize(t *rapid.T) {
	base := r.pick(t)
	n := rapid.OneOf(
		rapid.SampledFrom([]int{0, 1, 15, 16, 17, 255, 256, 257, 300, 600}),
		rapid.IntRange(0, 40),
	).Draw(t, "pages")
	m := mem{pages: make([]byte, n), globals: base.m.globals, clock: base.m.clock}
	copy(m.pages, base.m.pages)
	r.add(t, base, m)
}

func (r *imageRun) save(t *rapid.T) {
	k := r.pick(t)
	if err := r.j.SaveImage(t.Context(), k.im); err != nil {
		t.Fatal(err)
	}
	if rows, err := r.j.unsaved(k.im); err != nil || len(rows) > 0 {
		t.Fatalf("%d rows unsaved after a save, %v", len(rows), err)
	}
	k.saved = true
	requirePages(t, r.j, k.im, k.m)
}

func (r *imageRun) load(t *rapid.T) {
	k := r.pick(t)
	im, err := r.j.LoadImage(k.im.Root())
	if errors.Is(err, ErrNotFound) && !k.saved {
		return // it may yet be there, if an equal one was saved
	}
	if err != nil {
		t.Fatal(err)
	}
	got := mem{pages: k.m.pages, globals: im.Globals(), clock: im.Clock()}
	if diff := cmp.Diff(len(k.m.globals), len(got.globals)); diff != "" {
		t.Fatal(diff)
	}
	if referenceRoot(got) != k.im.Root() {
		t.Fatal("globals or clock differ after loading")
	}
	requirePages(t, r.j, im, k.m)
	r.images = append(r.images, knownImage{im: im, m: k.m, saved: true})
}

func (r *imageRun) diff(t *rapid.T) {
	a, b := r.pick(t), r.pick(t)
	got, err := r.j.DiffImages(a.im, b.im)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.m.changedFrom(a.m), got); diff != "" {
		t.Fatal(diff)
	}
}

func (r *imageRun) start(t *rapid.T) {
	var err error
	if r.j, err = r.open(); err != nil {
		t.Fatal(err)
	}
	if len(r.images) == 0 {
		r.add(t, nil, mem{})
	}
}

// restart opens the journal again: what was saved can be loaded, the rest is
// gone.
func (r *imageRun) restart(t *rapid.T) {
	if len(r.images) < 8 {
		t.Skip("too little to lose")
	}
	if err := r.j.Close(); err != nil {
		t.Fatal(err)
	}
	known := r.images
	r.images = nil
	r.start(t)
	for _, k := range known {
		if !k.saved {
			continue
		}
		im, err := r.j.LoadImage(k.im.Root())
		if err != nil {
			t.Fatal(err)
		}
		r.images = append(r.images, knownImage{im: im, m: k.m, saved: true})
	}
}

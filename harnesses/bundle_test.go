package harnesses

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestBundle(t *testing.T) {
	empty := fstest.MapFS{"bundle/README": {Data: []byte("x")}}
	full := fstest.MapFS{
		"bundle/README":    {Data: []byte("x")},
		"bundle/echo.wasm": {Data: []byte("e")},
		"bundle/chat.wasm": {Data: []byte("c")},
	}
	if diff := cmp.Diff([]string{"chat", "echo"}, namesIn(full)); diff != "" {
		t.Error(diff)
	}
	if names := namesIn(empty); len(names) != 0 {
		t.Errorf("an empty bundle has %q", names)
	}
	chat, err := find(full, "chat")
	if err != nil {
		t.Fatal(err)
	}
	if code, err := chat.Module(); err != nil || string(code) != "c" || chat.Digest != sha256.Sum256(code) || chat.Size != 1 || chat.Held != 1 {
		t.Errorf("got %q, %v of %+v", code, err, chat)
	}
	tests := []struct {
		files fs.FS
		name  string
		hint  string
	}{
		{empty, "echo", "built without bundled harnesses; run `make` in the source tree, or pass --harness FILE.wasm"},
		{full, "ecko", "there are chat, echo; or pass --harness FILE.wasm"},
		{full, "README", "there are chat, echo"},
		{full, "", "there are chat, echo"},
		{full, "../bundle/echo", "there are chat, echo"},
		{full, "./echo", "there are chat, echo"},
	}
	for _, test := range tests {
		_, err := find(test.files, test.name)
		if !errors.Is(err, ErrNotBundled) || !strings.Contains(err.Error(), test.hint) {
			t.Errorf("%q: got error %v, want one with %q", test.name, err, test.hint)
		}
	}
}

// packed is a module as internal/pack packs it, with a comment.
func packed(t *testing.T, code []byte, comment string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Comment = comment
	if _, err := w.Write(code); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

// A packed module is known before it is unpacked, and unpacked is what was packed.
func TestPacked(t *testing.T) {
	code := bytes.Repeat([]byte("module "), 1000)
	whole := packed(t, code, Describe(code))
	files := fstest.MapFS{
		"bundle/big.wasm.gz":   whole,
		"bundle/small.wasm":    {Data: []byte("s")},
		"bundle/other.wasm.gz": packed(t, code, Describe([]byte("other"))),
		"bundle/mute.wasm.gz":  packed(t, code, ""),
		"bundle/cut.wasm.gz":   {Data: whole.Data[:len(whole.Data)-16]},
		"bundle/text.wasm.gz":  {Data: []byte("text")},
	}
	if diff := cmp.Diff([]string{"big", "cut", "mute", "other", "small", "text"}, namesIn(files)); diff != "" {
		t.Error(diff)
	}
	big, err := find(files, "big")
	if err != nil {
		t.Fatal(err)
	}
	if big.Digest != sha256.Sum256(code) || big.Size != int64(len(code)) || big.Held != int64(len(whole.Data)) {
		t.Errorf("found %+v", big)
	}
	if got, err := big.Module(); err != nil || !bytes.Equal(got, code) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	for _, name := range []string{"other", "cut"} {
		b, err := find(files, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Module(); err == nil {
			t.Errorf("%s was unpacked", name)
		}
	}
	for _, name := range []string{"mute", "text"} {
		if b, err := find(files, name); err == nil {
			t.Errorf("%s: found %+v", name, b)
		}
	}
}

// What is embedded, if anything, must be WebAssembly, and what it is said to be.
func TestModules(t *testing.T) {
	for _, name := range Names() {
		b, err := Find(name)
		if err != nil {
			t.Error(err)
			continue
		}
		code, err := b.Module()
		if err != nil || !bytes.HasPrefix(code, []byte("\x00asm\x01\x00\x00\x00")) || int64(len(code)) != b.Size || sha256.Sum256(code) != b.Digest {
			t.Errorf("%s: no module: %v", name, err)
		}
	}
	if _, err := Module("no such harness"); !errors.Is(err, ErrNotBundled) {
		t.Errorf("got error %v", err)
	}
}

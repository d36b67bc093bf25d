package harnesses

import (
	"bytes"
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
	if code, err := moduleIn(full, "chat"); err != nil || string(code) != "c" {
		t.Errorf("got %q, %v", code, err)
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
		_, err := moduleIn(test.files, test.name)
		if !errors.Is(err, ErrNotBundled) || !strings.Contains(err.Error(), test.hint) {
			t.Errorf("%q: got error %v, want one with %q", test.name, err, test.hint)
		}
	}
}

// What is embedded, if anything, must be WebAssembly.
func TestModules(t *testing.T) {
	for _, name := range Names() {
		code, err := Module(name)
		if err != nil || !bytes.HasPrefix(code, []byte("\x00asm\x01\x00\x00\x00")) {
			t.Errorf("%s: no module: %v", name, err)
		}
	}
	if _, err := Module("no such harness"); !errors.Is(err, ErrNotBundled) {
		t.Errorf("got error %v", err)
	}
}

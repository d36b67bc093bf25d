//go:build unix

package extism_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentcell/agentcell/host/tool/extism"
)

// A plug-in that reads a pipe to which nobody writes heeds no context. It is left
// behind, and nobody waits for it.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := plugins(t, extism.Options{CacheDir: testCache(t)})
	code := other(t, "read_write.wasm")
	m := extism.Manifest{
		Export: "try_read", WASI: true, Config: map[string]string{"path": "/mnt/pipe"},
		Paths: []extism.Path{{Host: dir, Guest: "/mnt", ReadOnly: true}},
	}
	if err := p.Check(t.Context(), code, patient(m)); err != nil { // which compiles it
		t.Fatal(err)
	}
	m.TimeoutMS = 200
	if _, err := call(t, p, code, m, ``); err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("the error is %v", err)
	}
	// Whoever opens it for writing lets the reader go, or else there is none.
	if w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_ = w.Close()
	}
	if _, err := call(t, p, guest(echo), extism.Manifest{Export: "run"}, ``); err != nil {
		t.Error(err)
	}
}

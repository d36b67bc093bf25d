package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer is what a command writes, for a test that reads meanwhile.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newSyncBuffer() *syncBuffer { return &syncBuffer{more: make(chan struct{}, 1)} }

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	select {
	case b.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await returns when text was written, or ctx is done.
func (b *syncBuffer) await(ctx context.Context, text string) {
	for !strings.Contains(b.String(), text) {
		select {
		case <-ctx.Done():
			return
		case <-b.more:
		}
	}
}

// A timer that is set fires in a process that follows, by itself.
func TestResumeAllFollows(t *testing.T) {
	dir := t.TempDir()
	guest := filepath.Join(dir, "sleeps.wasm")
	if err := os.WriteFile(guest, guests()["sleeps"]().Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	command := func(ctx context.Context, stdout *syncBuffer, now func() time.Time, args ...string) int {
		a := newApp(strings.NewReader(""), stdout, newSyncBuffer(), func(string) string { return "" })
		a.now = now
		return a.run(ctx, append(args, "--data", filepath.Join(dir, "data")))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if code := command(ctx, newSyncBuffer(), time.Now, "exec", "--name", "nap", "--harness", guest, "--input", "go"); code != exitAwaiting {
		t.Fatalf("exec: exit code %d", code)
	}
	// It is a moment before the time that the guest waits for.
	begun := time.Now()
	almost := func() time.Time {
		return time.Date(2998, 12, 31, 23, 59, 59, 0, time.UTC).Add(time.Since(begun))
	}
	out, code := newSyncBuffer(), make(chan int, 1)
	go func() { code <- command(ctx, out, almost, "resume", "--all", "--follow") }()
	out.await(t.Context(), " name=nap COMPLETED root=")
	cancel(errInterrupted)
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d, put out:\n%s", got, out)
	}
}

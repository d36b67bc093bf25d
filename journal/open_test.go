package journal

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holdEnv, if set, names the directory that TestHold keeps open.
const holdEnv = "AGENTCELL_JOURNAL_HOLD"

// TestHold is the other process of TestSecondProcess.
func TestHold(t *testing.T) {
	dir := os.Getenv(holdEnv)
	if dir == "" {
		return
	}
	openIn(t, dir)
	os.Stdout.WriteString("open\n")
	os.Stdin.Read(make([]byte, 1)) // until the parent is done
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHold$")
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("while another process has it: %v", err)
	}
	for _, part := range []string{"process ", filepath.Base(os.Args[0]), "since 20", "--data"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	waited := make(chan error)
	go func() {
		j, err := Open(dir, Options{LockWait: time.Minute})
		if err == nil {
			err = j.Close()
		}
		waited <- err
	}()
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("waiting for it: %v", err)
	}
	openIn(t, dir)
}

// A journal that another process is just making is in use, not unknown.
func TestOpenWhileItIsMade(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "KEYREGISTRY")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is made: %v, want ErrLocked", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("half made: %v, want ErrFormat", err)
	}
	if err := os.Remove(half); err != nil {
		t.Fatal(err)
	}
	openIn(t, dir)
}

func TestOpenTwiceInOneProcess(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir)
	if _, err := Open(dir, Options{LockWait: 2 * lockPoll}); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
}

// TestForeignDirectory refuses a directory with other things in it and leaves it
// as it is.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Open(filepath.Join(dir, "thesis.tex"), Options{}); err == nil {
		t.Error("opened a file")
	}
	j, err := Open(dir, Options{Beside: []string{"thesis.tex"}})
	if err != nil {
		t.Fatalf("beside a file that may be there: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct {
		name string
		row  Entry
		want error
	}{
		{"this one", Entry{[]byte{kindFormat}, binary.BigEndian.AppendUint32(nil, formatVersion)}, nil},
		{"a newer one", Entry{[]byte{kindFormat}, binary.BigEndian.AppendUint32(nil, formatVersion+1)}, ErrFormat},
		{"unreadable", Entry{[]byte{kindFormat}, []byte("x")}, ErrFormat},
		{"another program's store", Entry{[]byte("key"), []byte("value")}, ErrFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := openBadger(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := new(Batch)
			b.Put(tt.row)
			if err := errors.Join(store.Commit(b), store.Close()); err != nil {
				t.Fatal(err)
			}
			j, err := Open(dir, Options{})
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err == nil {
				err = j.Close()
			}
			if lock, err2 := lockDir(dir, 0); err2 != nil {
				t.Errorf("after %v the lock is still held: %v", err, err2)
			} else {
				lock.Close()
			}
		})
	}
}

// TestCreationInterrupted opens what a process killed while it made the journal
// may leave.
func TestCreationInterrupted(t *testing.T) {
	for _, files := range [][]string{{lockName}, {lockName, "MANIFEST-REWRITE"}, {tryName, lockName}} {
		dir := t.TempDir()
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		openIn(t, dir)
	}

	dir := t.TempDir()
	store, err := openBadger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil { // a store without a format key
		t.Fatal(err)
	}
	openIn(t, dir)
}

// TestFull reports less and less free space to the store.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	store, err := openBadger(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	j := journalOn(t, store)
	create(t, j, "s", "p", "")
	head := extend(t, j, "s", 1)
	free := int64(1 << 20)
	store.space.free = func(string) (int64, error) { return free, nil }
	a := Append{Head: head, Events: [][]byte{event("x")}}
	if _, err := j.Append(t.Context(), "s", a); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "1 MB free") {
		t.Errorf("on a full disk: %v", err)
	}
	store.space.free = func(string) (int64, error) { return 0, syscall.EIO }
	if _, err := j.Append(t.Context(), "s", a); !errors.Is(err, ErrFull) || !errors.Is(err, syscall.EIO) {
		t.Errorf("where free space cannot be told: %v", err)
	}
	store.space.free = freeBytes
	if _, err := j.Append(t.Context(), "s", a); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

func TestMemoryIsEmptyEachTime(t *testing.T) {
	a, b := OpenMemory(), OpenMemory()
	defer a.Close()
	defer b.Close()
	create(t, a, "s", "p", "")
	if _, err := b.Session("s"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if diff := cmp.Diff(uint64(1), a.Commits()); diff != "" {
		t.Error(diff)
	}
}

func TestCommandNames(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"/usr/bin/agentctl", "exec", "--input", "secret"}, "agentctl exec"},
		{[]string{"agentctl", "--data=x", "exec"}, "agentctl"},
		{[]string{"agentctl"}, "agentctl"},
	} {
		if got := command(tt.args); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
}

// TestManyShortProcesses opens, writes and closes as one command after another
// does: the tables they leave do not pile up, and nothing is lost.
func TestManyShortProcesses(t *testing.T) {
	dir := t.TempDir()
	most := 0
	for i := range 3 * maxLevelZero {
		j, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			create(t, j, "s", "p", "")
		}
		if n, _, err := j.Verify(t.Context(), "s", VerifyOptions{}); err != nil || n != int64(i) {
			t.Fatalf("%d records, %v, want %d", n, err, i)
		}
		extend(t, j, "s", 1)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(tables))
	}
	if most > maxLevelZero+2 {
		t.Errorf("%d tables, want no more than about %d", most, maxLevelZero)
	}
}

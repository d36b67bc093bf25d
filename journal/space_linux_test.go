package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// makeReadOnly lets nothing be written below dir until the test ends, and gives
// the path for that: permissions do not bind every user, mounts do.
func makeReadOnly(t *testing.T, dir string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		for name, mode := range map[string]os.FileMode{dir: 0o500, filepath.Join(dir, lockName): 0o400} {
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(name, 0o700) })
		}
		return dir
	}
	mounted := t.TempDir()
	if err := unix.Mount(dir, mounted, "", unix.MS_BIND, ""); err != nil {
		require(t, "the right to mount a directory read-only: "+err.Error())
	}
	t.Cleanup(func() { unix.Unmount(mounted, unix.MNT_DETACH) })
	if err := unix.Mount("", mounted, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		require(t, "the right to mount a directory read-only: "+err.Error())
	}
	return mounted
}

// TestReadOnlyDirectory reads what a killed process left in a directory that is
// read-only, with two journals at once.
func TestReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	p := startChild(t, nil, "commands", dir, "run", "")
	c := newChecker(t)
	p.next()
	for range 4 {
		p.say("append 700")
		c.add([]ack{p.next()})
	}
	p.kill()
	before := readStore(t, dir)
	mounted := makeReadOnly(t, dir)
	one := openAt(t, mounted)
	two := openAt(t, mounted)
	for _, j := range []*Journal{one, two} {
		c.everything(j)
		if err := j.ReadOnly(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("read-only as %v, want ErrReadOnly", err)
		}
		if _, err := j.Create(t.Context(), Session{UID: "s"}); !errors.Is(err, ErrReadOnly) || errors.Is(err, ErrPoisoned) {
			t.Errorf("%v, want ErrReadOnly", err)
		}
	}
	closeJournal(t, one)
	closeJournal(t, two)
	if diff := before.diff(readStore(t, dir)); diff != "" {
		t.Errorf("reading changed %s", diff)
	}
}

// TestReadOnlyDirectory_Held: who can write keeps those away who can only read.
func TestReadOnlyDirectory_Held(t *testing.T) {
	if os.Geteuid() != 0 {
		require(t, "a directory that is read-only for some")
	}
	dir := t.TempDir()
	openIn(t, dir)
	if _, err := Open(makeReadOnly(t, dir), Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("%v, want ErrLocked", err)
	}
}

// TestReadOnlyDirectory_Empty: nothing is there, and nothing can be made.
func TestReadOnlyDirectory_Empty(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := makeReadOnly(t, dir)
	for _, d := range []string{mounted, filepath.Join(mounted, "below")} {
		if _, err := Open(d, Options{}); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%q: %v", d, err)
		}
	}
}

// TestReadOnlyDirectory_NoLock reads a copy that someone made without the lock file.
func TestReadOnlyDirectory_NoLock(t *testing.T) {
	dir := t.TempDir()
	j := openAt(t, dir)
	create(t, j, "s", "p", "")
	extend(t, j, "s", 3)
	closeJournal(t, j)
	mounted := makeReadOnly(t, dir)
	if mounted == dir {
		require(t, "a directory that is read-only for some")
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	j = openAt(t, mounted)
	defer closeJournal(t, j)
	if n, _, err := j.Verify(t.Context(), "s", VerifyOptions{}); n != 3 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
}

// TestWriteAheadFilesAreAllocated has the store begin several, and looks after each
// write whether there is a block for all that was written.
func TestWriteAheadFilesAreAllocated(t *testing.T) {
	dir := t.TempDir()
	store, err := openBadger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := journalOn(t, store)
	seen := map[int]bool{}
	for i := range 10 {
		if _, err := j.PutBlob(t.Context(), bytes.Repeat([]byte{byte(i + 1)}, 5<<20)); err != nil {
			t.Fatal(err)
		}
		log := *store.space.last()
		name := store.space.logName(log.number)
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		written := int64(len(bytes.TrimRight(data, "\x00")))
		if written > log.used || log.used > log.claimed {
			t.Errorf("%s: %d bytes written, counted as %d, with blocks for %d", name, written, log.used, log.claimed)
		}
		if got := allocated(info); got < log.claimed {
			if allocate(name, walBytes) == nil {
				if info, err := os.Stat(name); err == nil && allocated(info) < walBytes {
					require(t, "a file system that can allocate")
				}
			}
			t.Errorf("%s takes %d bytes of the disk, want %d", name, got, log.claimed)
		}
		seen[log.number] = true
	}
	if len(seen) < 3 {
		t.Errorf("saw only %v", seen)
	}
}

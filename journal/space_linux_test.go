package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnlyDirectory mounts one, as permissions do not bind every user.
func TestReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, lockName), 0o400); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o700) })
	} else {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			require(t, "the right to mount a directory read-only: "+err.Error())
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			require(t, "the right to mount a directory read-only: "+err.Error())
		}
	}
	for _, d := range []string{dir, filepath.Join(dir, "below")} {
		if _, err := Open(d, Options{}); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%q: %v", d, err)
		}
	}
}

// TestWriteAheadFilesAreAllocated has the store begin several, and looks at each.
func TestWriteAheadFilesAreAllocated(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Stat_t
	store, err := openBadger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := journalOn(t, store)
	seen := map[string]bool{}
	for i := range 10 {
		names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		if err != nil {
			t.Fatal(err)
		}
		newest := names[len(names)-1]
		if err := unix.Stat(newest, &fs); err != nil {
			t.Fatal(err)
		}
		if got := fs.Blocks * 512; got < walBytes {
			if allocate(newest, walBytes) == nil && unix.Stat(newest, &fs) == nil && fs.Blocks*512 < walBytes {
				require(t, "a file system that can allocate")
			}
			t.Errorf("%s has %d bytes allocated, want %d", newest, got, walBytes)
		}
		seen[newest] = true
		blob := make([]byte, 5<<20)
		blob[0] = byte(i)
		if _, err := j.PutBlob(t.Context(), blob); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 3 {
		t.Errorf("saw only %v", seen)
	}
}

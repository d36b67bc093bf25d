package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/secret"
)

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }

// store is a store with the secrets one and two, and its directory.
func store(t *testing.T) (*secret.Store, string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no lock between processes")
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := secret.In(dir, clock)
	for name, value := range map[string]string{"one": "canary-1", "two": "canary-2\nand\x00more\xff"} {
		if err := s.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return s, dir
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// kept checks what the store has.
func kept(t *testing.T, s *secret.Store, want map[string]string) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range list {
		value, err := s.Get(e.Name)
		if err != nil {
			t.Error(err)
		}
		got[e.Name] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

func TestStore(t *testing.T) {
	s, dir := store(t)
	list, err := s.List()
	at := clock().Truncate(time.Second)
	if diff := cmp.Diff([]secret.Entry{{Name: "one", Set: at}, {Name: "two", Set: at}}, list); diff != "" || err != nil {
		t.Errorf("%v, list (-want +got):\n%s", err, diff)
	}
	if err := s.Set("one", "canary-3"); err != nil {
		t.Fatal(err)
	}
	kept(t, secret.In(dir, nil), map[string]string{"one": "canary-3", "two": "canary-2\nand\x00more\xff"})
	if err := s.Remove("one"); err != nil {
		t.Fatal(err)
	}
	kept(t, s, map[string]string{"two": "canary-2\nand\x00more\xff"})
	for _, err := range []error{s.Remove("one"), get(s, "one"), secret.In(t.TempDir(), nil).Remove("two"), get(secret.In(filepath.Join(dir, "none"), nil), "two")} {
		if !errors.Is(err, secret.ErrNotFound) {
			t.Errorf("a secret that is not there: %v", err)
		}
	}
	files, err := os.ReadDir(dir)
	check(t, err)
	for _, f := range files {
		if !slices.Contains(secret.Files(), f.Name()) {
			t.Errorf("%s is not among the files of a store", f.Name())
		}
	}
	for _, name := range []string{secret.FileName, secret.KeyName} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		if bytes.Contains(content(t, path), []byte("canary")) || bytes.Contains(content(t, path), []byte("two")) {
			t.Errorf("%s has a value or a name in it", name)
		}
	}
}

func get(s *secret.Store, name string) error {
	_, err := s.Get(name)
	return err
}

func TestStore_Refuses(t *testing.T) {
	s, _ := store(t)
	for _, err := range []error{
		s.Set("", "canary"),
		s.Set("canary value", "x"),
		s.Set("-canary", "x"),
		s.Set(strings.Repeat("canary", 30), "x"),
		s.Set("empty", ""),
		s.Set("large", strings.Repeat("canary", secret.MaxValue)),
		get(s, "canary value"),
		s.Remove("canary value"),
	} {
		if !errors.Is(err, secret.ErrInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
	kept(t, s, map[string]string{"one": "canary-1", "two": "canary-2\nand\x00more\xff"})
	full := func() error {
		value := strings.Repeat("x", secret.MaxValue)
		for i := range 20 {
			if err := s.Set(fmt.Sprintf("n%d", i), value); err != nil {
				return err
			}
		}
		return nil
	}()
	if !errors.Is(full, secret.ErrInvalid) {
		t.Errorf("a store without bound: %v", full)
	}
	if err := get(s, "one"); err != nil {
		t.Error(err)
	}
}

// Whatever is wrong with the files is an error that says what to do. Nothing is
// written then, and with the files put right every secret is there again.
func TestStore_Damage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, store, key string)
		want  error
		text  string
	}{
		{"key lost", func(t *testing.T, _, key string) { check(t, os.Remove(key)) }, secret.ErrKey, "is missing; put it back"},
		{"key of another store", func(t *testing.T, _, key string) {
			other := t.TempDir()
			check(t, secret.In(other, nil).Set("a", "b"))
			rewrite(t, key, content(t, filepath.Join(other, secret.KeyName)))
		}, secret.ErrKey, "is not the key of"},
		{"no key file", func(t *testing.T, _, key string) { rewrite(t, key, []byte("canary-key")) }, secret.ErrKey, "is not a key file"},
		{"key cut off", func(t *testing.T, _, key string) { rewrite(t, key, content(t, key)[:40]) }, secret.ErrKey, "is not a key file"},
		{"key is a directory", func(t *testing.T, _, key string) {
			check(t, os.Remove(key))
			check(t, os.Mkdir(key, 0o700))
		}, secret.ErrKey, "is no file"},
		{"key for the group", func(t *testing.T, _, key string) { check(t, os.Chmod(key, 0o640)) }, secret.ErrKey, "mode 0640); run chmod 600"},
		{"key for others", func(t *testing.T, _, key string) { check(t, os.Chmod(key, 0o604)) }, secret.ErrKey, "mode 0604"},
		{"store cut off", func(t *testing.T, store, _ string) { rewrite(t, store, content(t, store)[:60]) }, secret.ErrDamaged, "was changed or cut off"},
		{"store cut in its head", func(t *testing.T, store, _ string) { rewrite(t, store, content(t, store)[:25]) }, secret.ErrDamaged, "does not begin"},
		{"store empty", func(t *testing.T, store, _ string) { rewrite(t, store, nil) }, secret.ErrDamaged, "does not begin"},
		{"one bit", func(t *testing.T, store, _ string) {
			b := content(t, store)
			b[len(b)-20] ^= 1
			rewrite(t, store, b)
		}, secret.ErrDamaged, "was changed or cut off"},
		{"too large", func(t *testing.T, store, _ string) { check(t, os.Truncate(store, 2<<20)) }, secret.ErrDamaged, "has more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, dir := store(t)
			sealed, key := filepath.Join(dir, secret.FileName), filepath.Join(dir, secret.KeyName)
			goodStore, goodKey := content(t, sealed), content(t, key)
			tt.spoil(t, sealed, key)
			spoiled := content(t, sealed)
			_, listed := s.List()
			for _, err := range []error{get(s, "one"), listed, s.Set("three", "canary"), s.Remove("one")} {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "canary") {
					t.Errorf("%v; want %v, with %q", err, tt.want, tt.text)
				}
			}
			if !bytes.Equal(spoiled, content(t, sealed)) {
				t.Error("a store that could not be read was written")
			}
			check(t, os.RemoveAll(key))
			rewrite(t, key, goodKey)
			check(t, os.Chmod(key, 0o600))
			rewrite(t, sealed, goodStore)
			kept(t, s, map[string]string{"one": "canary-1", "two": "canary-2\nand\x00more\xff"})
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, path string, b []byte) {
	t.Helper()
	check(t, os.WriteFile(path, b, 0o600))
}

// What a killed process has left half written is neither read nor in the way.
func TestStore_Draft(t *testing.T) {
	s, dir := store(t)
	draft := filepath.Join(dir, secret.FileName+".new")
	check(t, os.WriteFile(draft, []byte("half"), 0o644))
	if err := s.Set("one", "canary-4"); err != nil {
		t.Fatal(err)
	}
	kept(t, s, map[string]string{"one": "canary-4", "two": "canary-2\nand\x00more\xff"})
	if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft: %v", err)
	}
}

// The key may be on another disk, behind a link.
func TestStore_KeyBehindALink(t *testing.T) {
	s, dir := store(t)
	key, elsewhere := filepath.Join(dir, secret.KeyName), filepath.Join(t.TempDir(), "key")
	check(t, os.Rename(key, elsewhere))
	check(t, os.Symlink(elsewhere, key))
	check(t, s.Set("one", "canary-5"))
	kept(t, s, map[string]string{"one": "canary-5", "two": "canary-2\nand\x00more\xff"})
}

// Processes that change a store at the same time lose nothing of each other, and who
// reads meanwhile finds a whole store. A lock is of an open file, so that two stores of
// one process stand for two processes.
func TestStore_Writers(t *testing.T) {
	s, dir := store(t)
	want := map[string]string{"one": "canary-1", "two": "canary-2\nand\x00more\xff"}
	var wg sync.WaitGroup
	for i := range 8 {
		name, value := fmt.Sprintf("w%d", i), fmt.Sprintf("canary-w%d", i)
		want[name] = value
		wg.Go(func() {
			own := secret.In(dir, nil)
			if err := errors.Join(own.Set(name, value), get(own, "one"), get(own, name)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kept(t, s, want)
}

// The first writers of a store agree on its key.
func TestStore_FirstWriters(t *testing.T) {
	_, dir := store(t)
	dir = filepath.Join(dir, "fresh")
	want := map[string]string{}
	var wg sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("w%d", i)
		want[name] = name
		wg.Go(func() {
			if err := secret.In(dir, nil).Set(name, name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kept(t, secret.In(dir, nil), want)
}

// Package secret owns the secrets of a data directory: values by name, encrypted in
// one file, and the key to it in another one that only its owner may read.
//
// Who reads the store gets a value when it is needed, and nobody keeps one: what is
// set anew counts for the next call. No error holds a value (S4).
//
// The file "secrets" is the line "agentcell secrets 1", the id of its key (8 bytes), a
// nonce (12 bytes), and JSON sealed with AES-256-GCM, which covers what stands before
// it too. Key and id come from the 32 bytes of "secrets.key" by HKDF with SHA-256. Each
// change writes a whole new file in the place of the old one.
//
// The package imports no other of ours.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// The files of a store.
const (
	FileName = "secrets"
	KeyName  = "secrets.key"
	lockName = "secrets.lock"
	draft    = ".new" // behind the name of a file that is being written
)

// Files are the names of all files that a store may have.
func Files() []string {
	return []string{FileName, KeyName, lockName, FileName + draft, KeyName + draft}
}

// Bounds of a store.
const (
	// MaxValue is the size of the largest value.
	MaxValue = 64 << 10
	maxFile  = 1 << 20
)

// What can be wrong. The errors that wrap these say what can be done.
var (
	// ErrNotFound reports a name that no secret has.
	ErrNotFound = errors.New("no such secret")
	// ErrInvalid reports a name or a value that a store does not take.
	ErrInvalid = errors.New("not a valid secret")
	// ErrKey reports a key file that is missing, is of another store, or that others
	// may read.
	ErrKey = errors.New("the key of the secrets cannot be used")
	// ErrDamaged reports a store that is not as it was written.
	ErrDamaged = errors.New("the secrets are damaged")
)

// Store is the secrets of one directory. It holds nothing open, and is safe for
// concurrent use, also by many processes: a change waits for the one before.
type Store struct {
	dir string
	now func() time.Time
}

// In is the store in dir. Neither need exist before the first Set. A nil now is the
// machine's clock.
func In(dir string, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{dir: dir, now: now}
}

// Entry is what a store tells of a secret.
type Entry struct {
	Name string    `json:"name"`
	Set  time.Time `json:"set"`
}

// entry is a secret as it is kept.
type entry struct {
	Value []byte    `json:"value"`
	Set   time.Time `json:"set"`
}

var nameRule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// CheckName reports with ErrInvalid what cannot be the name of a secret. The name is
// not repeated: somebody may have taken it for the place of the value.
func CheckName(name string) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("%w: a name is 1 to 128 letters, digits, _, - and ., and begins with a letter or _", ErrInvalid)
	}
	return nil
}

// Get gives the value of a secret: ErrNotFound, ErrKey or ErrDamaged if it cannot.
func (s *Store) Get(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	all, err := s.load()
	if err != nil {
		return "", err
	}
	e, ok := all[name]
	if !ok {
		return "", notFound(name)
	}
	return string(e.Value), nil
}

func notFound(name string) error {
	return fmt.Errorf("%w: %q; agentctl secret set %s makes it", ErrNotFound, name, name)
}

// List gives the names in their order, and never a value.
func (s *Store) List() ([]Entry, error) {
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, Entry{Name: name, Set: all[name].Set})
	}
	return list, nil
}

// Set keeps a value under a name, in the place of the one that was there. It is on disk
// when Set returns.
func (s *Store) Set(name, value string) error {
	switch err := CheckName(name); {
	case err != nil:
		return err
	case value == "":
		return fmt.Errorf("%w: the value is empty", ErrInvalid)
	case len(value) > MaxValue:
		return fmt.Errorf("%w: the value has more than %d bytes", ErrInvalid, MaxValue)
	}
	return s.change(func(all map[string]entry) error {
		all[name] = entry{Value: []byte(value), Set: s.now().UTC().Truncate(time.Second)}
		return nil
	})
}

// Remove takes a secret away, or says with ErrNotFound that there is none.
func (s *Store) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := os.Stat(s.path(FileName)); errors.Is(err, fs.ErrNotExist) {
		return notFound(name) // and no store is made
	}
	return s.change(func(all map[string]entry) error {
		if _, ok := all[name]; !ok {
			return notFound(name)
		}
		delete(all, name)
		return nil
	})
}

// change replaces the file by one that f has changed.
func (s *Store) change(f func(map[string]entry) error) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	unlock, err := lock(s.path(lockName))
	if err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	defer unlock()
	all, err := s.load()
	if err != nil {
		return err
	}
	if err := f(all); err != nil {
		return err
	}
	k, err := s.key()
	if errors.Is(err, fs.ErrNotExist) {
		k, err = s.newKey()
	}
	if err != nil {
		return err
	}
	sealed, err := k.seal(all)
	if err != nil {
		return err
	}
	return s.replace(FileName, sealed)
}

// load reads all secrets; there are none where there is no file.
func (s *Store) load() (map[string]entry, error) {
	sealed, err := readBounded(s.path(FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]entry{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	k, err := s.key()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %q is missing; put it back, or remove %q to begin anew without its secrets",
			ErrKey, s.path(KeyName), s.path(FileName))
	}
	if err != nil {
		return nil, err
	}
	all, err := k.open(sealed)
	switch {
	case errors.Is(err, errOtherKey):
		return nil, fmt.Errorf("%w: %q is not the key of %q; put back the one that is", ErrKey, s.path(KeyName), s.path(FileName))
	case err != nil:
		return nil, fmt.Errorf("%w: %q %w; put back a copy of it, or remove it to begin anew without its secrets", ErrDamaged, s.path(FileName), err)
	}
	return all, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

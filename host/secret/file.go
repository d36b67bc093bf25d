package secret

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// replace puts content in the place of a file, as a whole or not at all, and has it on
// disk. The caller has the lock.
func (s *Store) replace(name string, content []byte) error {
	fresh := s.path(name + draft)
	err := write(fresh, content)
	if err == nil {
		err = s.put(fresh, s.path(name))
	}
	if err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	return nil
}

// write makes a file that only its owner may read. What a killed process has left
// there goes.
func write(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// put gives a file its name.
func (s *Store) put(fresh, path string) error {
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%w: %q has more than %d bytes", ErrDamaged, path, maxFile)
	}
	return b, err
}

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Ref is a name that stands for a digest. Names of different kinds have nothing
// to do with one another.
type Ref struct {
	Name   string
	Digest abi.Digest
	// Note is the caller's own.
	Note []byte
}

// SetRef lets a name of a kind stand for a digest, durably when it returns. One
// that is there already is replaced. Of two calls at once one comes second.
func (j *Journal) SetRef(ctx context.Context, kind string, r Ref) error {
	err := checkRef(kind, r.Name)
	if err == nil {
		err = j.putRef(ctx, kind, r.Name, append(r.Digest[:], r.Note...), nil)
	}
	if err != nil {
		return fmt.Errorf("set %s %.140q: %w", kind, r.Name, err)
	}
	return nil
}

// AddRef is SetRef for a ref that is about a session: it wraps ErrExists if the name
// stands for something, so that of two calls at once one succeeds, and ErrNotFound
// if the session is not there, so that no ref comes too late to keep what Collect
// then takes away.
func (j *Journal) AddRef(ctx context.Context, kind string, r Ref, about abi.SessionID) error {
	err := checkRef(kind, r.Name)
	if err == nil {
		err = j.putRef(ctx, kind, r.Name, append(r.Digest[:], r.Note...), func(st *stage, key []byte) error {
			if _, err := st.head(about); err != nil {
				return err
			}
			if taken, err := st.takenRef(key); taken || err != nil {
				return cmp.Or(err, ErrExists)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("add %s %.140q: %w", kind, r.Name, err)
	}
	return nil
}

// RemoveRef takes a name of a kind away, durably when it returns. It wraps
// ErrNotFound; of two calls at once both may succeed. What the name stood for
// stays.
func (j *Journal) RemoveRef(ctx context.Context, kind, name string) error {
	_, err := j.ref(kind, name)
	if err == nil {
		err = j.putRef(ctx, kind, name, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("remove %s %.140q: %w", kind, name, err)
	}
	return nil
}

// putRef writes a ref's row unless check, if there is one, refuses its key. An empty
// row stands for a name that was removed.
func (j *Journal) putRef(ctx context.Context, kind, name string, row []byte, check func(*stage, []byte) error) error {
	e := Entry{refKey(kind, name), row}
	return j.writer.do(ctx, &job{
		size: e.size(),
		stage: func(st *stage) error {
			if check != nil {
				if err := check(st, e.Key); err != nil {
					return err
				}
			}
			st.added[string(e.Key)] = len(row) > 0
			st.batch.Put(e)
			return nil
		},
	})
}

// takenRef reports whether a ref stands under key after what the batch has so far.
func (st *stage) takenRef(key []byte) (bool, error) {
	if taken, ok := st.added[string(key)]; ok {
		return taken, nil
	}
	row, err := st.get(key)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return len(row) > 0, err
}

// Ref is what a name of a kind stands for. It wraps ErrNotFound.
func (j *Journal) Ref(kind, name string) (Ref, error) {
	r, err := j.ref(kind, name)
	if err != nil {
		return Ref{}, fmt.Errorf("%s %.140q: %w", kind, name, err)
	}
	return r, nil
}

func (j *Journal) ref(kind, name string) (Ref, error) {
	if checkRef(kind, name) != nil {
		return Ref{}, ErrNotFound
	}
	row, err := j.get(refKey(kind, name))
	if err != nil {
		return Ref{}, err
	}
	if len(row) == 0 {
		return Ref{}, ErrNotFound
	}
	return decodeRef(name, row)
}

// Refs lists the refs of a kind by name, in the order of their bytes.
func (j *Journal) Refs(kind string) ([]Ref, error) {
	if err := checkName("kind", kind); err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	view := j.view()
	defer view.Close()
	var refs []Ref
	prefix := refKey(kind, "")
	for e, err := range view.Scan(prefix, after(prefix), false) {
		if err == nil && len(e.Value) == 0 {
			continue
		}
		var r Ref
		if err == nil {
			r, err = decodeRef(string(e.Key[len(prefix):]), e.Value)
		}
		if err != nil {
			return nil, fmt.Errorf("list refs of kind %q: %w", kind, err)
		}
		refs = append(refs, r)
	}
	return refs, nil
}

func checkRef(kind, name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	return errors.Join(checkName("kind", kind), checkName("name", name))
}

// refKey is the key of a ref. The length byte of its prefix keeps kinds apart.
func refKey(kind, name string) []byte {
	return append(projectPrefix(kindRef, kind), name...)
}

// decodeRef reads a ref's row, which it does not keep.
func decodeRef(name string, row []byte) (Ref, error) {
	r := Ref{Name: name}
	if len(row) < len(r.Digest) {
		return Ref{}, fmt.Errorf("%w: the row of %q is cut short", ErrCorrupt, name)
	}
	n := copy(r.Digest[:], row)
	r.Note = append(r.Note, row[n:]...)
	return r, nil
}

package journal

import "context"

// Journal is completed by journal-core, who deletes this file: image.go needs
// get (point read; wraps ErrNotFound) and put (durable on return, in order,
// split into batches as needed).
type Journal struct{}

func (j *Journal) get(key []byte) ([]byte, error) { return nil, ErrNotFound }

func (j *Journal) put(ctx context.Context, rows []entry) error { return nil }

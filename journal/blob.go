package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// blobChunk is how much of a blob one entry holds. A blob is no longer than a
// chunk per 32-bit number.
const blobChunk = 512 << 10

// Blob returns the bytes with the digest d. It wraps ErrNotFound, or ErrCorrupt
// if what is stored has another digest. The caller owns the bytes.
func (j *Journal) Blob(d abi.Digest) ([]byte, error) {
	b, err := j.blob(d)
	if err != nil {
		return nil, fmt.Errorf("blob %v: %w", d, err)
	}
	return b, nil
}

func (j *Journal) blob(d abi.Digest) ([]byte, error) {
	view := j.view()
	defer view.Close()
	first, err := view.Get(blobKey(d, 0))
	if err != nil {
		return nil, err
	}
	if len(first) < 8 {
		return nil, fmt.Errorf("%w: its first chunk is cut short", ErrCorrupt)
	}
	length := binary.BigEndian.Uint64(first)
	b := slices.Clone(first[8:])
	for chunk := uint32(1); uint64(len(b)) < length; chunk++ {
		next, err := view.Get(blobKey(d, chunk))
		if errors.Is(err, ErrNotFound) || err == nil && len(next) == 0 {
			return nil, fmt.Errorf("%w: chunk %d is missing", ErrCorrupt, chunk)
		}
		if err != nil {
			return nil, err
		}
		b = append(b, next...)
	}
	if got := abi.DigestOf(b); got != d {
		return nil, fmt.Errorf("%w: its %d bytes have the digest %v", ErrCorrupt, len(b), got)
	}
	return b, nil
}

// HasBlob reports whether the blob is stored, without reading it. It stays stored
// under a Hold that is older than the call.
func (j *Journal) HasBlob(d abi.Digest) (bool, error) {
	j.guard.sweeping.RLock()
	defer j.guard.sweeping.RUnlock()
	j.guard.touchRow(kindBlob, d)
	_, err := j.get(blobKey(d, 0))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("blob %v: %w", d, err)
	}
	return true, nil
}

// PutBlob stores b, durably when it returns, and gives its digest. A blob is
// stored once, however often it is put.
func (j *Journal) PutBlob(ctx context.Context, b []byte) (abi.Digest, error) {
	defer j.Hold()()
	rows, err := j.newBlobs([][]byte{b})
	if err == nil {
		err = j.put(ctx, rows)
	}
	if err != nil {
		return abi.Digest{}, fmt.Errorf("put blob: %w", err)
	}
	return abi.DigestOf(b), nil
}

// newBlobs are the entries of those blobs that are not stored yet, in an order
// in which a blob's first chunk, by which it is found, comes last.
func (j *Journal) newBlobs(blobs [][]byte) ([]Entry, error) {
	var rows []Entry
	for _, b := range blobs {
		d := abi.DigestOf(b)
		stored, err := j.HasBlob(d)
		if err != nil {
			return nil, err
		}
		if stored {
			continue
		}
		for chunk := (len(b) - 1) / blobChunk; chunk > 0; chunk-- {
			part := b[chunk*blobChunk : min(len(b), (chunk+1)*blobChunk)]
			rows = append(rows, Entry{blobKey(d, uint32(chunk)), slices.Clone(part)})
		}
		first := binary.BigEndian.AppendUint64(nil, uint64(len(b)))
		rows = append(rows, Entry{blobKey(d, 0), append(first, b[:min(len(b), blobChunk)]...)})
	}
	return rows, nil
}

package journal

import (
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/agentcell/agentcell/sdk/abi"
)

const (
	// packedTag is the first byte of a page's row that is packed: an S2 block follows.
	// Otherwise the row is the page, which is longer.
	packedTag = 1
	// worthPacking is the greatest length of a row that is packed.
	worthPacking = abi.PageSize * 3 / 4
	// packChunk is how many pages are packed, or hashed, by one goroutine at once.
	packChunk = 32
)

// packPages packs those pages among rows for which it pays, side by side, and
// reports whether there were any.
func packPages(rows []Entry) (packed bool) {
	_ = sideBySide(len(rows), packChunk, func(low, high int) error {
		block := make([]byte, s2.MaxEncodedLen(abi.PageSize))
		for i := low; i < high; i++ {
			if b := s2.Encode(block, rows[i].Value); len(b) < worthPacking {
				rows[i].Value = append(append(make([]byte, 0, 1+len(b)), packedTag), b...)
			}
		}
		return nil
	})
	for _, row := range rows {
		packed = packed || len(row.Value) < abi.PageSize
	}
	return packed
}

// unpackPage is the page that a row holds, in buf or in the row itself. What is not
// packed is only known by its hash to be a page.
func unpackPage(row []byte, buf *[abi.PageSize]byte) ([]byte, error) {
	if len(row) == 0 || len(row) > worthPacking || row[0] != packedTag {
		return row, nil
	}
	block := row[1:]
	if n, err := s2.DecodedLen(block); err != nil || n != len(buf) {
		return nil, fmt.Errorf("%w: its %d bytes are not those of a page", ErrCorrupt, len(row))
	}
	page, err := s2.Decode(buf[:], block)
	if err != nil {
		return nil, fmt.Errorf("%w: its %d bytes cannot be unpacked: %w", ErrCorrupt, len(row), err)
	}
	return page, nil
}

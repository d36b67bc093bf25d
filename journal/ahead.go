package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dgraph-io/badger/v4/y"
)

// A write-ahead file of badger's begins with a header that matters only to
// encrypted ones. Entries follow: two bytes of flags, of which the second is not
// used here; the lengths of key and value and an expiry, each a uvarint; key; value;
// the CRC-32C of all that, big-endian. Entries of a transaction are flagged, and
// one flagged as its end has its version as value, in decimal. The rest of the
// file is zero.
const (
	aheadHeader   = 20
	aheadInTxn    = 1 << 6
	aheadEndOfTxn = 1 << 7
	maxAheadKey   = 1 << 16
)

// readAheadFiles reads all write-ahead files there are.
func readAheadFiles(s *space) ([]aheadEntry, error) {
	names, err := s.files(".mem")
	if err != nil {
		return nil, err
	}
	var all []aheadEntry
	for _, name := range names {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		all, err = appendAhead(all, bufio.NewReaderSize(f, 64<<10))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("write-ahead file %q: %w", f.Name(), err)
		}
	}
	return all, nil
}

// appendAhead appends the transactions that a write-ahead file has, up to where it
// ends, was cut or has a hole: what stands behind was never acknowledged.
func appendAhead(all []aheadEntry, r *bufio.Reader) ([]aheadEntry, error) {
	if _, err := r.Discard(aheadHeader); err != nil {
		return all, unlessEnd(err)
	}
	whole := len(all) // of them are whole transactions
	for {
		e, flags, err := readAheadEntry(r)
		if err != nil {
			return all[:whole], unlessEnd(err)
		}
		switch open := all[whole:]; {
		case flags&aheadInTxn != 0:
			if len(open) > 0 && y.ParseTs(open[0].key) != y.ParseTs(e.key) {
				return all[:whole], nil
			}
			all = append(all, e)
		case flags&aheadEndOfTxn != 0:
			when, err := strconv.ParseUint(string(e.value.Value), 10, 64)
			if err != nil || len(open) == 0 || y.ParseTs(open[0].key) != when {
				return all[:whole], nil
			}
			whole = len(all)
		default:
			if len(open) > 0 {
				return all[:whole], nil
			}
			all = append(all, e)
			whole = len(all)
		}
	}
}

// unlessEnd is err unless that says that there is no more to be read.
func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// readAheadEntry reads an entry. One that is none is the end: io.EOF.
func readAheadEntry(r *bufio.Reader) (e aheadEntry, flags byte, err error) {
	const prefix = 2 + 3*binary.MaxVarintLen64
	head, err := r.Peek(prefix)
	if len(head) < 2 || unlessEnd(err) != nil {
		return e, 0, err
	}
	var lengths [3]uint64 // of the key, of the value; the expiry
	at := 2
	for i := range lengths {
		n := 0
		if lengths[i], n = binary.Uvarint(head[at:]); n <= 0 {
			return e, 0, io.EOF
		}
		at += n
	}
	klen, vlen := lengths[0], lengths[1]
	if klen < 8 || klen > maxAheadKey || vlen >= maxInline {
		return e, 0, io.EOF
	}
	b := make([]byte, at+int(klen+vlen)+crc32.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		return e, 0, err
	}
	body, sum := b[:len(b)-crc32.Size], b[len(b)-crc32.Size:]
	if crc32.Checksum(body, y.CastagnoliCrcTable) != binary.BigEndian.Uint32(sum) {
		return e, 0, io.EOF
	}
	e.key = body[at : at+int(klen)]
	e.value = y.ValueStruct{Meta: b[0] &^ (aheadInTxn | aheadEndOfTxn), Value: body[at+int(klen):]}
	return e, b[0], nil
}

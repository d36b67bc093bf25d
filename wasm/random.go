package wasm

import (
	"crypto/sha256"
	"encoding/binary"
)

// randomDomain separates the stream from every other use of a seed.
const randomDomain = "agentcell random 1\n"

// random is the stream of random_get, a function of (seed, position): block i
// is SHA-256(domain ‖ seed ‖ i as u64 little-endian). It is not part of the
// image: every turn has a seed of its own (M6).
type random struct {
	preimage [len(randomDomain) + 32 + 8]byte
	next     uint64
	block    [sha256.Size]byte
	rest     []byte // of block
}

// reset starts the stream of seed.
func (r *random) reset(seed [32]byte) {
	copy(r.preimage[:], randomDomain)
	copy(r.preimage[len(randomDomain):], seed[:])
	r.next, r.rest = 0, nil
	r.block = [sha256.Size]byte{}
}

// fill writes the stream's next len(dst) bytes.
func (r *random) fill(dst []byte) {
	for len(dst) > 0 {
		if len(r.rest) == 0 {
			binary.LittleEndian.PutUint64(r.preimage[len(r.preimage)-8:], r.next)
			r.next++
			r.block = sha256.Sum256(r.preimage[:])
			r.rest = r.block[:]
		}
		n := copy(dst, r.rest)
		dst, r.rest = dst[n:], r.rest[n:]
	}
}

//go:build !linux

package wasm

// region is a growable stretch of zeroed bytes.
type region struct{ bytes []byte }

func (r *region) resize(n int) error {
	grown := make([]byte, max(n, 1))
	copy(grown, r.bytes)
	r.bytes = grown
	return nil
}

func (r *region) free() { r.bytes = nil }

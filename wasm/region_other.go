//go:build !linux

package wasm

// allocated is a region of the Go heap.
type allocated struct{ bytes []byte }

func newRegion() region { return new(allocated) }

func (r *allocated) resize(n int) ([]byte, error) {
	bytes := make([]byte, max(n, 1))
	copy(bytes, r.bytes)
	r.bytes = bytes
	return bytes, nil
}

func (r *allocated) free() { r.bytes = nil }

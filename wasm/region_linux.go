package wasm

import "golang.org/x/sys/unix"

// mapped is a region of the kernel's: fresh pages cost nothing until they are
// touched, and growing does not copy.
type mapped struct{ bytes []byte }

func newRegion() region { return new(mapped) }

func (r *mapped) resize(n int) ([]byte, error) {
	n = max(n, 1) // the kernel maps no less
	var bytes []byte
	var err error
	if r.bytes == nil {
		bytes, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	} else {
		bytes, err = unix.Mremap(r.bytes, n, unix.MREMAP_MAYMOVE)
	}
	if err != nil {
		return nil, err
	}
	r.bytes = bytes
	return bytes, nil
}

func (r *mapped) free() {
	if r.bytes != nil {
		_ = unix.Munmap(r.bytes) // it fails only for what was not mapped
		r.bytes = nil
	}
}

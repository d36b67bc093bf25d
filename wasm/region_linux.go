package wasm

import "golang.org/x/sys/unix"

// region is a growable stretch of zeroed bytes. Fresh pages cost nothing until
// they are touched, and growing does not copy.
type region struct{ bytes []byte }

func (r *region) resize(n int) error {
	n = max(n, 1) // the kernel maps at least a page
	var grown []byte
	var err error
	if r.bytes == nil {
		grown, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	} else {
		grown, err = unix.Mremap(r.bytes, n, unix.MREMAP_MAYMOVE)
	}
	if err != nil {
		return err
	}
	r.bytes = grown
	return nil
}

func (r *region) free() {
	if r.bytes != nil {
		// It fails only for a region that is not ours.
		_ = unix.Munmap(r.bytes)
		r.bytes = nil
	}
}

package journal

import "sync"

// versions numbers the transactions of a badger store, and says which of their
// versions are in use. Badger could do both itself, but would then have every
// view wait for the commit that is under way.
type versions struct {
	mu sync.Mutex
	// last is the newest version that is committed.
	last uint64
	// views counts the open views of each version.
	views map[uint64]int
}

// open begins behind the newest version that the store has.
func (v *versions) open(last uint64) {
	v.last = last
	v.views = make(map[uint64]int)
}

func (v *versions) newest() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// acquire begins a view of the newest version.
func (v *versions) acquire() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.views[v.last]++
	return v.last
}

// release ends a view.
func (v *versions) release(version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.views[version]--; v.views[version] == 0 {
		delete(v.views, version)
	}
}

// committed makes version the newest, and gives the oldest one in use: values
// that were overwritten at or before it can go.
func (v *versions) committed(version uint64) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = version
	oldest := version
	for used := range v.views {
		oldest = min(oldest, used)
	}
	return oldest
}

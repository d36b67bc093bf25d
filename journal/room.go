package journal

import "fmt"

// Room is how much may be written to the disk that a journal is on.
type Room struct {
	// Free is what this process may still write there, math.MaxInt64 where the
	// system does not tell.
	Free int64
	// Need is what a small append wants to find free: with less, appends are
	// refused with ErrFull.
	Need int64
}

// Room tells how much may be written. A journal that is on no disk has the zero
// Room.
func (j *Journal) Room() (Room, error) {
	if j.closed.Load() {
		return Room{}, fmt.Errorf("free space: %w", ErrClosed)
	}
	disk, ok := j.store.(interface{ room() (Room, error) })
	if !ok {
		return Room{}, nil
	}
	return disk.room()
}

func (s *badgerStorage) room() (Room, error) {
	s.use.RLock()
	defer s.use.RUnlock()
	if s.lost != nil {
		return Room{}, s.lost
	}
	free, err := s.space.free(s.space.dir)
	if err != nil {
		return Room{}, fmt.Errorf("free space of %q: %w", s.space.dir, err)
	}
	return Room{Free: free, Need: s.space.safe(0)}, nil
}

// ReadOnly says why the journal can only be read: ErrReadOnly, or ErrFull, in which
// case appends try again, and succeed once there is room. It is nil if the journal
// can be written.
func (j *Journal) ReadOnly() error {
	if s, ok := j.store.(*standby); ok {
		return s.readOnly()
	}
	return nil
}

// Damage names the tables of the store that were found damaged, as ErrCorrupt, or
// is nil. What is damaged of a session cannot be read, and Verify says what that is;
// the others go on. But nothing that was overwritten or deleted gives up its room
// while there is a damaged table: sessions that verify are best moved to a new journal.
func (j *Journal) Damage() error {
	disk, ok := j.store.(interface{ damaged() error })
	if !ok {
		return nil
	}
	return disk.damaged()
}

// Format is the version of the journal's keys and rows.
func (j *Journal) Format() int { return formatVersion }

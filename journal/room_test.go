package journal

import (
	"errors"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Room says when appends are refused.
func TestRoom(t *testing.T) {
	j, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	space := j.store.(*badgerStorage).space
	free := int64(1 << 40)
	space.free = func(string) (int64, error) { return free, nil }
	create := func(n byte) error {
		_, err := j.Create(t.Context(), Session{UID: abi.NewSessionID([12]byte{n}), Project: "p"})
		return err
	}
	room, err := j.Room()
	if err != nil || room.Free != free || room.Need < defaultFreeReserve {
		t.Fatalf("room %+v: %v", room, err)
	}
	free = room.Need + 4096 // and what the rows themselves take
	if err := create(1); err != nil {
		t.Errorf("with room: %v", err)
	}
	free = room.Need
	if err := create(2); !errors.Is(err, ErrFull) {
		t.Errorf("without room: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Room(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	memory := OpenMemory()
	defer memory.Close()
	if room, err := memory.Room(); err != nil || room != (Room{}) {
		t.Errorf("in memory: %+v: %v", room, err)
	}
}

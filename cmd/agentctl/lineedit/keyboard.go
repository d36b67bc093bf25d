package lineedit

import (
	"io"
	"sync"
)

// keyboard is the keys that were typed and not used yet.
type keyboard struct {
	wake chan struct{} // something changed

	mu    sync.Mutex
	typed []key
	gone  error // why no more come
	// interrupt takes Ctrl-C while it is set.
	interrupt func()
}

func newKeyboard(keys io.Reader) *keyboard {
	k := &keyboard{wake: make(chan struct{}, 1)}
	go k.listen(keys)
	return k
}

// listen takes keys as they come, whether or not somebody wants them: Ctrl-C
// cannot wait.
func (k *keyboard) listen(r io.Reader) {
	const most = 64 << 10
	var d decoder
	b := make([]byte, most)
	for {
		n, err := r.Read(b)
		keys := d.feed(b[:n])
		k.mu.Lock()
		k.add(keys)
		k.gone = err
		k.mu.Unlock()
		select {
		case k.wake <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// add keeps keys for whoever wants them. Ctrl-C takes with it what was typed
// before.
func (k *keyboard) add(keys []key) {
	const most = 4096 // of what is typed ahead
	for _, pressed := range keys {
		switch {
		case pressed.action == interrupt && k.interrupt != nil:
			k.typed = nil
			k.interrupt()
		case len(k.typed) < most:
			k.typed = append(k.typed, pressed)
		}
	}
}

// next gives the first key that was not used; ok is false if there is none, and
// gone says whether there will be.
func (k *keyboard) next() (pressed key, ok bool, gone error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.typed) == 0 {
		return key{}, false, k.gone
	}
	pressed = k.typed[0]
	k.typed = k.typed[1:]
	return pressed, true, nil
}

// forget drops what was typed ahead.
func (k *keyboard) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.typed = nil
}

func (k *keyboard) onInterrupt(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.interrupt = f
}

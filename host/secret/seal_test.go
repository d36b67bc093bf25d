package secret

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever stands in the file, it is what the key has sealed, or an error.
func FuzzOpen(f *testing.F) {
	k, err := keyOf(bytes.Repeat([]byte{7}, keySize))
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := k.seal(map[string]entry{"a": {Value: []byte("b")}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{nil, []byte(header), sealed, sealed[:len(sealed)-1], append(bytes.Clone(sealed), 0)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := k.open(b)
		switch {
		case err == nil: // sealed here, or by another process of the fuzzer
			if diff := cmp.Diff(map[string]entry{"a": {Value: []byte("b")}}, all); diff != "" {
				t.Errorf("secrets (-want +got):\n%s", diff)
			}
		case !errors.Is(err, errForm) && !errors.Is(err, errSeal) && !errors.Is(err, errOtherKey):
			t.Errorf("%v, %v", all, err)
		}
	})
}

// BenchmarkGet is what a call that needs a secret pays for it, among a hundred.
func BenchmarkGet(b *testing.B) {
	s := In(b.TempDir(), nil)
	if err := s.change(func(all map[string]entry) error {
		for i := range 100 {
			all[fmt.Sprintf("key-%d", i)] = entry{Value: bytes.Repeat([]byte("x"), 100)}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get("key-50"); err != nil {
			b.Fatal(err)
		}
	}
}

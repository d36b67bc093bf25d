package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	header    = "agentcell secrets 1\n"
	keyHeader = "agentcell secret key 1 "
	keySize   = 32
	idSize    = 8
)

// The reasons why a file cannot be opened.
var (
	errOtherKey = errors.New("has another key")
	errForm     = errors.New("does not begin as it should")
	errSeal     = errors.New("was changed or cut off after it was written")
)

// key seals and opens the file.
type key struct {
	id   []byte
	aead cipher.AEAD
}

func keyOf(bytes []byte) (*key, error) {
	id, err := hkdf.Key(sha256.New, bytes, nil, header+"id", idSize)
	if err != nil {
		return nil, err
	}
	sealing, err := hkdf.Key(sha256.New, bytes, nil, header+"seal", keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &key{id, aead}, err
}

// key reads the key file. It may be a link to another disk: what counts is the file
// behind it. The error wraps fs.ErrNotExist if there is none, else ErrKey.
func (s *Store) key() (*key, error) {
	path := s.path(KeyName)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %q is no file", ErrKey, path)
	}
	if !private(info.Mode()) {
		return nil, fmt.Errorf("%w: others may read %q (mode %04o); run chmod 600 on it, and if somebody may have read it, set the secrets anew where they come from",
			ErrKey, path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(text)), keyHeader)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) != keySize {
		return nil, fmt.Errorf("%w: %q is not a key file; put back the one of this store", ErrKey, path)
	}
	return keyOf(raw)
}

// newKey makes the key file. The caller has the lock, and knows that there is none.
func (s *Store) newKey() (*key, error) {
	raw := make([]byte, keySize)
	rand.Read(raw) // never fails
	if err := s.replace(KeyName, []byte(keyHeader+base64.StdEncoding.EncodeToString(raw)+"\n")); err != nil {
		return nil, err
	}
	return keyOf(raw)
}

func (k *key) seal(all map[string]entry) ([]byte, error) {
	plain, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	head := append([]byte(header), k.id...)
	sealed := k.aead.Seal(head, nil, plain, head)
	if len(sealed) > maxFile {
		return nil, fmt.Errorf("%w: all together would take more than %d bytes", ErrInvalid, maxFile)
	}
	return sealed, nil
}

func (k *key) open(sealed []byte) (map[string]entry, error) {
	const size = len(header) + idSize
	if len(sealed) < size || !bytes.HasPrefix(sealed, []byte(header)) {
		return nil, errForm
	}
	head := sealed[:size]
	if !bytes.Equal(head[len(header):], k.id) {
		return nil, errOtherKey
	}
	plain, err := k.aead.Open(nil, nil, sealed[size:], head)
	if err != nil {
		return nil, errSeal
	}
	all := map[string]entry{}
	if json.Unmarshal(plain, &all) != nil || all == nil {
		return nil, errForm // its text may have a value
	}
	return all, nil
}

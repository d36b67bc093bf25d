package journal

import "github.com/agentcell/agentcell/sdk/abi"

// The first byte of a key says what kind of row it names.
const (
	keyPage  = 'p' // + hash of a page leaf: the page
	keyNode  = 'n' // + hash of an inner node: its child hashes
	keyImage = 'i' // + root of an image: what the root hashes, see imageRow
)

// digestKey is the key of a row that is named by a hash.
func digestKey(kind byte, d abi.Digest) []byte {
	key := make([]byte, 1+len(d))
	key[0] = kind
	copy(key[1:], d[:])
	return key
}

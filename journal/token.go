package journal

import (
	"encoding/base64"
	"encoding/binary"
)

// PageToken is the token with which List goes on right behind s, whichever page
// s was on.
func PageToken(s Session) string {
	position := binary.BigEndian.AppendUint64(nil, newestFirst(s.Created))
	return base64.RawURLEncoding.EncodeToString(append(position, s.UID...))
}

package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Every key begins with one byte that says its kind; docs/journal.md describes
// all keys and values byte for byte. Images have kinds of their own.
const (
	kindFormat  = 'F' // F -> format version
	kindMeta    = 'm' // m uid -> what is fixed at creation
	kindHead    = 'h' // h uid -> head and summary
	kindName    = 'n' // n len(project) project name -> uid
	kindCreated = 'c' // c len(project) project ^created uid -> nothing
	kindDeleted = 'x' // x uid -> when the session was deleted, last record that is kept
	kindRef     = 'a' // a len(kind) kind name -> digest and note; nothing if removed
	kindRecord  = 'r' // r uid 0 seq -> fence, hash, line
	kindMark    = 'k' // k uid 0 name -> seq
	kindAccount = 'q' // q uid -> limits and counters
	kindBlob    = 'b' // b digest chunk -> bytes; chunk 0 has the length in front
)

// Limits of what a key may hold.
const (
	maxUID  = 128
	maxName = 255
)

func checkUID(uid abi.SessionID) error {
	if uid == "" || len(uid) > maxUID {
		return fmt.Errorf("session id %.140q: want 1 to %d bytes", uid, maxUID)
	}
	for _, b := range []byte(uid) {
		if b <= ' ' || b > '~' {
			return fmt.Errorf("session id %q: want printable ASCII without spaces", uid)
		}
	}
	return nil
}

func checkName(what, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("%s %.40q…: longer than %d bytes", what, name, maxName)
	}
	return nil
}

func metaKey(uid abi.SessionID) []byte { return append([]byte{kindMeta}, uid...) }

func headKey(uid abi.SessionID) []byte { return append([]byte{kindHead}, uid...) }

func deletedKey(uid abi.SessionID) []byte { return append([]byte{kindDeleted}, uid...) }

func nameKey(project, name string) []byte {
	return append(projectPrefix(kindName, project), name...)
}

// projectPrefix begins the keys of one project. Its length byte keeps the keys
// of "a" apart from those of "ab".
func projectPrefix(kind byte, project string) []byte {
	k := make([]byte, 0, 2+len(project)+8+maxUID)
	return append(append(k, kind, byte(len(project))), project...)
}

// createdKey orders a project's sessions newest first, then by uid.
func createdKey(project string, created time.Time, uid abi.SessionID) []byte {
	k := projectPrefix(kindCreated, project)
	k = binary.BigEndian.AppendUint64(k, newestFirst(created))
	return append(k, uid...)
}

// newestFirst maps times to numbers that fall as time goes on: the sign bit is
// flipped so that times before 1970 sort with the others.
func newestFirst(t time.Time) uint64 {
	return ^(uint64(t.UnixMicro()) ^ (1 << 63))
}

func recordKey(uid abi.SessionID, seq abi.Seq) []byte {
	k := make([]byte, 0, 2+len(uid)+8)
	k = append(append(k, kindRecord), uid...)
	k = append(k, 0)
	return binary.BigEndian.AppendUint64(k, uint64(seq))
}

func markKey(uid abi.SessionID, name string) []byte {
	k := make([]byte, 0, 2+len(uid)+len(name))
	k = append(append(k, kindMark), uid...)
	return append(append(k, 0), name...)
}

func accountKey(uid abi.SessionID) []byte { return append([]byte{kindAccount}, uid...) }

func blobKey(d abi.Digest, chunk uint32) []byte {
	k := append(make([]byte, 0, 1+len(d)+4), kindBlob)
	return binary.BigEndian.AppendUint32(append(k, d[:]...), chunk)
}

// after is the smallest key that does not begin with prefix and sorts behind
// all keys that do.
func after(prefix []byte) []byte {
	end := slices.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != math.MaxUint8 {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// segment says that a session's records up to seq upto, from where the segment
// before ends, are stored under uid.
type segment struct {
	uid  abi.SessionID
	upto abi.Seq
}

// metaVersion is the first byte of a meta row.
const metaVersion = 1

// encodeMeta is the meta row of s, whose ancestors' records are segs.
func encodeMeta(s Session, segs []segment) []byte {
	room := 64 + len(s.Project) + len(s.Name) + len(s.Parent) + len(s.Meta) + 40*len(segs)
	b := append(make([]byte, 0, room), metaVersion)
	b = appendString(b, s.Project)
	b = appendString(b, s.Name)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Created.UnixMicro()))
	b = appendString(b, string(s.Parent))
	b = binary.AppendUvarint(b, uint64(s.At))
	b = appendString(b, string(s.Meta))
	b = binary.AppendUvarint(b, uint64(len(segs)))
	for _, g := range segs {
		b = appendString(b, string(g.uid))
		b = binary.AppendUvarint(b, uint64(g.upto))
	}
	return b
}

func decodeMeta(uid abi.SessionID, row []byte) (s Session, segs []segment, err error) {
	if len(row) == 0 || row[0] != metaVersion {
		return s, nil, fmt.Errorf("%w: the metadata of session %q", ErrCorrupt, uid)
	}
	d := decoder{rest: row[1:]}
	s.UID = uid
	s.Project = string(d.bytes())
	s.Name = string(d.bytes())
	s.Created = time.UnixMicro(int64(d.uint64())).UTC()
	s.Parent = abi.SessionID(d.bytes())
	s.At = abi.Seq(d.uvarint())
	s.Meta = append([]byte(nil), d.bytes()...)
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		segs = append(segs, segment{abi.SessionID(d.bytes()), abi.Seq(d.uvarint())})
	}
	if d.bad || len(d.rest) != 0 {
		return Session{}, nil, fmt.Errorf("%w: the metadata of session %q", ErrCorrupt, uid)
	}
	return s, segs, nil
}

// encodeDeleted is the row that makes s, of which the records up to s.Kept are
// there, a deleted session.
func encodeDeleted(s Session) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.Deleted.UnixMicro()))
	return binary.BigEndian.AppendUint64(b, uint64(s.Kept))
}

// decodeDeleted reads that row into s.
func decodeDeleted(s *Session, row []byte) error {
	if len(row) != 16 {
		return fmt.Errorf("%w: the mark of session %q, which was deleted", ErrCorrupt, s.UID)
	}
	s.Deleted = time.UnixMicro(int64(binary.BigEndian.Uint64(row))).UTC()
	s.Kept = abi.Seq(binary.BigEndian.Uint64(row[8:]))
	return nil
}

// headLen is the length of a head row without its summary.
const headLen = 8 + 8 + len(abi.Digest{})

func encodeHead(h Head, summary []byte) []byte {
	b := make([]byte, 0, headLen+len(summary))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Seq))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Fence))
	b = append(b, h.Hash[:]...)
	return append(b, summary...)
}

func decodeHead(uid abi.SessionID, row []byte) (Head, []byte, error) {
	if len(row) < headLen {
		return Head{}, nil, fmt.Errorf("%w: the head of session %q", ErrCorrupt, uid)
	}
	h := Head{
		Seq:   abi.Seq(binary.BigEndian.Uint64(row)),
		Fence: abi.Fence(binary.BigEndian.Uint64(row[8:])),
		Hash:  abi.Digest(row[16:headLen]),
	}
	return h, append([]byte(nil), row[headLen:]...), nil
}

// recordHeader is the length of what stands before the line in a record's value.
const recordHeader = 8 + len(abi.Digest{})

// encodeRecord is the value of the record of event that extends prev, and its
// hash. The line is its tail.
func encodeRecord(event []byte, prev abi.Digest, seq abi.Seq, fence abi.Fence) ([]byte, abi.Digest) {
	v := make([]byte, recordHeader, recordHeader+lineLen(len(event)))
	binary.BigEndian.PutUint64(v, uint64(fence))
	v = appendLine(v, event, prev, seq)
	hash := abi.DigestOf(v[recordHeader:])
	copy(v[8:], hash[:])
	return v, hash
}

// decodeRecord reads a record's value, which r.Line then is a part of, without
// looking at the line: Prev is not set.
func decodeRecord(uid abi.SessionID, seq abi.Seq, v []byte) (Record, error) {
	if len(v) < recordHeader {
		return Record{}, fmt.Errorf("%w: record %d of session %q is cut short", ErrCorrupt, seq, uid)
	}
	return Record{
		Seq:   seq,
		Fence: abi.Fence(binary.BigEndian.Uint64(v)),
		Line:  v[recordHeader:],
		Hash:  abi.Digest(v[8:recordHeader]),
	}, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder reads a row; after the first thing it cannot read it is bad and gives
// zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) uint64() uint64 {
	if len(d.rest) < 8 {
		d.bad, d.rest = true, nil
		return 0
	}
	n := binary.BigEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

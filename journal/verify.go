package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Error names the record and both hashes.
func (b *Broken) Error() string {
	s := fmt.Sprintf("record %d: %s", b.Seq, b.What)
	if b.Session != "" {
		s = fmt.Sprintf("session %s: %s", b.Session, s)
	}
	if !b.Want.IsZero() || !b.Got.IsZero() {
		s += fmt.Sprintf(": want %s, got %s", hashText(b.Want), hashText(b.Got))
	}
	return s
}

func hashText(d abi.Digest) string {
	if d.IsZero() {
		return "none"
	}
	return d.String()
}

// Unwrap makes a Broken an ErrCorrupt.
func (b *Broken) Unwrap() error { return ErrCorrupt }

// verifier checks a chain record by record.
type verifier struct {
	session abi.SessionID
	options VerifyOptions
	count   int64
	head    Head
	met     bool   // options.Head
	want    []byte // how the next line ends
	strict  []byte // the canonical form of an event
}

func (v *verifier) broken(want, got abi.Digest, format string, args ...any) error {
	return &Broken{Session: v.session, Seq: v.head.Seq + 1, What: fmt.Sprintf(format, args...), Want: want, Got: got}
}

// line checks that line extends the chain.
func (v *verifier) line(line []byte) error {
	v.want = appendLineEnd(v.want[:0], v.head.Hash, v.head.Seq+1)
	if len(line) < len(lineOpen)+len(v.want) || string(line[:len(lineOpen)]) != lineOpen || !bytes.HasSuffix(line, v.want) {
		return v.diagnose(line)
	}
	if v.options.Strict {
		event := line[len(lineOpen) : len(line)-len(v.want)]
		var err error
		if v.strict, err = abi.AppendCanonical(v.strict[:0], event); err != nil || !bytes.Equal(v.strict, event) {
			return v.broken(abi.Digest{}, abi.Digest{}, "the line is not in canonical form")
		}
	}
	v.head.Seq++
	v.head.Hash = abi.DigestOf(line)
	v.met = v.met || v.head.Hash == v.options.Head
	v.count++
	return nil
}

// diagnose says why line does not extend the chain.
func (v *verifier) diagnose(line []byte) error {
	_, prev, seq, err := ParseLine(line)
	switch {
	case err != nil:
		return v.broken(abi.Digest{}, abi.Digest{}, "%v", err)
	case seq != v.head.Seq+1:
		return v.broken(abi.Digest{}, abi.Digest{}, "seq %d stands here", seq)
	default:
		return v.broken(v.head.Hash, prev, "prev_hash is not the hash of the record before")
	}
}

// end checks what can only be told at the end of the chain.
func (v *verifier) end() error {
	if v.met || v.options.Head.IsZero() {
		return nil
	}
	return v.broken(v.options.Head, v.head.Hash, "the chain ends without the given head")
}

// Verify walks a session's whole chain, its ancestors' records first: each line
// has the hash stored beside it and names the hash of the line before, seqs run
// from 1 without a gap, and the last record is the session's head. It gives the
// number of records and the head. Of a deleted session it checks what is kept.
//
// A chain that is not so is a *Broken (an ErrCorrupt) that names the first bad
// record. That the records belong to this session, and not to another whose
// chain is whole, stands in the first record, which only the caller can read.
func (j *Journal) Verify(ctx context.Context, uid abi.SessionID, o VerifyOptions) (int64, Head, error) {
	v := &verifier{session: uid, options: o}
	err := j.verify(ctx, v)
	if err != nil {
		err = fmt.Errorf("verify: %w", err)
	}
	return v.count, v.head, err
}

func (j *Journal) verify(ctx context.Context, v *verifier) error {
	view := j.view()
	defer view.Close()
	s, segs, err := session(view, v.session)
	if err != nil {
		return err
	}
	segs = append(segs, segment{s.UID, s.last()})
	for r, err := range records(view, segs, 1, s.last(), false) {
		if err != nil {
			return v.unreadable(err)
		}
		if v.count&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := v.line(r.Line); err != nil {
			return err
		}
		if v.head.Hash != r.Hash {
			return &Broken{Session: v.session, Seq: r.Seq, What: "the line is not what was hashed", Want: r.Hash, Got: v.head.Hash}
		}
		v.head.Fence = r.Fence
	}
	if v.head.Seq == s.last() && s.last() < s.Head.Seq {
		return v.end() // the rest was not kept
	}
	if v.head.Seq != s.Head.Seq || v.head.Hash != s.Head.Hash {
		return v.broken(s.Head.Hash, v.head.Hash, "the chain ends at seq %d, the session's head is seq %d", v.head.Seq, s.Head.Seq)
	}
	return v.end()
}

// unreadable makes a record that cannot be read a Broken.
func (v *verifier) unreadable(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return v.broken(abi.Digest{}, abi.Digest{}, "%v", err)
	}
	return err
}

// maxLine bounds a line of an export.
const maxLine = 64 << 20

// VerifyExport is Verify for exported lines, which end at \n only. The Head it
// gives has no fence.
func VerifyExport(r io.Reader, o VerifyOptions) (int64, Head, error) {
	v := &verifier{options: o}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 256<<10), maxLine)
	lines.Split(splitLines)
	for lines.Scan() {
		if err := v.line(lines.Bytes()); err != nil {
			return v.count, v.head, err
		}
	}
	if err := lines.Err(); err != nil {
		return v.count, v.head, fmt.Errorf("verify: %w", err)
	}
	return v.count, v.head, v.end()
}

// splitLines splits at \n and leaves everything else, \r too, in the lines.
func splitLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

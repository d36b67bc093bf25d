package journal

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The parts of a stored line around the event, the previous hash and the seq.
const (
	lineOpen  = `{"event":`
	linePrev  = `,"prev_hash":"`
	lineSeq   = `","seq":"`
	lineClose = `"}`
)

// EncodeLine returns the stored line of an encoded event, without \n.
func EncodeLine(event []byte, prev abi.Digest, seq abi.Seq) []byte {
	return appendLine(make([]byte, 0, lineLen(len(event))), event, prev, seq)
}

// lineLen bounds the length of the line of an event of n bytes.
func lineLen(n int) int {
	return n + len(lineOpen) + len(linePrev) + 2*len(abi.Digest{}) + len(lineSeq) + 19 + len(lineClose)
}

func appendLine(dst, event []byte, prev abi.Digest, seq abi.Seq) []byte {
	dst = append(dst, lineOpen...)
	dst = append(dst, event...)
	return appendLineEnd(dst, prev, seq)
}

// appendLineEnd appends what follows the event.
func appendLineEnd(dst []byte, prev abi.Digest, seq abi.Seq) []byte {
	dst = append(dst, linePrev...)
	if !prev.IsZero() {
		dst = hex.AppendEncode(dst, prev[:])
	}
	dst = append(dst, lineSeq...)
	dst = strconv.AppendInt(dst, int64(seq), 10)
	return append(dst, lineClose...)
}

// ParseLine takes a stored line apart. It reads the fixed text around the event
// and not the event itself, which may be anything; what it accepts, EncodeLine
// gives back byte for byte. The event is a part of line.
func ParseLine(line []byte) (event []byte, prev abi.Digest, seq abi.Seq, err error) {
	rest, ok := bytes.CutSuffix(line, []byte(lineClose))
	if !ok {
		return nil, prev, 0, lineError("does not end with %q", lineClose)
	}
	digits := len(rest)
	for digits > 0 && '0' <= rest[digits-1] && rest[digits-1] <= '9' {
		digits--
	}
	n, err := strconv.ParseInt(string(rest[digits:]), 10, 64)
	if err != nil || n < 1 || rest[digits] == '0' {
		return nil, prev, 0, lineError("has no seq at its end")
	}
	if rest, ok = bytes.CutSuffix(rest[:digits], []byte(lineSeq)); !ok {
		return nil, prev, 0, lineError("has no %q before its seq", lineSeq)
	}
	if before, found := bytes.CutSuffix(rest, []byte(linePrev)); found {
		rest = before
	} else {
		split := len(rest) - hex.EncodedLen(len(prev))
		if split < 0 || prev.UnmarshalText(rest[split:]) != nil || prev.IsZero() {
			return nil, abi.Digest{}, 0, lineError("has no prev_hash")
		}
		if rest, ok = bytes.CutSuffix(rest[:split], []byte(linePrev)); !ok {
			return nil, abi.Digest{}, 0, lineError("has no %q before its hash", linePrev)
		}
	}
	if event, ok = bytes.CutPrefix(rest, []byte(lineOpen)); !ok {
		return nil, abi.Digest{}, 0, lineError("does not begin with %q", lineOpen)
	}
	return event, prev, abi.Seq(n), nil
}

func lineError(format string, args ...any) error {
	return fmt.Errorf("%w: the line "+format, append([]any{ErrCorrupt}, args...)...)
}

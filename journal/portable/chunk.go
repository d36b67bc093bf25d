package portable

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Magic begins every file; the version and the end of the line follow.
const Magic = "agentcell session "

// The outer shape: a first line, chunks, and a last chunk without data.
const (
	// chunkBytes is how much a chunk has that is not one of the last two.
	chunkBytes = 256 << 10
	// maxChunk is the most a reader takes.
	maxChunk = 1 << 20
	// chunkHeader is length, the digest of the chunk before, and its own.
	chunkHeader = 4 + 2*sha256.Size
	// maxFirstLine bounds the search for the end of the first line.
	maxFirstLine = 64
)

func firstLine() string { return fmt.Sprintf("%s%d\n", Magic, Version) }

// chunkDigest is the digest of a chunk: it covers its length, its place behind
// prev, and its data.
func chunkDigest(prev abi.Digest, data []byte) (d abi.Digest) {
	h := sha256.New()
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(data)))
	h.Write(length[:])
	h.Write(prev[:])
	h.Write(data)
	h.Sum(d[:0])
	return d
}

// chunkWriter makes chunks of what is written to it.
type chunkWriter struct {
	w    io.Writer
	prev abi.Digest
	buf  []byte
}

func newChunkWriter(w io.Writer) (*chunkWriter, error) {
	line := firstLine()
	if _, err := io.WriteString(w, line); err != nil {
		return nil, err
	}
	return &chunkWriter{w: w, prev: abi.DigestOf([]byte(line)), buf: make([]byte, 0, chunkBytes)}, nil
}

func (c *chunkWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if len(c.buf) == chunkBytes {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
		room := min(len(b), chunkBytes-len(c.buf))
		c.buf, b = append(c.buf, b[:room]...), b[room:]
	}
	return n, nil
}

// flush writes a chunk of what has gathered.
func (c *chunkWriter) flush() error {
	digest := chunkDigest(c.prev, c.buf)
	header := make([]byte, 0, chunkHeader)
	header = binary.BigEndian.AppendUint32(header, uint32(len(c.buf)))
	header = append(append(header, c.prev[:]...), digest[:]...)
	if _, err := c.w.Write(header); err != nil {
		return err
	}
	if _, err := c.w.Write(c.buf); err != nil {
		return err
	}
	c.prev, c.buf = digest, c.buf[:0]
	return nil
}

// close writes what is left and the end. It gives the digest of the last chunk,
// which covers the whole file.
func (c *chunkWriter) close() (abi.Digest, error) {
	if len(c.buf) > 0 {
		if err := c.flush(); err != nil {
			return abi.Digest{}, err
		}
	}
	err := c.flush()
	return c.prev, err
}

// chunkReader gives the data of chunks, each once it is known to be whole and in
// its place.
type chunkReader struct {
	r      *bufio.Reader
	prev   abi.Digest
	offset int64 // of the chunk being read
	data   []byte
	rest   []byte // of data
	err    error  // final
}

func newChunkReader(r io.Reader) (*chunkReader, error) {
	c := &chunkReader{r: bufio.NewReader(r)}
	line, err := c.readFirstLine()
	if err != nil {
		return nil, err
	}
	c.prev, c.offset = abi.DigestOf(line), int64(len(line))
	return c, nil
}

// readFirstLine reads the line that says what this file is.
func (c *chunkReader) readFirstLine() ([]byte, error) {
	start, err := c.r.Peek(maxFirstLine)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.HasPrefix(start, []byte(Magic)) {
		if len(start) > 0 && bytes.HasPrefix([]byte(Magic), start) {
			return nil, &Damage{Kind: ErrCut, Offset: int64(len(start)), What: "it ends in its first line"}
		}
		return nil, ErrFormat
	}
	text, _, ended := bytes.Cut(start[len(Magic):], []byte("\n"))
	if !ended {
		if len(start) < maxFirstLine {
			return nil, &Damage{Kind: ErrCut, Offset: int64(len(start)), What: "it ends in its first line"}
		}
		return nil, ErrFormat
	}
	version, err := strconv.ParseUint(string(text), 10, 32)
	switch {
	case err != nil || version == 0 || text[0] == '0':
		return nil, ErrFormat
	case version > Version:
		return nil, fmt.Errorf("%w: version %d, and this program knows version %d; use a newer one", ErrNewer, version, Version)
	}
	line := make([]byte, len(Magic)+len(text)+1)
	_, err = io.ReadFull(c.r, line)
	return line, err
}

func (c *chunkReader) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err == nil {
			c.err = c.next()
		}
		if c.err != nil {
			return 0, c.err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads a chunk. It is io.EOF at the end of a file that is whole.
func (c *chunkReader) next() error {
	var header [chunkHeader]byte
	if err := c.fill(header[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(header[:])
	prev := abi.Digest(header[4:])
	digest := abi.Digest(header[4+sha256.Size:])
	if length > maxChunk {
		return c.damage(ErrEdited, "a chunk of %d bytes, at most %d can be", length, maxChunk)
	}
	c.data = slices.Grow(c.data[:0], int(length))
	data := c.data[:length]
	if err := c.fill(data); err != nil {
		return err
	}
	if chunkDigest(prev, data) != digest {
		return c.damage(ErrEdited, "the chunk of %d bytes there does not have its digest", length)
	}
	if prev != c.prev {
		return c.damage(ErrMixed, "the chunk there is whole, but not the one that follows: chunks were taken out, moved, or are another file's")
	}
	c.prev = digest
	c.offset += chunkHeader + int64(length)
	if length == 0 {
		return c.end()
	}
	c.rest = data
	return nil
}

// end is behind the last chunk.
func (c *chunkReader) end() error {
	_, err := c.r.ReadByte()
	if err == nil {
		return c.damage(ErrTrailing, "its end, and bytes behind it")
	}
	return err
}

// fill reads all of b.
func (c *chunkReader) fill(b []byte) error {
	_, err := io.ReadFull(c.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return c.damage(ErrCut, "the chunk that begins there is not all there")
	}
	return err
}

func (c *chunkReader) damage(kind error, format string, args ...any) error {
	return &Damage{Kind: kind, Offset: c.offset, What: fmt.Sprintf(format, args...)}
}

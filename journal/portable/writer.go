package portable

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// window is how far back the compression looks: a memory image repeats much of
// its module, which stands before it.
const window = 8 << 20

// Writer writes a file. It keeps nothing of what it is given. After an error
// what was written is worth nothing.
type Writer struct {
	chunks *chunkWriter
	zip    *zstd.Encoder
	body   []byte // of the piece being made
}

// NewWriter begins a file with what it says of its session.
func NewWriter(w io.Writer, s Session) (*Writer, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write session: %w", err)
	}
	chunks, err := newChunkWriter(w)
	if err != nil {
		return nil, err
	}
	// The chunks' digests cover what zstd's own would.
	zip, err := zstd.NewWriter(chunks, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	pw := &Writer{chunks: chunks, zip: zip}
	return pw, pw.piece(kindSession, body)
}

// Blob writes a blob.
func (w *Writer) Blob(b []byte) error { return w.piece(KindBlob, b) }

// Image writes what describes an image. Its pages must follow.
func (w *Writer) Image(im Image) error {
	b := append(w.body[:0], im.Root[:]...)
	b = binary.BigEndian.AppendUint64(b, im.Size)
	b = binary.BigEndian.AppendUint64(b, uint64(im.Clock))
	b = binary.BigEndian.AppendUint32(b, uint32(len(im.Globals)))
	for _, g := range im.Globals {
		b = append(append(b, g.Type), g.Value[:]...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(im.Pages)))
	for _, page := range im.Pages {
		b = binary.BigEndian.AppendUint32(b, page)
	}
	w.body = b
	return w.piece(KindImage, b)
}

// Page writes the next page of the image.
func (w *Writer) Page(b []byte) error { return w.piece(KindPage, b) }

// Record writes a record.
func (w *Writer) Record(fence abi.Fence, line []byte) error {
	w.body = binary.BigEndian.AppendUint64(w.body[:0], uint64(fence))
	w.body = append(w.body, line...)
	return w.piece(KindRecord, w.body)
}

func (w *Writer) piece(kind Kind, body []byte) error {
	if len(body) > kind.most() {
		return fmt.Errorf("write %s: %w: %d bytes, at most %d", kind, journal.ErrTooLarge, len(body), kind.most())
	}
	header := binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(len(body)))
	for _, b := range [][]byte{header, body} {
		if _, err := w.zip.Write(b); err != nil {
			return fmt.Errorf("write %s: %w", kind, err)
		}
	}
	return nil
}

// Close ends the file and gives its digest, that of its last chunk. It does not
// close what the file is written to.
func (w *Writer) Close() (abi.Digest, error) {
	if err := w.zip.Close(); err != nil {
		return abi.Digest{}, err
	}
	return w.chunks.close()
}

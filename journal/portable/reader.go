package portable

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Reader reads a file, piece by piece. What it gives is known to stand in the
// file as it was written; that the file is whole is known when Next is io.EOF.
type Reader struct {
	session Session
	chunks  *chunkReader
	zip     *zstd.Decoder
	order   order
	err     error // final
}

// order is where in the order of pieces a reader is.
type order struct {
	image   bool // has been
	pages   int  // of the image, still to come
	records abi.Seq
	blobs   int // since the last record
}

// NewReader reads the first piece of a file. Whoever gets a Reader must close
// it. Its errors are those of Next, and ErrFormat or ErrNewer.
func NewReader(r io.Reader) (*Reader, error) {
	chunks, err := newChunkReader(r)
	if err != nil {
		return nil, err
	}
	zip, err := zstd.NewReader(chunks, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	pr := &Reader{chunks: chunks, zip: zip}
	if err := pr.readSession(); err != nil {
		zip.Close()
		return nil, err
	}
	return pr, nil
}

// Session is what the file says of its session.
func (r *Reader) Session() Session { return r.session }

// Close gives back what the reader holds, but not what it reads from.
func (r *Reader) Close() { r.zip.Close() }

// Digest is that of the file, once Next is io.EOF: the one that Writer.Close gave.
func (r *Reader) Digest() abi.Digest { return r.chunks.prev }

// Mixed is a *Damage of kind ErrMixed at the place where the reader is: for who
// finds that a piece does not belong to the others.
func (r *Reader) Mixed(format string, args ...any) error {
	return r.chunks.damage(ErrMixed, format, args...)
}

// Invalid is Mixed for a piece that cannot be right whatever the others are.
func (r *Reader) Invalid(format string, args ...any) error {
	return r.chunks.damage(ErrInvalid, format, args...)
}

func (r *Reader) readSession() error {
	kind, body, err := r.piece()
	switch {
	case errors.Is(err, io.EOF):
		return r.Invalid("there is nothing in it")
	case err != nil:
		return err
	case kind != kindSession:
		return r.Invalid("it begins with a %s", kind)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&r.session); err != nil {
		return r.Invalid("what it says of its session: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r.Invalid("what it says of its session: text behind the object")
	}
	if len(r.session.Meta) == 0 || r.session.Meta[0] != '{' {
		return r.Invalid("the metadata of its session is no object")
	}
	if h := r.session.Head; h.Seq < 0 || (h.Seq == 0) != h.Hash.IsZero() {
		return r.Invalid("its head is seq %d, hash %s", h.Seq, h.Hash)
	}
	return nil
}

// Next gives the next piece. It is io.EOF when everything has been read and the
// file is whole; any other error is final too: a *Damage, or one of what the
// file is read from.
func (r *Reader) Next() (Piece, error) {
	if r.err != nil {
		return Piece{}, r.err
	}
	p, err := r.next()
	r.err = err
	return p, err
}

func (r *Reader) next() (Piece, error) {
	kind, body, err := r.piece()
	if errors.Is(err, io.EOF) {
		return Piece{}, r.end()
	}
	if err != nil {
		return Piece{}, err
	}
	if err := r.advance(kind); err != nil {
		return Piece{}, err
	}
	p := Piece{Kind: kind, Bytes: body}
	switch kind {
	case KindImage:
		p.Bytes = nil
		if p.Image, err = decodeImage(body); err != nil {
			return Piece{}, r.Invalid("the image: %v", err)
		}
		r.order.pages = len(p.Image.Pages)
	case KindRecord:
		if len(body) < 8 || body[0] > 0x7f {
			return Piece{}, r.Invalid("record %d has no fence", r.order.records)
		}
		p.Fence, p.Bytes = abi.Fence(binary.BigEndian.Uint64(body)), body[8:]
	case KindPage:
		if len(body) != abi.PageSize {
			return Piece{}, r.Invalid("a page of %d bytes", len(body))
		}
	}
	return p, nil
}

// advance checks that a piece of this kind may stand here.
func (r *Reader) advance(kind Kind) error {
	o := &r.order
	switch {
	case (kind == KindPage) != (o.pages > 0):
		return r.Invalid("a %s, where %d pages of an image must follow", kind, o.pages)
	case kind == KindPage:
		o.pages--
	case kind == KindImage && (o.image || o.records > 0):
		return r.Invalid("an image, behind another one or a record")
	case kind == KindImage:
		o.image = true
	case kind == KindBlob:
		o.blobs++
	case kind == KindRecord && o.records == r.session.Head.Seq:
		return r.Mixed("a record behind the head, which is seq %d", r.session.Head.Seq)
	case kind == KindRecord:
		o.records++
		o.blobs = 0
	default:
		return r.Invalid("a %s stands there", kind)
	}
	return nil
}

// end checks that nothing is missing where the pieces end.
func (r *Reader) end() error {
	switch o := r.order; {
	case o.pages > 0:
		return r.Invalid("%d pages of the image are missing", o.pages)
	case o.records != r.session.Head.Seq:
		return r.Mixed("it has %d records, its head is seq %d", o.records, r.session.Head.Seq)
	case o.records > 0 && o.blobs > 0:
		return r.Invalid("a blob behind the last record")
	}
	// Whatever made the decompression end, the file must have ended too.
	_, err := r.chunks.Read(make([]byte, 1))
	if err == nil {
		return r.Invalid("data behind the compressed stream")
	}
	return err
}

// piece reads a piece whatever it is. It is io.EOF behind the last one.
func (r *Reader) piece() (Kind, []byte, error) {
	var header [pieceHeader]byte
	if n, err := io.ReadFull(r.zip, header[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, r.unreadable(err)
	}
	kind, length := Kind(header[0]), binary.BigEndian.Uint32(header[1:])
	if int64(length) > int64(kind.most()) {
		return 0, nil, r.Invalid("a piece of %s with %d bytes", kind, length)
	}
	// Grown as it comes in, so that a length alone costs nothing.
	var body bytes.Buffer
	body.Grow(int(min(length, maxRecord)))
	if _, err := io.CopyN(&body, r.zip, int64(length)); err != nil {
		return 0, nil, r.unreadable(err)
	}
	return kind, body.Bytes(), nil
}

// unreadable is the error for content that ends within a piece or that zstd
// cannot read, unless the file itself is why.
func (r *Reader) unreadable(err error) error {
	switch {
	case r.chunks.err != nil && !errors.Is(r.chunks.err, io.EOF):
		return r.chunks.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.Invalid("it ends within a piece")
	}
	return r.Invalid("it cannot be decompressed: %v", err)
}

// decodeImage reads what describes an image.
func decodeImage(b []byte) (*Image, error) {
	im := new(Image)
	d := fields{rest: b}
	copy(im.Root[:], d.take(len(im.Root)))
	im.Size = d.uint64()
	im.Clock = int64(d.uint64())
	globalSize := 1 + len(abi.Global{}.Value)
	for n := d.count(globalSize); n > 0; n-- {
		g := abi.Global{Type: d.take(1)[0]}
		copy(g.Value[:], d.take(len(g.Value)))
		im.Globals = append(im.Globals, g)
	}
	pages := d.count(4)
	if pages > 0 {
		im.Pages = make([]uint32, pages)
	}
	for i := range im.Pages {
		im.Pages[i] = d.uint32()
		if i > 0 && im.Pages[i] <= im.Pages[i-1] {
			return nil, fmt.Errorf("its pages are not ascending at page %d", im.Pages[i])
		}
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errors.New("its description has the wrong length")
	}
	return im, nil
}

// fields reads numbers; after the first that is not there it is bad and gives
// zeros.
type fields struct {
	rest []byte
	bad  bool
}

func (d *fields) take(n int) []byte {
	if len(d.rest) < n {
		d.bad, d.rest = true, nil
		return make([]byte, n)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *fields) uint32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }

func (d *fields) uint64() uint64 { return binary.BigEndian.Uint64(d.take(8)) }

// count reads how many things of size bytes follow: no more than can.
func (d *fields) count(size int) int {
	n := d.uint32()
	if int64(n)*int64(size) > int64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return 0
	}
	return int(n)
}

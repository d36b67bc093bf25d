package host

import (
	"context"
	"fmt"
	"io"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/journal/portable"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Export writes a session as one file that holds all it needs elsewhere: every
// record, its ancestors' first, the blobs they name, the module, and the image
// that its next turn begins from. The session may be running: the file has what
// was durable when Export began, and its turn is then an open one. No engine is
// started. After an error, what was written is worth nothing.
func (h *Host) Export(ctx context.Context, uid abi.SessionID, w io.Writer) (Portable, error) {
	p, err := h.export(ctx, uid, w)
	if err != nil {
		return Portable{}, fmt.Errorf("export: session %s: %w", uid, err)
	}
	return p, nil
}

func (h *Host) export(ctx context.Context, uid abi.SessionID, w io.Writer) (Portable, error) {
	r, err := h.row(uid)
	if err != nil {
		return Portable{}, err
	}
	file, err := portable.NewWriter(w, portable.Session{
		UID: r.UID, Project: r.Project, Name: r.Name, Created: abi.NewTime(r.Created),
		Parent: r.Parent, At: r.At, Meta: r.Meta,
		Head: portable.Head{Seq: r.Head.Seq, Hash: r.Head.Hash},
	})
	if err != nil {
		return Portable{}, err
	}
	out := Portable{Session: h.show(r)}
	x := exporter{host: h, row: r, file: file, out: &out}
	x.blobs = blobSet{get: h.journal.Blob, found: x.blob}
	for _, step := range []func(context.Context) error{x.module, x.image, x.records} {
		if err := step(ctx); err != nil {
			return Portable{}, err
		}
	}
	out.Digest, err = file.Close()
	return out, err
}

// exporter writes a session's parts.
type exporter struct {
	host  *Host
	row   row
	file  *portable.Writer
	blobs blobSet
	out   *Portable
}

func (x *exporter) blob(_ abi.Digest, b []byte) error {
	x.out.Blobs++
	return x.file.Blob(b)
}

func (x *exporter) module(context.Context) error { return x.blobs.add(x.row.made.Module) }

func (x *exporter) image(ctx context.Context) error {
	root := x.row.sum.Root
	if !x.row.meta.HoldsMemory || root == x.row.meta.GoldenRoot {
		return nil // whoever has the module has the golden image
	}
	j := x.host.journal
	im, err := j.LoadImage(root)
	if err != nil {
		return err
	}
	zero, err := j.NewImage(nil, journal.ImageSpec{})
	if err != nil {
		return err
	}
	pages, err := j.DiffImages(zero, im)
	if err != nil {
		return err
	}
	err = x.file.Image(portable.Image{
		Root: root, Size: im.Size(), Clock: im.Clock(), Globals: im.Globals(), Pages: pages,
	})
	page := make([]byte, abi.PageSize)
	for _, index := range pages {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = j.ReadPage(im, index, page)
		}
		if err != nil {
			return err
		}
		err = x.file.Page(page)
		x.out.Pages++
	}
	return err
}

// records writes every record behind the blobs that it is the first to name. A
// record that is not the one its successor names must not leave this machine.
func (x *exporter) records(ctx context.Context) error {
	head := x.row.Head
	if head.Seq == 0 {
		return nil
	}
	var prev abi.Digest
	for r, err := range x.host.journal.Read(x.row.UID, 1, head.Seq) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if hash := abi.DigestOf(r.Line); hash != r.Hash || r.Prev != prev {
			return &journal.Broken{Session: x.row.UID, Seq: r.Seq, What: "the record is not the one that was hashed", Want: r.Hash, Got: hash}
		}
		encoded, _, _, err := journal.ParseLine(r.Line)
		if err != nil {
			return err
		}
		e, err := abi.DecodeEvent(encoded)
		if err == nil {
			err = x.blobs.named(e)
		}
		if err != nil {
			return fmt.Errorf("seq %d: %w", r.Seq, err)
		}
		if err := x.file.Record(r.Fence, r.Line); err != nil {
			return err
		}
		prev = r.Hash
		x.out.Records++
	}
	if prev != head.Hash {
		return &journal.Broken{Session: x.row.UID, Seq: head.Seq, What: "the chain does not end at the session's head", Want: head.Hash, Got: prev}
	}
	return nil
}

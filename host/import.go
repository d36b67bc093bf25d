package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/journal/portable"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Import stores the session that a portable file holds, under the uid it has had
// since it was made. A forked one comes without its parent: it has all records
// itself from then on, and Parent and ForkSeq go on saying where it came from.
//
// Everything is checked as it comes in, and the session appears only once the
// file has been read to its end and holds; what Export did not write is a
// *portable.Damage, and nothing is imported. No engine is started: that turns
// are what the module does, Verify can tell. A session that is here with the same
// head is left as it is; with another head it is ErrConflict. One that was deleted
// here comes back; what is kept of it must be in the file, or it is ErrConflict. A
// name that another session has is ErrExists.
func (h *Host) Import(ctx context.Context, r io.Reader, req ImportRequest) (Portable, error) {
	p, err := h.importFile(ctx, r, req)
	if errors.Is(err, journal.ErrKept) {
		err = fmt.Errorf("%w: forks or snapshots may need the record that is here, which the file has not: %w", ErrConflict, err)
	}
	if err != nil {
		return Portable{}, fmt.Errorf("import: %w", err)
	}
	return p, nil
}

func (h *Host) importFile(ctx context.Context, r io.Reader, req ImportRequest) (Portable, error) {
	file, err := portable.NewReader(r)
	if err != nil {
		return Portable{}, err
	}
	defer file.Close()
	s, err := checkPortable(file)
	if err != nil {
		return Portable{}, err
	}
	s.Project, s.Name = firstOf(req.Project, s.Project), firstOf(req.Name, s.Name)
	if err := checkName("project", s.Project); err != nil {
		return Portable{}, err
	}
	if s.Name != "" {
		if err := checkName("name", s.Name); err != nil {
			return Portable{}, err
		}
	}
	into, err := h.journal.Import(s.Session)
	if errors.Is(err, journal.ErrExists) {
		return Portable{}, h.otherHead(s)
	}
	if err != nil {
		return Portable{}, err
	}
	defer into.Close()
	out := Portable{Present: into.Present()}
	i := importer{host: h, file: file, into: into, row: s, out: &out, trail: trail{meta: s.meta}}
	i.blobs = blobSet{get: i.loose, found: i.claim}
	if err := i.run(ctx); err != nil {
		return Portable{}, err
	}
	stored, err := into.Commit(ctx, mustJSON(i.trail.summary()))
	if errors.Is(err, journal.ErrExists) {
		return Portable{}, fmt.Errorf("name %q in project %q: %w", s.Name, s.Project, ErrExists)
	}
	if err != nil {
		return Portable{}, err
	}
	decoded, err := decodeRow(stored)
	if err != nil {
		return Portable{}, err
	}
	out.Session, out.Digest = h.show(decoded), file.Digest()
	h.arm(s.UID, decoded.sum.Waiting)
	h.watches.committed(s.UID)
	h.log.Info("session imported", "session", s.UID, "records", out.Records, "present", out.Present)
	return out, nil
}

// otherHead is the error for a session that is here and is another one.
func (h *Host) otherHead(s row) error {
	here, err := h.row(s.UID)
	if err != nil {
		return fmt.Errorf("session %s: %w: it is just being imported", s.UID, ErrConflict)
	}
	return fmt.Errorf("%w: session %s is here with its head at seq %d, %s; the file's is at seq %d, %s",
		ErrConflict, s.UID, here.Head.Seq, here.Head.Hash.Short(), s.Head.Seq, s.Head.Hash.Short())
}

var sessionIDRule = regexp.MustCompile(`^sess-[0-9a-f]{24}$`)

// checkPortable is the session that a file says it holds.
func checkPortable(file *portable.Reader) (row, error) {
	said := file.Session()
	if !sessionIDRule.MatchString(string(said.UID)) {
		return row{}, file.Invalid("its session is called %.60q", said.UID)
	}
	if said.Parent != "" && !sessionIDRule.MatchString(string(said.Parent)) || (said.Parent == "") != (said.At == 0) || said.At < 0 || said.At > said.Head.Seq {
		return row{}, file.Invalid("its session grew from record %d of %.60q", said.At, said.Parent)
	}
	r := row{Session: journal.Session{
		UID: said.UID, Project: said.Project, Name: said.Name, Created: said.Created.Time,
		Parent: said.Parent, At: said.At,
		Head: journal.Head{Seq: said.Head.Seq, Hash: said.Head.Hash},
	}}
	if err := json.Unmarshal(said.Meta, &r.meta); err != nil {
		return row{}, file.Invalid("the metadata of its session: %v", err)
	}
	if err := errors.Join(checkConfig(r.meta.Config), checkLabels(r.meta.Labels), checkGrants(r.meta.Grants), checkTimes(r.meta.Deadline, r.meta.CallTimeout), checkRetention(r.meta.Retention), r.meta.Again.check()); err != nil {
		return row{}, file.Invalid("%v", err)
	}
	r.Meta = mustJSON(r.meta) // and nothing else that stood there
	return r, nil
}

// importer takes the pieces of a file one after the other.
type importer struct {
	host  *Host
	file  *portable.Reader
	into  *journal.Import
	row   row
	trail trail
	out   *Portable

	blobs   blobSet
	waiting map[abi.Digest]bool // blobs that no record has named yet
	image   abi.Digest          // root of the file's image
}

// run takes all pieces and checks what only the whole can tell.
func (i *importer) run(ctx context.Context) error {
	if err := i.module(ctx); err != nil {
		return err
	}
	for {
		p, err := i.file.Next()
		if errors.Is(err, io.EOF) {
			return i.end()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		switch p.Kind {
		case portable.KindBlob:
			err = i.blob(ctx, p.Bytes)
		case portable.KindImage:
			err = i.takeImage(ctx, p.Image)
		case portable.KindRecord:
			err = i.record(ctx, p)
		}
		if err != nil {
			return err
		}
	}
}

func (i *importer) module(ctx context.Context) error {
	p, err := i.file.Next()
	switch {
	case errors.Is(err, io.EOF):
		return i.file.Mixed("it has no module")
	case err != nil:
		return err
	case p.Kind != portable.KindBlob:
		return i.file.Invalid("a %s where the module must be", p.Kind)
	}
	if got := abi.DigestOf(p.Bytes); got != i.row.meta.Module {
		return i.file.Mixed("its module is %s, that of its session is %s", got.Short(), i.row.meta.Module.Short())
	}
	if err := i.blob(ctx, p.Bytes); err != nil {
		return err
	}
	return i.blobs.add(i.row.meta.Module)
}

func (i *importer) blob(ctx context.Context, b []byte) error {
	d := abi.DigestOf(b)
	if i.blobs.seen[d] || i.waiting[d] {
		return i.file.Invalid("blob %s stands there twice", d.Short())
	}
	mark(&i.waiting, d)
	i.out.Blobs++
	return i.into.PutBlob(ctx, b)
}

// loose reads a blob that the file must have brought: what this machine happens
// to have does not make up for it.
func (i *importer) loose(d abi.Digest) ([]byte, error) {
	if !i.waiting[d] && !i.blobs.seen[d] {
		return nil, i.file.Mixed("blob %s is named and not there", d.Short())
	}
	return i.into.Blob(d)
}

func (i *importer) claim(d abi.Digest, _ []byte) error {
	delete(i.waiting, d)
	return nil
}

func (i *importer) record(ctx context.Context, p portable.Piece) error {
	r, err := i.into.Record(ctx, p.Fence, p.Bytes)
	var broken *journal.Broken
	if errors.As(err, &broken) {
		return i.file.Mixed("%v", broken)
	}
	if err != nil {
		return err
	}
	i.out.Records++
	encoded, _, _, err := journal.ParseLine(r.Line)
	if err != nil {
		return err
	}
	line, err := abi.DecodeEvent(encoded)
	if err != nil {
		return i.file.Invalid("record %d: %v", r.Seq, err)
	}
	if err := i.blobs.named(line); err != nil {
		return i.damaged(r.Seq, err)
	}
	if len(i.waiting) > 0 {
		return i.file.Mixed("%d blobs before record %d that it does not name", len(i.waiting), r.Seq)
	}
	e, err := abi.DecodeRecord(encoded, i.loose)
	if err != nil {
		return i.damaged(r.Seq, err)
	}
	if err := i.trail.event(r.Seq, e); err != nil {
		return i.file.Mixed("record %d: %v", r.Seq, err)
	}
	return nil
}

// damaged is the error for a record whose blobs are not what it names.
func (i *importer) damaged(seq abi.Seq, err error) error {
	var damage *portable.Damage
	if errors.As(err, &damage) {
		damage.What = fmt.Sprintf("record %d: %s", seq, damage.What)
		return damage
	}
	return i.file.Invalid("record %d: %v", seq, err)
}

// imageBatch is how many pages of an image are in memory at a time.
const imageBatch = 4096

// takeImage builds and stores the file's image, some pages at a time.
func (i *importer) takeImage(ctx context.Context, said *portable.Image) error {
	var im *journal.Image
	for pages := said.Pages; im == nil || len(pages) > 0; {
		n := min(len(pages), imageBatch)
		var unread error
		next, err := i.host.journal.NewImage(im, journal.ImageSpec{
			Size: said.Size, Globals: said.Globals, Clock: said.Clock, Changed: pages[:n],
			Read: func(_ uint32, dst []byte) error {
				var p portable.Piece
				if p, unread = i.file.Next(); unread == nil {
					copy(dst, p.Bytes)
					i.out.Pages++
				}
				return unread
			},
		})
		switch {
		case unread != nil:
			return unread
		case err != nil:
			return i.file.Invalid("%v", err)
		}
		if err := i.host.journal.SaveImage(ctx, next); err != nil {
			return err
		}
		im, pages = next, pages[n:]
	}
	if im.Root() != said.Root {
		return i.file.Mixed("its image has the root %s and says %s", im.Root().Short(), said.Root.Short())
	}
	i.image = said.Root
	return nil
}

// end checks that what has come is the session that the file said.
func (i *importer) end() error {
	t, r := &i.trail, i.row
	if len(i.waiting) > 0 {
		return i.file.Mixed("%d blobs that no record names", len(i.waiting))
	}
	if r.Head.Seq == 0 {
		t.sum.Updated, t.sum.Root = abi.NewTime(r.Created), r.meta.GoldenRoot
	} else if t.origin.UID != r.UID || t.origin.Parent != r.Parent || t.origin.At != r.At {
		return i.file.Mixed("its records are those of session %s, grown from %s at %d; it says session %s, grown from %s at %d",
			t.origin.UID, orNoParent(t.origin.Parent), t.origin.At, r.UID, orNoParent(r.Parent), r.At)
	}
	want := t.sum.Root
	if !r.meta.HoldsMemory || want == t.meta.GoldenRoot {
		want = abi.Digest{}
	}
	if i.image != want {
		return i.file.Mixed("its image is %s, the next turn begins from %s", orNoImage(i.image), orNoImage(want))
	}
	return nil
}

func orNoParent(uid abi.SessionID) string { return firstOf(string(uid), "none") }

func orNoImage(d abi.Digest) string {
	if d.IsZero() {
		return "none"
	}
	return d.Short()
}

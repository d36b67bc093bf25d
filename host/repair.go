package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ImageDamage is the error for an image that a session needs and that is stored and
// damaged: a page, a node of its tree or its own row is missing or is not what its hash
// says. It is a journal.ErrCorrupt. Repair may help.
type ImageDamage struct {
	Session abi.SessionID
	Root    abi.Digest
	// At is the record that names the image, if it is known.
	At abi.Seq
	// Err says which page or node it is.
	Err error
}

func (d *ImageDamage) Error() string {
	return fmt.Sprintf("memory image %s is damaged: %v", d.Root.Short(), d.Err)
}

func (d *ImageDamage) Unwrap() error { return d.Err }

// asDamage is the error of reading an image of a session, as an *ImageDamage if it is
// that.
func asDamage(uid abi.SessionID, root abi.Digest, err error) error {
	var known *ImageDamage
	if !errors.Is(err, journal.ErrCorrupt) || errors.As(err, &known) {
		return err
	}
	return &ImageDamage{Session: uid, Root: root, Err: err}
}

// keptImage is an image of a session that is stored, or has to be.
type keptImage struct {
	point
	needed bool // by the next turn, the open one, or a snapshot
}

// keptImages are the images of a session, each once, in the order of its record. One
// that is not stored and not needed is none of them: it was dropped, or, of a session
// that was imported, has never been here.
func (h *Host) keptImages(r row) ([]keptImage, error) {
	if !r.meta.HoldsMemory || r.Head.Seq == 0 {
		return nil, nil
	}
	needed, err := h.neededImages(r)
	if err != nil {
		return nil, err
	}
	var kept []keptImage
	known := map[abi.Digest]bool{r.made.GoldenRoot: true, r.meta.GoldenRoot: true}
	for rec, err := range h.journal.Read(r.UID, 1, r.Head.Seq) {
		if err != nil {
			return nil, err
		}
		if !arrives(rec.Line) {
			continue
		}
		e, err := lineEvent(rec)
		if err != nil {
			return nil, fmt.Errorf("seq %d: %w", rec.Seq, err)
		}
		p, ok := arrival(rec.Seq, e)
		if !ok || known[p.root] {
			continue
		}
		known[p.root] = true
		im := keptImage{p, needed[p.root]}
		if !im.needed {
			_, err := h.journal.LoadImage(p.root)
			if errors.Is(err, journal.ErrNotFound) {
				continue
			}
			if err != nil && !errors.Is(err, journal.ErrCorrupt) {
				return nil, err
			}
		}
		kept = append(kept, im)
	}
	return kept, nil
}

// neededImages are the roots of images without which something cannot go on.
func (h *Host) neededImages(r row) (map[abi.Digest]bool, error) {
	needed := map[abi.Digest]bool{r.sum.Root: true}
	refs, err := h.journal.Refs(snapshotRef)
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		s, err := readSnapshot(ref)
		if err != nil {
			return nil, err
		}
		if s.Session == r.UID {
			needed[s.Root] = true
		}
	}
	return needed, nil
}

// inspect finds what is damaged of an image.
func (h *Host) inspect(ctx context.Context, im keptImage, whole *journal.Whole) ([]journal.Flaw, error) {
	var flaws []journal.Flaw
	err := h.journal.InspectImage(ctx, im.root, whole, func(f journal.Flaw) { flaws = append(flaws, f) })
	if errors.Is(err, journal.ErrNotFound) && im.needed {
		return []journal.Flaw{{Name: im.root, Err: fmt.Errorf("%w: %w", journal.ErrCorrupt, err)}}, nil
	}
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil // dropped meanwhile
	}
	return flaws, err
}

// checkImages reads all images of a session. The first one that is damaged is the
// error, an *ImageDamage.
func (h *Host) checkImages(ctx context.Context, r row) (int64, error) {
	defer h.journal.Hold()() // from Collect
	kept, err := h.keptImages(r)
	if err != nil {
		return 0, err
	}
	var whole journal.Whole
	for _, im := range kept {
		flaws, err := h.inspect(ctx, im, &whole)
		if err != nil {
			return 0, err
		}
		if len(flaws) > 0 {
			return 0, &ImageDamage{Session: r.UID, Root: im.root, At: im.at, Err: flaws[0].Err}
		}
	}
	return int64(len(kept)), nil
}

// RepairRequest asks for the images of a session to be repaired.
type RepairRequest struct {
	Session abi.SessionID
	// DryRun only looks.
	DryRun bool
}

// Repair is what Repair has found and done.
type Repair struct {
	// Images is how many were looked at.
	Images int
	// Damaged are those that were not as they must, in the order of the record.
	Damaged []DamagedImage
	// ProviderCalls counts the model calls that left the host meanwhile.
	ProviderCalls int64
}

// Left counts the images that still are damaged.
func (r Repair) Left() int {
	n := 0
	for _, d := range r.Damaged {
		if !d.Repaired {
			n++
		}
	}
	return n
}

// DamagedImage is an image of which something was missing or wrong.
type DamagedImage struct {
	Root abi.Digest
	// At is the record that names it, and Turn how many turns had ended there.
	At    abi.Seq
	Turn  int64
	Flaws []journal.Flaw
	// Repaired: what was wrong is as it must be again. Rows is how many rows of pages
	// and trees were written for that, and Turns how many turns were run again.
	Repaired    bool
	Rows, Turns int
	// Err is why it could not be repaired.
	Err error
}

// Repair finds what is missing or damaged of a session's images, and writes it again.
// It has it from running the turns that led there once more, from the nearest image
// before that is whole or from the start, on what was recorded: no model and no tool is
// called (I1), and an image is written only if its root is the recorded one. What
// other sessions have in common with it is mended with it. The session may be running.
//
// An image that cannot be reached so is reported as such, and the others are gone on
// with. An error means that Repair could not go on: because of ctx, a record that is
// damaged itself, or a store that takes nothing. It may be ended at any moment, also by
// a crash: nothing is ever worse than before.
func (h *Host) Repair(ctx context.Context, req RepairRequest) (Repair, error) {
	out, err := h.repair(ctx, req)
	if err != nil {
		return out, fmt.Errorf("repair: session %s: %w", req.Session, err)
	}
	return out, nil
}

func (h *Host) repair(ctx context.Context, req RepairRequest) (out Repair, err error) {
	defer h.journal.Hold()() // from Collect
	r, err := h.row(req.Session)
	if err != nil {
		return out, err
	}
	calls := h.ProviderCalls()
	defer func() { out.ProviderCalls = h.ProviderCalls() - calls }()
	kept, err := h.keptImages(r)
	if err != nil {
		return out, err
	}
	out.Images = len(kept)
	w := repairer{host: h, row: r, from: beginning(r)}
	for _, im := range kept {
		flaws, err := h.inspect(ctx, im, &w.whole)
		if err != nil {
			return out, err
		}
		if len(flaws) == 0 {
			w.from, w.blocked = im.point, nil
			continue
		}
		d := DamagedImage{Root: im.root, At: im.at, Turn: im.turns, Flaws: flaws}
		if !req.DryRun {
			err = w.mend(ctx, im, &d)
		}
		out.Damaged = append(out.Damaged, d)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// repairer goes along a session's images.
type repairer struct {
	host *Host
	row  row
	// whole has been read, from is the last point whose image is whole.
	whole journal.Whole
	from  point
	// blocked is why the turns behind from cannot be run again.
	blocked error
}

// mend repairs one image.
func (w *repairer) mend(ctx context.Context, im keptImage, d *DamagedImage) error {
	if w.blocked != nil {
		d.Err = w.blocked
		return nil
	}
	h := w.host
	again, err := h.rerunOn(ctx, h.freshModule, w.row, w.from, im.at)
	if err == nil {
		defer again.close(ctx)
		err = again.reach(ctx, im.root)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		w.blocked, d.Err = err, err
		return nil
	}
	d.Turns = int(again.here.turns - w.from.turns)
	if d.Rows, err = h.journal.MendImage(ctx, again.image); err != nil {
		return err
	}
	left, err := h.inspect(ctx, im, &w.whole)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("image %s was written again and is damaged still: %w", im.root.Short(), left[0].Err)
	}
	d.Repaired, w.from = true, im.point
	h.images.drop(im.root)
	h.log.Info("image repaired", "session", w.row.UID, "at", im.at, "root", im.root.Short(), "rows", d.Rows, "turns", d.Turns)
	return nil
}

// freshModule is pinnedModule with a golden image of its own, all in memory: that of
// the module may take pages for stored which are damaged.
func (h *Host) freshModule(ctx context.Context, p pin, runtime string) (*module, error) {
	m, err := h.pinnedModule(ctx, p, runtime)
	if err != nil || m.golden == nil {
		return m, err
	}
	golden, err := h.journal.NewImage(nil, imageSpec(m.desc.Golden))
	return &module{loaded: true, code: m.code, runtime: m.runtime, desc: m.desc, golden: golden}, err
}

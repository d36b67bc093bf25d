package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/journal/portable"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// export writes a session to memory.
func (r *rig) export(uid abi.SessionID) []byte {
	r.t.Helper()
	var b bytes.Buffer
	p, err := r.Export(r.t.Context(), uid, &b)
	if err != nil {
		r.t.Fatal(err)
	}
	if !bytes.HasSuffix(b.Bytes(), p.Digest[:]) || p.Records != int64(p.Session.Head.Seq) {
		r.t.Errorf("exported %+v", p)
	}
	return b.Bytes()
}

// other is another machine: a fresh store, and a host that has every module
// only from the files it is given.
func other(t *testing.T) *rig { return newRig(t).open() }

func (r *rig) load(file []byte) host.Portable {
	r.t.Helper()
	p, err := r.Import(r.t.Context(), bytes.NewReader(file), host.ImportRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// carry takes a session to another machine, checks that it is the same there,
// and gives that machine.
func carry(t *testing.T, r *rig, uid abi.SessionID) *rig {
	t.Helper()
	there := other(t)
	file := r.export(uid)
	p := there.load(file)
	want := mustGet(t, r, uid)
	// Of a fork from an earlier point the last turn is not kept here.
	alike := cmp.Options{
		cmpopts.SortSlices(func(a, b host.Waiting) bool { return a.CallID < b.CallID }),
		cmpopts.IgnoreFields(host.Session{}, "Compute"),
	}
	if want.State != host.ExecInterrupted && want.State != host.ExecAwaiting {
		alike = append(alike, cmpopts.IgnoreFields(host.Session{}, "Execution"))
	}
	if diff := cmp.Diff(want, p.Session, alike); diff != "" {
		t.Errorf("session (-here +there):\n%s", diff)
	}
	if diff := cmp.Diff(r.transcript(uid), there.transcript(uid)); diff != "" {
		t.Errorf("record (-here +there):\n%s", diff)
	}
	// Which images are stored is each machine's own business.
	if diff := cmp.Diff(r.verify(uid), there.verify(uid), cmpopts.IgnoreFields(host.Verification{}, "Images")); diff != "" {
		t.Errorf("verification (-here +there):\n%s", diff)
	}
	if again := there.export(uid); !bytes.Equal(file, again) {
		t.Errorf("exported again, the file of %d bytes has %d and is another one", len(file), len(again))
	}
	if p := there.load(file); !p.Present || p.Session.Head != want.Head {
		t.Errorf("imported again: %+v", p)
	}
	return there
}

func TestPortable_RoundTrip(t *testing.T) {
	for _, c := range conversations()[:8] {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			if c.script != "" {
				r.models["script"], r.def = scripted(t, strings.Split(strings.TrimSpace(c.script), "\n")...), "script"
			}
			r.open()
			s := r.create(c.harness)
			for _, in := range c.inputs {
				e, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say(in)})
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Waiting) > 0 { // it is carried as it waits
					carry(t, r, s.UID)
					return
				}
			}
			there := carry(t, r, s.UID)
			if c.script != "" {
				return
			}
			// It goes on as it would have gone on here.
			if diff := cmp.Diff(r.exec(s.UID, c.inputs[0]), there.exec(s.UID, c.inputs[0])); diff != "" {
				t.Errorf("the next turn (-here +there):\n%s", diff)
			}
			there.verify(s.UID)
		})
	}
}

func TestPortable_New(t *testing.T) {
	r := newRig(t).open()
	s := r.create("counter")
	there := carry(t, r, s.UID)
	if got := there.exec(s.UID, "total"); got[0] != "0" {
		t.Errorf("total %q", got)
	}
}

// A fork of a fork goes without its ancestors, and is a session like any other
// there: it goes on, forks at any point, and is proven.
func TestPortable_Forks(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output one; model x")
	end := mustGet(t, r, s.UID).Head.Seq
	r.exec(s.UID, "output not the child's")
	child := fork(t, r, host.ForkRequest{Session: s.UID, At: end})[0]
	r.exec(child.UID, "output two; output three")
	secondEnd := mustGet(t, r, child.UID).Head.Seq
	r.exec(child.UID, "output four")
	grandchild := fork(t, r, host.ForkRequest{Session: child.UID})[0]
	unborn := fork(t, r, host.ForkRequest{Session: child.UID, At: end})[0] // from what its parent inherited
	r.exec(grandchild.UID, "model y")

	carry(t, r, s.UID)
	carry(t, r, unborn.UID)
	there := carry(t, r, grandchild.UID)
	if got := there.exec(grandchild.UID, "count"); got[0] != "6" {
		t.Errorf("the grandchild counts %s", got[0])
	}
	// Its head's image came with it; those of earlier ENDs are reached by running.
	for at, want := range map[abi.Seq]string{end: "2", secondEnd: "4"} {
		c := fork(t, there, host.ForkRequest{Session: grandchild.UID, At: at})[0]
		if got := there.exec(c.UID, "count"); got[0] != want {
			t.Errorf("a child at seq %d counts %s, want %s", at, got[0], want)
		}
		there.verify(c.UID)
		carry(t, there, c.UID)
	}
	// Its relatives may come too, in any order.
	there.load(r.export(s.UID))
	there.load(r.export(child.UID))
	for _, uid := range []abi.SessionID{s.UID, child.UID, grandchild.UID} {
		there.verify(uid)
	}
}

// A parent of that uid with another history is noticed.
func TestPortable_ForeignParent(t *testing.T) {
	r := newRig(t)
	r.still = true
	r.open()
	s := r.create("echo") // with the same uid on every machine
	r.exec(s.UID, "here")
	r.still = false
	r.open()
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]

	there := newRig(t)
	there.still = true
	there.open()
	there.exec(there.create("echo").UID, "there")
	there.load(r.export(child.UID))
	_, err := there.Verify(t.Context(), host.VerifyRequest{Session: child.UID})
	var broken *journal.Broken
	if !errors.As(err, &broken) || broken.Seq != child.Head.Seq {
		t.Errorf("got %v, want a *Broken at seq %d", err, child.Head.Seq)
	}
}

// An open turn is open there, and is recovered there: what was recorded is
// served, what was not is asked for.
func TestPortable_Interrupted(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "output before")
	died := errors.New("died")
	answers := 0
	r.SetFault(func(point string) error {
		if point == "committed" {
			if answers++; answers == 3 {
				return died
			}
		}
		return nil
	})
	_, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("model a; model b; model c; count")})
	if !errors.Is(err, died) {
		t.Fatal(err)
	}
	r.open()
	there := carry(t, r, s.UID)
	if got := mustGet(t, there, s.UID).State; got != host.ExecInterrupted {
		t.Fatalf("there it is %s", got)
	}
	e, err := there.Resume(t.Context(), s.UID, nil)
	if err != nil || e.State != abi.StateCompleted {
		t.Fatalf("%+v, %v", e, err)
	}
	if calls := there.ProviderCalls(); calls != 1 {
		t.Errorf("%d provider calls, want 1: two answers were recorded", calls)
	}
	there.verify(s.UID)
}

// A parked turn waits there for the same things, settled ones included, and so
// do children that were made of it.
func TestPortable_Parked(t *testing.T) {
	r, b := toolRig(t)
	s := r.create("steps")
	r.exec(s.UID, "output before")
	r.park(s.UID, "model x; tools a:read; tools b:read d:drop e:drop; count; wait go; wait again")
	carry(t, r, s.UID)
	r.decide(s.UID, "d", true)
	carry(t, r, s.UID)
	child := fork(t, r, host.ForkRequest{Session: s.UID, At: mustGet(t, r, s.UID).Head.Seq})[0]
	r.decide(s.UID, "e", false)
	if e, err := r.Resume(t.Context(), s.UID, nil); err != nil || len(e.Waiting) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	carry(t, r, s.UID)
	if _, err := r.Signal(t.Context(), s.UID, "go", []byte(big)); err != nil {
		t.Fatal(err)
	}
	carry(t, r, s.UID)

	there := carry(t, r, child.UID)
	there.tools = b.tools()
	there.open()
	there.decide(child.UID, "e", true)
	if e, err := there.Resume(t.Context(), child.UID, nil); err != nil || len(e.Waiting) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if b.called("b") != 1 || b.called("d") != 2 || b.called("e") != 1 {
		t.Errorf("called %v", b.calls)
	}
}

func TestPortable_FailedTurns(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	for _, in := range []string{"fail at once", "output fine", "panic", "model x; fail " + strings.Repeat("long ", 30_000)} {
		if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say(in)}); err != nil {
			t.Fatal(err)
		}
	}
	there := carry(t, r, s.UID)
	if got := there.exec(s.UID, "count"); got[0] != "1" {
		t.Errorf("it counts %s", got[0])
	}
}

func TestPortable_Names(t *testing.T) {
	r := newRig(t).open()
	s, err := r.Create(t.Context(), host.CreateRequest{Harness: harness(t, "echo"), Name: "demo", Project: "work"})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(s.UID, "hello")
	file := r.export(s.UID)
	there := other(t)
	if _, err := there.Create(t.Context(), host.CreateRequest{Harness: harness(t, "echo"), Name: "demo", Project: "work"}); err != nil {
		t.Fatal(err)
	}
	load := func(req host.ImportRequest) (host.Portable, error) {
		return there.Import(t.Context(), bytes.NewReader(file), req)
	}
	if _, err := load(host.ImportRequest{}); !errors.Is(err, host.ErrExists) {
		t.Errorf("a name that is taken: %v, want ErrExists", err)
	}
	for _, req := range []host.ImportRequest{{Name: "a b"}, {Name: "sess-x"}, {Project: "../x"}} {
		if _, err := load(req); !errors.Is(err, host.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", req, err)
		}
	}
	p, err := load(host.ImportRequest{Name: "other"})
	if err != nil || p.Session.Name != "other" || p.Session.Project != "work" || p.Session.UID != s.UID {
		t.Errorf("%+v, %v", p, err)
	}
	// It is here now, whatever it would have been called.
	if p, err := load(host.ImportRequest{Project: "elsewhere"}); err != nil || !p.Present || p.Session.Name != "other" || p.Session.Project != "work" {
		t.Errorf("again: %+v, %v", p, err)
	}
	there.exec(s.UID, "gone on")
	if _, err := load(host.ImportRequest{}); !errors.Is(err, host.ErrConflict) {
		t.Errorf("with another head: %v, want ErrConflict", err)
	}
}

// content is a portable file taken apart.
type content struct {
	session portable.Session
	pieces  []portable.Piece
}

func parse(t testing.TB, file []byte) content {
	t.Helper()
	r, err := portable.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := content{session: r.Session()}
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		c.pieces = append(c.pieces, p)
	}
}

// write makes a whole file of whatever c has.
func (c content) write(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := portable.NewWriter(&b, c.session)
	for _, p := range c.pieces {
		if err != nil {
			break
		}
		switch p.Kind {
		case portable.KindBlob:
			err = w.Blob(p.Bytes)
		case portable.KindImage:
			err = w.Image(*p.Image)
		case portable.KindPage:
			err = w.Page(p.Bytes)
		case portable.KindRecord:
			err = w.Record(p.Fence, p.Bytes)
		}
	}
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// find is the index of the n-th piece of a kind.
func (c content) find(kind portable.Kind, n int) int {
	for i, p := range c.pieces {
		if p.Kind == kind {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic(fmt.Sprintf("no piece %d of kind %s", n, kind))
}

func (c content) without(i int) content {
	c.pieces = append(append([]portable.Piece{}, c.pieces[:i]...), c.pieces[i+1:]...)
	return c
}

func (c content) with(i int, p portable.Piece) content {
	c.pieces = append([]portable.Piece{}, c.pieces...)
	c.pieces[i] = p
	return c
}

func (c content) insert(i int, p portable.Piece) content {
	c.pieces = append(append(append([]portable.Piece{}, c.pieces[:i]...), p), c.pieces[i:]...)
	return c
}

func (c content) claim(change func(*portable.Session)) content {
	change(&c.session)
	return c
}

// I8: whole files whose parts do not belong together, however well they were
// made, are refused, and nothing is imported.
func TestI8_PortableMixed(t *testing.T) {
	r := newRig(t).open()
	s := r.create("steps")
	r.exec(s.UID, "model one; big 70000")
	forked := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	r.exec(s.UID, "model two; count")
	a := parse(t, r.export(s.UID))
	child := parse(t, r.export(forked.UID))
	s2 := r.create("steps")
	r.exec(s2.UID, "model three")
	b := parse(t, r.export(s2.UID))
	e := r.create("echo")
	r.exec(e.UID, "hi")
	stateless := parse(t, r.export(e.UID))

	record, blob, page, image := portable.KindRecord, portable.KindBlob, portable.KindPage, portable.KindImage
	records := int(a.session.Head.Seq)
	edited := func(c content, n int, old, new string) content {
		i := c.find(record, n)
		p := c.pieces[i]
		if !bytes.Contains(p.Bytes, []byte(old)) {
			t.Fatalf("record %d has no %q: %s", n, old, p.Bytes)
		}
		p.Bytes = bytes.ReplaceAll(p.Bytes, []byte(old), []byte(new))
		return c.with(i, p)
	}
	flip := func(p portable.Piece) portable.Piece {
		p.Bytes = bytes.Clone(p.Bytes)
		p.Bytes[len(p.Bytes)/2] ^= 1
		return p
	}
	// headed claims the hash of the last record as the head.
	headed := func(c content) content {
		last := c.pieces[c.find(record, int(c.session.Head.Seq)-1)]
		return c.claim(func(s *portable.Session) { s.Head.Hash = abi.DigestOf(last.Bytes) })
	}
	there := other(t)
	for name, tt := range map[string]struct {
		content
		want error
	}{
		"edited record":          {edited(a, 2, "one", "two"), portable.ErrMixed},
		"edited last record":     {edited(a, records-1, "COMPLETED", "CANCELED"), journal.ErrCorrupt},
		"the same, with head":    {headed(edited(a, records-1, `"root":"`, `"root":"0`)), journal.ErrCorrupt},
		"record of another":      {a.with(a.find(record, 4), b.pieces[b.find(record, 4)]), portable.ErrMixed},
		"records exchanged":      {a.with(a.find(record, 4), a.pieces[a.find(record, 5)]), portable.ErrMixed},
		"last record left out":   {a.without(a.find(record, records-1)), portable.ErrMixed},
		"another session's uid":  {a.claim(func(s *portable.Session) { s.UID = s2.UID }), portable.ErrMixed},
		"another head":           {a.claim(func(s *portable.Session) { s.Head.Hash = b.session.Head.Hash }), journal.ErrCorrupt},
		"a shorter head":         {a.claim(func(s *portable.Session) { s.Head.Seq-- }), portable.ErrMixed},
		"a fork as a root":       {child.claim(func(s *portable.Session) { s.Parent, s.At = "", 0 }), portable.ErrMixed},
		"a root as a fork":       {a.claim(func(s *portable.Session) { s.Parent, s.At = s2.UID, 3 }), portable.ErrMixed},
		"another parent":         {child.claim(func(s *portable.Session) { s.Parent = s2.UID }), portable.ErrMixed},
		"uid that is none":       {a.claim(func(s *portable.Session) { s.UID = "demo" }), portable.ErrInvalid},
		"parent without seq":     {child.claim(func(s *portable.Session) { s.At = 0 }), portable.ErrInvalid},
		"fork beyond the head":   {child.claim(func(s *portable.Session) { s.At = 1000 }), portable.ErrInvalid},
		"metadata":               {a.claim(func(s *portable.Session) { s.Meta = []byte(`{"config":7}`) }), portable.ErrInvalid},
		"a label":                {a.claim(func(s *portable.Session) { s.Meta = []byte(`{"labels":{"a=b":""}}`) }), portable.ErrInvalid},
		"a time":                 {a.claim(func(s *portable.Session) { s.Meta = []byte(`{"deadline":-1}`) }), portable.ErrInvalid},
		"another's metadata":     {a.claim(func(s *portable.Session) { s.Meta = stateless.session.Meta }), portable.ErrMixed},
		"no module":              {a.without(0), portable.ErrInvalid},
		"nothing":                {content{session: r0(a.session)}, portable.ErrMixed},
		"image before module":    {a.without(0).insert(0, a.pieces[a.find(image, 0)]), portable.ErrInvalid},
		"edited module":          {a.with(0, flip(a.pieces[0])), portable.ErrMixed},
		"another module":         {a.with(0, stateless.pieces[0]), portable.ErrMixed},
		"edited page":            {a.with(a.find(page, 2), flip(a.pieces[a.find(page, 2)])), portable.ErrMixed},
		"another image":          {swapImage(a, b), portable.ErrMixed},
		"no image":               {swapImage(a, stateless), portable.ErrMixed},
		"an image not asked for": {swapImage(stateless, b), portable.ErrMixed},
		"impossible image": {a.with(a.find(image, 0), portable.Piece{Kind: image, Image: &portable.Image{
			Size: abi.PageSize, Pages: a.pieces[a.find(image, 0)].Image.Pages,
		}}), portable.ErrInvalid},
		"edited blob":             {a.with(a.find(blob, 1), flip(a.pieces[a.find(blob, 1)])), portable.ErrMixed},
		"blob left out":           {a.without(a.find(blob, 2)), portable.ErrMixed},
		"blob that nothing names": {a.insert(a.find(blob, 2), portable.Piece{Kind: blob, Bytes: []byte("extra")}), portable.ErrMixed},
		"blob twice":              {a.insert(a.find(blob, 2), a.pieces[a.find(blob, 1)]), portable.ErrInvalid},
		"module twice":            {a.insert(a.find(blob, 2), a.pieces[0]), portable.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := there.Import(t.Context(), bytes.NewReader(tt.write(t)), host.ImportRequest{})
			if !errors.Is(err, tt.want) || !errors.Is(err, journal.ErrCorrupt) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			for _, uid := range []abi.SessionID{s.UID, forked.UID, e.UID, tt.session.UID} {
				if _, err := there.Get(t.Context(), uid); !errors.Is(err, host.ErrNotFound) {
					t.Errorf("session %s: %v", uid, err)
				}
			}
		})
	}
	// What is left of all of them does not stand in the way of a good file.
	there.load(a.write(t))
	there.verify(s.UID)

	// A whole chain of things that never happened is what running it is for.
	forged := headed(edited(a, records-1, `"turn":"2"`, `"turn":"3"`))
	there = other(t)
	there.load(forged.write(t))
	if _, err := there.Verify(t.Context(), host.VerifyRequest{Session: s.UID, Reexecute: true}); !errors.Is(err, host.ErrDivergence) {
		t.Errorf("forged: %v, want a divergence", err)
	}
}

// r0 is a session's description without records.
func r0(s portable.Session) portable.Session {
	s.Head = portable.Head{}
	return s
}

// swapImage is c with the image of from, if it has one.
func swapImage(c, from content) content {
	isImage := func(p portable.Piece) bool {
		return p.Kind == portable.KindImage || p.Kind == portable.KindPage
	}
	out := content{session: c.session, pieces: c.pieces[:1:1]}
	for _, p := range from.pieces {
		if isImage(p) {
			out.pieces = append(out.pieces, p)
		}
	}
	for _, p := range c.pieces[1:] {
		if !isImage(p) {
			out.pieces = append(out.pieces, p)
		}
	}
	return out
}

// FuzzImport: no file makes a host panic, and one that is taken verifies. The
// harness is native: a module of megabytes would be most of the work.
func FuzzImport(f *testing.F) {
	machine := func(t testing.TB) *rig {
		r := newRig(t)
		r.runtimes = []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{"native": func() sdk.Harness { return native{} }})}
		return r.open()
	}
	r := machine(f)
	s, err := r.Create(f.Context(), host.CreateRequest{Harness: host.Harness{Name: "native", Code: []byte("n")}})
	if err != nil {
		f.Fatal(err)
	}
	r.exec(s.UID, "one")
	r.exec(s.UID, "two")
	child, err := r.Fork(f.Context(), host.ForkRequest{Session: s.UID})
	if err != nil {
		f.Fatal(err)
	}
	uid := child[0].UID
	r.exec(uid, "three")
	whole, want := parse(f, r.export(uid)), r.transcript(uid)
	for i := range whole.pieces {
		f.Add(uint8(i), uint16(i*7), []byte("x"))
	}
	f.Add(uint8(0), uint16(0), []byte{})
	f.Fuzz(func(t *testing.T, piece uint8, at uint16, with []byte) {
		i := int(piece) % len(whole.pieces)
		p := whole.pieces[i]
		from := min(int(at), len(p.Bytes))
		p.Bytes = append(append(bytes.Clone(p.Bytes[:from]), with...), p.Bytes[min(from+len(with), len(p.Bytes)):]...)
		there := machine(t)
		_, err := there.Import(t.Context(), bytes.NewReader(whole.with(i, p).write(t)), host.ImportRequest{})
		switch {
		case err == nil:
			if diff := cmp.Diff(want, there.transcript(uid)); diff != "" {
				t.Errorf("record (-here +there):\n%s", diff)
			}
			there.verify(uid)
		case !errors.Is(err, journal.ErrCorrupt):
			t.Errorf("piece %d: %v", i, err)
		}
	})
}

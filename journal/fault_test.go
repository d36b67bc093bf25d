package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// process is a child process under a test's control.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	acks   chan ack
	stderr bytes.Buffer
}

// startChild runs the test binary, by way of a tracer if there is one, as a
// child in the given mode.
func startChild(t *testing.T, tracer []string, mode string, args ...string) *process {
	t.Helper()
	argv := append(append([]string{}, tracer...), os.Args[0])
	cmd := exec.Command(argv[0], append(argv[1:], args...)...)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	p := &process{t: t, cmd: cmd, acks: make(chan ack, 1<<16)}
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		p.in, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.acks)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var a ack
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("a child says %q: %v", lines.Text(), err)
				return
			}
			p.acks <- a
		}
	}()
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// next waits for what the child says next.
func (p *process) next() ack {
	p.t.Helper()
	a, ok := <-p.acks
	if !ok {
		p.t.Fatalf("the child ended: %v\n%s", p.cmd.Wait(), &p.stderr)
	}
	return a
}

// kill ends the child without notice and gives what it said that was not read
// yet. It must not have ended by itself.
func (p *process) kill() []ack {
	p.t.Helper()
	p.cmd.Process.Kill()
	var said []ack
	for a := range p.acks {
		said = append(said, a)
	}
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != -1 {
		p.t.Fatalf("the child ended by itself with code %d\n%s", code, &p.stderr)
	}
	return said
}

// checker holds a journal against what children said of it.
type checker struct {
	t     *testing.T
	acked map[abi.SessionID]map[abi.Seq]abi.Digest
	roots map[abi.Digest]bool // images whose every page was read
	last  *Image              // one of them
	acks  int
}

func newChecker(t *testing.T) *checker {
	return &checker{t: t, acked: map[abi.SessionID]map[abi.Seq]abi.Digest{}, roots: map[abi.Digest]bool{}}
}

func (c *checker) add(acks []ack) {
	for _, a := range acks {
		if a.Seq == 0 {
			continue
		}
		c.acks++
		if c.acked[a.Session] == nil {
			c.acked[a.Session] = map[abi.Seq]abi.Digest{}
		}
		c.acked[a.Session][a.Seq] = a.Hash
		for _, child := range a.Children {
			c.acked[child] = map[abi.Seq]abi.Digest{a.Seq: a.Hash}
		}
	}
}

// projects checks every session of some projects.
func (c *checker) projects(j *Journal, projects ...string) {
	c.t.Helper()
	for _, project := range projects {
		page, err := j.List(project, "", 10_000)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range page.Sessions {
			c.session(j, s)
		}
	}
}

// everything checks that all sessions that were acknowledged are there, and
// checks them.
func (c *checker) everything(j *Journal) {
	c.t.Helper()
	clear(c.roots)
	for uid := range c.acked {
		s, err := j.Session(uid)
		if err != nil {
			c.t.Fatal(err)
		}
		c.session(j, s)
	}
}

// session checks that the chain verifies, has every acknowledged record and only
// whole batches, and that what its records name is stored.
func (c *checker) session(j *Journal, s Session) {
	c.t.Helper()
	if _, _, err := j.Verify(c.t.Context(), s.UID, VerifyOptions{Strict: true}); err != nil {
		c.t.Fatal(err)
	}
	open, records := 0, map[abi.Seq]abi.Digest{}
	for r, err := range j.Read(s.UID, 1, 0) {
		if err != nil {
			c.t.Fatal(err)
		}
		records[r.Seq] = r.Hash
		event, _, _, err := ParseLine(r.Line)
		if err != nil {
			c.t.Fatal(err)
		}
		var n note
		if err := json.Unmarshal(event, &n); err != nil {
			c.t.Fatal(err)
		}
		if n.I != open+1 {
			c.t.Fatalf("session %s, record %d: record %d of a batch after %d of it", s.UID, r.Seq, n.I, open)
		}
		open = n.I % n.Of
		c.named(j, n)
	}
	if open != 0 {
		c.t.Fatalf("session %s ends %d records into a batch", s.UID, open)
	}
	for seq, hash := range c.acked[s.UID] {
		if records[seq] != hash {
			c.t.Fatalf("session %s, record %d: acknowledged as %v, stored as %v", s.UID, seq, hash, records[seq])
		}
	}
}

// named checks that what a record names can be read (M4).
func (c *checker) named(j *Journal, n note) {
	c.t.Helper()
	if !n.Blob.IsZero() {
		if _, err := j.Blob(n.Blob); err != nil {
			c.t.Fatal(err)
		}
	}
	if n.Root.IsZero() || c.roots[n.Root] {
		return
	}
	im, err := j.LoadImage(n.Root)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.last == nil || c.last.journal != j {
		if c.last, err = j.NewImage(nil, ImageSpec{}); err != nil {
			c.t.Fatal(err)
		}
	}
	changed, err := j.DiffImages(c.last, im)
	if err != nil {
		c.t.Fatal(err)
	}
	page := make([]byte, abi.PageSize)
	for _, i := range changed {
		if err := j.ReadPage(im, i, page); err != nil {
			c.t.Fatal(err)
		}
	}
	c.roots[n.Root], c.last = true, im
}

func openAt(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func closeJournal(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKill kills children at random moments, while they open the journal too, all
// of them in one directory, so that each recovers from what the last one left.
func TestKill(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 20
	}
	dir := t.TempDir()
	c := newChecker(t)
	for run := range runs {
		earlier := ""
		if run > 0 {
			earlier = project(run - 1)
		}
		p := startChild(t, nil, "concurrent", dir, project(run), earlier)
		if run%4 > 0 { // else it may not get as far as this
			p.next()
		}
		if run%4 == 1 {
			for range 1 + rand.N(10) {
				c.add([]ack{p.next()})
			}
		}
		time.Sleep(rand.N(60 * time.Millisecond))
		c.add(p.kill())
		if run%3 > 0 {
			continue // the next child is the one to recover
		}
		recent := []string{project(run), project(max(run-1, 0)), project(max(run-2, 0))}
		if run > 0 { // the first may not have got as far as making a journal
			j := readingOnly(t, dir)
			c.projects(j, recent...)
			closeJournal(t, j)
		}
		j := openAt(t, dir)
		c.projects(j, recent...)
		closeJournal(t, j)
	}
	j := openAt(t, dir)
	defer closeJournal(t, j)
	c.everything(j)
	t.Logf("%d children killed, %d acknowledged appends in %d sessions all there", runs, c.acks, len(c.acked))
	if c.acks < runs/4 {
		t.Errorf("only %d appends were acknowledged: too few to show anything", c.acks)
	}
}

func project(run int) string { return "run" + strconv.Itoa(run) }

// cutAppends is how many appends each child of TestCutWriteAhead makes at least.
const cutAppends = 25

// TestCutWriteAhead cuts and blanks the write-ahead files that a killed child left,
// at random bytes. What can be read then is what some number of appends, from
// the first on, made.
func TestCutWriteAhead(t *testing.T) {
	dir := t.TempDir()
	for run, earlier := range []string{"", project(0)} {
		p := startChild(t, nil, "serial", dir, project(run), earlier)
		for a := p.next(); a.N < cutAppends || a.Begin; a = p.next() {
		}
		p.kill()
	}
	files := readStore(t, dir)
	trials := 120
	if testing.Short() {
		trials = 20
	}
	// Where a cut falls is chance: more are made until they have left enough
	// different states to show something.
	enough, most := min(10, trials/4), 10*trials
	seen := map[int]bool{}
	trial := 0
	for ; trial < trials || trial < most && len(seen) < enough; trial++ {
		cut := files.damage(trial)
		n, err := cut.survivors(t)
		if err != nil {
			t.Fatalf("%s: %v", cut.what, err)
		}
		seen[n] = true
	}
	if len(seen) < enough {
		t.Errorf("the cuts left only %d different states: too few to show anything", len(seen))
	}
	t.Logf("%d cuts left %d different prefixes", trial, len(seen))
}

// storeFiles is a copy of a store's files, without the zeros at their ends.
type storeFiles struct {
	what  string
	files map[string]storeFile
}

type storeFile struct {
	data []byte
	size int64
}

func readStore(t *testing.T, dir string) storeFiles {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := storeFiles{files: map[string]storeFile{}}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s.files[name.Name()] = storeFile{data: bytes.Clone(bytes.TrimRight(b, "\x00")), size: int64(len(b))}
	}
	return s
}

// diff names the files of which s has other bytes than later, or which only one of
// them has. The lock file may change.
func (s storeFiles) diff(later storeFiles) string {
	var names []string
	for name, f := range s.files {
		if l, ok := later.files[name]; name != lockName && (!ok || f.size != l.size || !bytes.Equal(f.data, l.data)) {
			names = append(names, name)
		}
	}
	for name := range later.files {
		if _, ok := s.files[name]; !ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// newest is the last file with this suffix.
func (s storeFiles) newest(suffix string) string {
	found := ""
	for name := range s.files {
		if strings.HasSuffix(name, suffix) {
			found = max(found, name)
		}
	}
	return found
}

// walHeader is how much of a write-ahead file says how it is encrypted: garbage in
// there does keep a journal from opening.
const walHeader = 20

// damage is a copy of s whose newest write-ahead file ends at some byte, is zero from
// there on, or has a page of zeros or of anything there, as when a machine stops
// while pages are written in any order. Every tenth time it is a value log file,
// which is near empty.
func (s storeFiles) damage(trial int) storeFiles {
	name := s.newest(".mem")
	if trial%10 == 9 {
		name = s.newest(".vlog")
	}
	f := s.files[name]
	at := rand.IntN(len(f.data) + 1)
	if trial < 8 {
		at = 5 * (trial / 4) // 0, and less than the file's header
	}
	hurt := storeFile{data: bytes.Clone(f.data), size: f.size}
	end := min(len(f.data), at+abi.PageSize)
	what := ""
	switch trial % 4 {
	case 0:
		what, hurt.data, hurt.size = "cut at", hurt.data[:at], int64(at)
	case 1:
		what, hurt.data = "zero from", hurt.data[:at]
	case 2:
		what = "a page of zeros at"
		clear(hurt.data[at:end])
	case 3:
		what = "a page of anything at"
		for i := max(at, walHeader); i < end; i++ {
			hurt.data[i] = byte(rand.Uint32())
		}
	}
	cut := storeFiles{
		what:  fmt.Sprintf("%s: %s %d of %d bytes", name, what, at, len(f.data)),
		files: maps.Clone(s.files),
	}
	cut.files[name] = hurt
	return cut
}

// survivors writes the files to a directory, opens it, checks all it has, and
// tells how many appends it has. It is an error if these are not the first ones.
func (s storeFiles) survivors(t *testing.T) (int, error) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for name, f := range s.files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, f.data, 0o600); err != nil {
			return 0, err
		}
		if err := os.Truncate(path, f.size); err != nil {
			return 0, err
		}
	}
	files, err := openFiles(newSpace(dir, 0))
	if err != nil {
		return 0, err
	}
	read := everything(t, files.View(), false)
	hasOnly(t, files.View(), read)
	if err := files.Close(); err != nil {
		return 0, err
	}
	j, err := Open(dir, Options{FreeReserve: -1})
	if err != nil {
		return 0, err
	}
	defer closeJournal(t, j)
	if !slices.Equal(read, everything(t, j.store.View(), false)) {
		return 0, errors.New("read as it is, it has other keys than once it is recovered")
	}
	first, second := project(0), project(1)
	newChecker(t).projects(j, first, second)
	appends := map[string]map[int]bool{first: {}, second: {}}
	for run := range appends {
		page, err := j.List(run, "", 100)
		if err != nil {
			return 0, err
		}
		for _, s := range page.Sessions {
			for r, err := range j.Read(s.UID, 1, 0) {
				if err != nil {
					return 0, err
				}
				var line struct{ Event note }
				if err := json.Unmarshal(r.Line, &line); err != nil {
					return 0, err
				}
				appends[line.Event.Run][line.Event.N] = true
			}
		}
	}
	for run, ns := range appends {
		for n := range ns {
			if n > 1 && !ns[n-1] {
				return 0, fmt.Errorf("append %d of run %s is there, %d is not", n, run, n-1)
			}
		}
	}
	if len(appends[second]) > 0 && len(appends[first]) < cutAppends {
		return 0, fmt.Errorf("%s is there, and only %d appends of %s", second, len(appends[first]), first)
	}
	return len(appends[first]) + len(appends[second]), nil
}

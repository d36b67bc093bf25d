package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAcknowledgedMeansSynced_Traced traces a child: between the line that announces an
// append and the one that acknowledges it, the write-ahead file was synced, in a
// call that began after the one and returned before the other (I6).
func TestAcknowledgedMeansSynced_Traced(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err == nil {
		err = exec.Command(strace, "-o", os.DevNull, "true").Run()
	}
	if err != nil {
		require(t, fmt.Sprintf("strace, and to be allowed to trace: %v", err))
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "trace")
	calls := "trace=mmap,msync,fsync,fdatasync,write"
	p := startChild(t, []string{strace, "-f", "-y", "-e", calls, "-o", log}, "forty", filepath.Join(dir, "journal"), "run", "")
	acks := 0
	for a := range p.acks {
		if a.Seq > 0 {
			acks++
		}
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &p.stderr)
	}
	trace, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var s syncs
	for line := range strings.Lines(string(trace)) {
		if err := s.line(line); err != nil {
			t.Fatalf("%v\nmapped at %v, of the trace:\n%s", err, s.logs, trace)
		}
	}
	if s.acks != acks || acks != 40 {
		t.Fatalf("the trace has %d acknowledgements, the pipe had %d, want 40", s.acks, acks)
	}
}

// syncs reads a trace. A call that another thread's interrupts is two lines in
// it, and counts as one, which begins at the first and returns at the second.
type syncs struct {
	open    map[string]string // by thread, the first line of the call it is in
	logs    map[string]bool   // addresses at which write-ahead files are mapped
	begun   bool              // an append was announced and not acknowledged yet
	pending map[string]bool   // threads in a sync that began after that
	synced  bool              // such a sync has returned
	acks    int
}

var (
	traceLine    = regexp.MustCompile(`^(\d+) +(.*)\n$`)
	traceResumed = regexp.MustCompile(`^<\.\.\. \w+ resumed>(.*)$`)
	traceMap     = regexp.MustCompile(`^mmap\(.*MAP_SHARED, \d+<[^>]*\.mem>, 0\) += (0x[0-9a-f]+)$`)
	traceSync    = regexp.MustCompile(`^(?:msync\((0x[0-9a-f]+), |f(?:data)?sync\(\d+<[^>]*\.mem>)`)
)

func (s *syncs) line(line string) error {
	if s.logs == nil {
		s.open, s.logs, s.pending = map[string]string{}, map[string]bool{}, map[string]bool{}
	}
	m := traceLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("not a line of a trace: %q", line)
	}
	thread, call := m[1], m[2]
	first, cut := strings.CutSuffix(call, " <unfinished ...>")
	resumed := traceResumed.FindStringSubmatch(call)
	switch {
	case resumed != nil:
		call = s.open[thread] + resumed[1]
		delete(s.open, thread)
	case cut:
		call = first
		s.open[thread] = first
	}
	if resumed == nil {
		if err := s.begins(thread, call); err != nil {
			return err
		}
	}
	if !cut {
		s.returned(thread, call)
	}
	return nil
}

func (s *syncs) begins(thread, call string) error {
	pipe := strings.HasPrefix(call, `write(1<pipe:`)
	switch m := traceSync.FindStringSubmatch(call); {
	case m != nil:
		s.pending[thread] = s.begun && (m[1] == "" || s.logs[m[1]])
	case pipe && strings.Contains(call, `\"Begin\":true`):
		s.begun, s.synced = true, false
		clear(s.pending)
	case pipe && s.begun:
		if !s.synced {
			return fmt.Errorf("acknowledged before it was synced: %s", call)
		}
		s.begun = false
		s.acks++
	}
	return nil
}

func (s *syncs) returned(thread, call string) {
	if m := traceMap.FindStringSubmatch(call); m != nil {
		s.logs[m[1]] = true
	}
	if traceSync.MatchString(call) && strings.HasSuffix(call, " = 0") {
		s.synced = s.synced || s.pending[thread]
	}
}

// TestSyncs reads traces whose calls are cut in two by other threads, which a busy
// machine does to any of them.
func TestSyncs(t *testing.T) {
	const (
		begin   = `7 write(1<pipe:[1]>, "{\"N\":1,\"Begin\":true}"..., 25) = 25`
		ack     = `7 write(1<pipe:[1]>, "{\"N\":1,\"Seq\":1}"..., 25) = 25`
		mapped  = `7 mmap(NULL, 65536, PROT_READ|PROT_WRITE, MAP_SHARED, 9</j/00001.mem>, 0) = 0xa000`
		mapping = `7 mmap(NULL, 65536, PROT_READ|PROT_WRITE, MAP_SHARED, 9</j/00001.mem>, 0 <unfinished ...>`
		synced  = `8 msync(0xa000, 65536, MS_SYNC) = 0`
		syncing = `8 msync(0xa000, 65536, MS_SYNC <unfinished ...>`
	)
	for name, tt := range map[string]struct {
		trace []string
		bad   bool
	}{
		"whole":                    {[]string{mapped, begin, synced, ack}, false},
		"by descriptor":            {[]string{begin, `8 fdatasync(9</j/00001.mem>) = 0`, ack}, false},
		"cut mapping":              {[]string{mapping, synced, `7 <... mmap resumed>)               = 0xa000`, begin, synced, ack}, false},
		"cut sync":                 {[]string{mapped, begin, syncing, `8 <... msync resumed>) = 0`, ack}, false},
		"not synced":               {[]string{mapped, synced, begin, ack}, true},
		"of another file":          {[]string{begin, synced, ack}, true},
		"failed":                   {[]string{mapped, begin, `8 msync(0xa000, 65536, MS_SYNC) = -1 EIO (Input/output error)`, ack}, true},
		"not back yet":             {[]string{mapped, begin, syncing, ack, `8 <... msync resumed>) = 0`}, true},
		"begun before the append":  {[]string{mapped, syncing, begin, `8 <... msync resumed>) = 0`, ack}, true},
		"cut acknowledgement":      {[]string{mapped, begin, strings.Replace(ack, ") = 25", " <unfinished ...>", 1), synced, `7 <... write resumed>) = 25`}, true},
		"a second append unsynced": {[]string{mapped, begin, synced, ack, begin, ack}, true},
	} {
		var s syncs
		var err error
		for _, line := range tt.trace {
			if err == nil {
				err = s.line(line + "\n")
			}
		}
		if (err != nil) != tt.bad {
			t.Errorf("%s: error %v, want one: %t", name, err, tt.bad)
		}
	}
}

// mountSmall mounts a small file system.
func mountSmall(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		require(t, fmt.Sprintf("to be allowed to mount a tmpfs: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// filler takes up size megabytes of dir's file system, or all that is left if
// size is 0.
func filler(t *testing.T, dir string, size int) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for i := 0; size == 0 || i < size; i++ {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) && size == 0 {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}

func (p *process) say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("the child ended: %v\n%s", p.cmd.Wait(), &p.stderr)
	}
}

// TestFullDisk has a child append until the disk is full, with batches of several
// sizes. It never dies; what it was told is durable stays readable; once there
// is room again it goes on (S3).
func TestFullDisk(t *testing.T) {
	for _, tt := range []struct{ size, fill, pages int }{
		{360, 100, 20}, {360, 100, 700}, {360, 100, 3000}, {48, 16, 20}, {48, 16, 700},
	} {
		pages := tt.pages
		t.Run(fmt.Sprintf("%d MB, %d pages", tt.size, pages), func(t *testing.T) {
			disk := mountSmall(t, fmt.Sprintf("size=%dm", tt.size))
			fill := filler(t, disk, tt.fill)
			dir := filepath.Join(disk, "journal")
			p := startChild(t, nil, "commands", dir, "run", "")
			c := newChecker(t)
			p.next()
			acks := 0
			fillUp := func() {
				p.say("fill %d", pages)
				a := p.next()
				for ; a.Error == ""; a = p.next() {
					c.add([]ack{a})
					acks++
				}
				t.Logf("%d appends; %s", acks, a.Error)
			}
			p.say("append 1")
			if a := p.next(); a.Error != "" {
				t.Fatal(a.Error)
			}
			fillUp()
			p.say("read 0")
			if a := p.next(); a.Error != "" {
				t.Fatal(a.Error)
			}
			p.say("append 30000") // more than the disk
			if a := p.next(); a.Error == "" {
				t.Fatal("an image was stored that is larger than the free space")
			}

			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
			// Tables that are just being merged take their room twice until they are
			// merged, which a busy machine takes its time for.
			for try := 0; ; try++ {
				p.say("append %d", pages)
				a := p.next()
				if a.Error == "" {
					c.add([]ack{a})
					break
				}
				if try == 6000 || !strings.Contains(a.Error, ErrFull.Error()) {
					t.Fatalf("with free space again: %s", a.Error)
				}
				time.Sleep(10 * time.Millisecond)
			}
			fillUp()
			p.in.Close()
			for a := range p.acks {
				t.Errorf("unexpected: %+v", a)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Fatalf("the child: %v\n%s", err, &p.stderr)
			}
			j := openAt(t, dir)
			defer closeJournal(t, j)
			c.everything(j)
		})
	}
}

// TestFullDisk_Open opens a journal, with what a killed process left to recover,
// on a disk that something else has filled: it can be read, an append is refused,
// and once there is room the same process goes on.
func TestFullDisk_Open(t *testing.T) {
	disk := mountSmall(t, "size=360m")
	dir := filepath.Join(disk, "journal")
	p := startChild(t, nil, "commands", dir, "run", "")
	c := newChecker(t)
	p.next()
	for range 4 {
		p.say("append 700")
		c.add([]ack{p.next()})
	}
	p.kill()
	fill := filler(t, disk, 0)
	before := readStore(t, dir)
	j := openAt(t, dir)
	c.everything(j)
	if err := j.ReadOnly(); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), dir) {
		t.Errorf("on a full disk: read-only as %v, want ErrFull and where", err)
	}
	if room, err := j.Room(); err != nil || room.Need <= room.Free {
		t.Errorf("on a full disk: room %+v, %v", room, err)
	}
	closeJournal(t, j)
	if diff := before.diff(readStore(t, dir)); diff != "" {
		t.Errorf("reading changed %s", diff)
	}

	p = startChild(t, nil, "commands", dir, "next", "run")
	p.next()
	p.say("read 0")
	if a := p.next(); a.Error != "" {
		t.Error(a.Error)
	}
	p.say("append 1")
	if a := p.next(); !strings.Contains(a.Error, ErrFull.Error()) {
		t.Errorf("an append on a full disk: %+v", a)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	p.say("append 1")
	if a := p.next(); a.Error != "" {
		t.Errorf("once there is room: %+v", a)
	} else {
		c.add([]ack{a})
	}
	p.say("read 0")
	if a := p.next(); a.Error != "" {
		t.Error(a.Error)
	}
	p.kill()
	j = openAt(t, dir)
	defer closeJournal(t, j)
	c.everything(j)
	if err := j.ReadOnly(); err != nil {
		t.Error(err)
	}
}

// TestFullDisk_New makes a journal where there is no room for one.
func TestFullDisk_New(t *testing.T) {
	disk := mountSmall(t, "size=4m")
	filler(t, disk, 0)
	if _, err := Open(filepath.Join(disk, "journal"), Options{}); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
}

// TestFullDisk_Files opens a journal on a disk that takes no more files.
func TestFullDisk_Files(t *testing.T) {
	disk := mountSmall(t, "size=600m,nr_inodes=40")
	dir := filepath.Join(disk, "journal")
	p := startChild(t, nil, "commands", dir, "run", "")
	c := newChecker(t)
	p.next()
	p.say("append 700")
	c.add([]ack{p.next()})
	p.kill()
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(disk, fmt.Sprintf("filler-%d", i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	j := openAt(t, dir)
	defer closeJournal(t, j)
	c.everything(j)
	if err := j.ReadOnly(); !errors.Is(err, ErrFull) {
		t.Errorf("read-only as %v, want ErrFull", err)
	}
	if _, err := j.Create(t.Context(), Session{UID: "s"}); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
}

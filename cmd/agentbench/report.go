package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/agentcell/agentcell/journal"
)

// report is what agentbench scale found.
type report struct {
	Machine    string    `json:"machine"`
	Harness    string    `json:"harness"`
	Parallel   int       `json:"parallel"`
	References reference `json:"references"`
	// Empty is the memory of a host with the parent alone.
	Empty     memory  `json:"empty"`
	Suspended []point `json:"suspended"`
	Warm      *warm   `json:"warm,omitempty"`
}

// point is what was found with so many suspended sessions. Memory is beyond that of
// the empty host.
type point struct {
	Sessions int `json:"sessions"`
	// Extrapolated: it was not measured but follows from the points before.
	Extrapolated bool `json:"extrapolated,omitempty"`
	// Disk is the size of the store's files; of it, Records, Blobs and Pages are
	// those of rows that have these, and Tree those of the rows around pages.
	Disk    int64 `json:"disk"`
	Records int64 `json:"record_bytes"`
	Blobs   int64 `json:"blob_bytes"`
	Pages   int64 `json:"page_bytes"`
	Tree    int64 `json:"tree_bytes"`
	// Memory is that of the host which made them, Opened of one that has just been
	// opened.
	Memory memory `json:"memory"`
	Opened memory `json:"memory_opened"`
	// Open is how long it takes to open the store, Look to find that no turn is to
	// be recovered.
	Open time.Duration `json:"open_ns,omitempty"`
	Look time.Duration `json:"look_ns,omitempty"`
	// Get is of one session, List of a page of 50, Resume of a whole turn of one.
	Get    latency `json:"get"`
	List   latency `json:"list"`
	Resume latency `json:"resume"`
}

func (p *point) stored(disk int64, all journal.Amount) {
	p.Disk, p.Records, p.Blobs = disk, all.RecordBytes, all.BlobBytes
	p.Pages, p.Tree = all.PageBytes-all.TreeBytes, all.TreeBytes
}

// beyond is what the files take beside records, blobs and pages: F11 on disk.
func (p *point) beyond() int64 { return p.Disk - p.Records - p.Blobs - p.Pages }

// warm is what was found with so many sessions at rest.
type warm struct {
	Sessions int `json:"sessions"`
	// Kept is how many of them were found warm.
	Kept   int           `json:"kept"`
	Memory memory        `json:"memory"`
	Made   time.Duration `json:"made_ns"`
	// Hot, Rested and Cold are turns of a session that is ready to run, at rest, and
	// in the store only.
	Hot    latency `json:"hot"`
	Rested latency `json:"rested"`
	Cold   latency `json:"cold"`
}

// extrapolate adds a point for n sessions, on the line through the last two.
func (r *report) extrapolate(n int) {
	k := len(r.Suspended)
	if k < 2 || r.Suspended[k-1].Sessions >= n {
		return
	}
	a, b := r.Suspended[k-2], r.Suspended[k-1]
	line := func(x, y int64) int64 {
		return max(0, y+int64(float64(y-x)/float64(b.Sessions-a.Sessions)*float64(n-b.Sessions)))
	}
	mem := func(x, y memory) memory {
		return memory{line(x.Heap, y.Heap), line(x.Private, y.Private), line(x.Resident, y.Resident)}
	}
	r.Suspended = append(r.Suspended, point{
		Sessions: n, Extrapolated: true,
		Disk: line(a.Disk, b.Disk), Records: line(a.Records, b.Records), Blobs: line(a.Blobs, b.Blobs), Pages: line(a.Pages, b.Pages), Tree: line(a.Tree, b.Tree),
		Memory: mem(a.Memory, b.Memory), Opened: mem(a.Opened, b.Opened),
		Open: time.Duration(line(int64(a.Open), int64(b.Open))), Look: time.Duration(line(int64(a.Look), int64(b.Look))),
	})
}

// print writes the report for people.
func (r *report) print(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s; harness %s, %d turns at once.", r.Machine, r.Harness, r.Parallel)
	p.line("A synced write of 4 KiB takes %s; memory is copied at %.1f GB/s.", r.References.Sync, r.References.Copy/1e9)
	p.line("A host with one session has %s of live heap and %s of private memory.\n", kib(r.Empty.Heap), kib(r.Empty.Private))

	p.line("F11: suspended sessions, each forked from one parent and run for one turn. KiB for each.\n")
	p.table([]string{"sessions", "records", "pages", "beyond", "of that, trees", "heap", "private", "resident", "heap, opened", "private, opened"}, func(row func(...string)) {
		for _, s := range r.Suspended {
			each := func(n int64) string { return kib(n / int64(s.Sessions)) }
			row(s.name(), each(s.Records), each(s.Pages), each(s.beyond()), each(s.Tree),
				each(s.Memory.Heap), each(s.Memory.Private), each(s.Memory.Resident), each(s.Opened.Heap), each(s.Opened.Private))
		}
	})
	p.line("")
	p.table([]string{"sessions", "store", "open", "look", "get p50 / p99", "list p50 / p99", "resume p50 / p99"}, func(row func(...string)) {
		for _, s := range r.Suspended {
			row(s.name(), fmt.Sprintf("%.2f GB", float64(s.Disk)/1e9), short(s.Open), short(s.Look), s.Get.String(), s.List.String(), s.Resume.String())
		}
	})
	if r.Warm != nil {
		r.Warm.print(p)
	}
	return p.err
}

func (s *point) name() string {
	if s.Extrapolated {
		return fmt.Sprintf("%d, extrapolated", s.Sessions)
	}
	return fmt.Sprint(s.Sessions)
}

func (w *warm) print(p *printer) {
	each := func(n int64) string { return kib(n / int64(w.Sessions)) }
	p.line("\nF12: %d sessions at rest after one more turn, %d of them found warm; it took %s.\n", w.Sessions, w.Kept, short(w.Made))
	p.table([]string{"", "each", "together"}, func(row func(...string)) {
		row("heap", each(w.Memory.Heap), fmt.Sprintf("%.0f MB", float64(w.Memory.Heap)/1e6))
		row("private", each(w.Memory.Private), fmt.Sprintf("%.0f MB", float64(w.Memory.Private)/1e6))
	})
	p.line("")
	p.table([]string{"the next turn of a session that is", "p50 / p99"}, func(row func(...string)) {
		row("ready to run", w.Hot.String())
		row("at rest", w.Rested.String())
		row("in the store only", w.Cold.String())
	})
}

// printer writes lines and tables until that fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) table(head []string, rows func(row func(...string))) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) {
		for _, c := range cells {
			fmt.Fprintf(t, "%s\t", c) // Flush has the error
		}
		fmt.Fprintln(t)
	}
	row(head...)
	rows(row)
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

func kib(n int64) string { return fmt.Sprintf("%.1f KiB", float64(n)/1024) }

// short is a duration with three digits, "–" for one that was not measured.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func (l latency) String() string {
	if l.Count == 0 {
		return "–"
	}
	return short(l.P50) + " / " + short(l.P99)
}

package main

import "io"

// benchmark writes what there are goals for as go test writes benchmarks, so that
// docs/internal/bench can hold it against them.
func (r *report) benchmark(w io.Writer) error {
	p := &printer{w: w}
	p.line("pkg: github.com/agentcell/agentcell/cmd/agentbench")
	for _, s := range r.Suspended {
		if s.Extrapolated {
			continue
		}
		p.line("BenchmarkSuspended/sessions=%d 1 %.2f beyond-KiB/session %d list-ns %d get-ns %d resume-ns",
			s.Sessions, float64(s.beyond())/float64(s.Sessions)/1024, s.List.P50, s.Get.P50, s.Resume.P50)
	}
	if r.Warm != nil {
		n := float64(r.Warm.Sessions)
		p.line("BenchmarkWarm/sessions=%d 1 %.1f private-KB/session %.1f heap-KB/session %d turn-ns",
			r.Warm.Sessions, float64(r.Warm.Memory.Private)/n/1e3, float64(r.Warm.Memory.Heap)/n/1e3, r.Warm.Rested.P50)
	}
	return p.err
}

package edge

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// What nobody has set fits the machine, and is the host's default on one that is
// large enough.
func TestFit(t *testing.T) {
	type fits struct {
		Memory          int64 // of a turn
		Turns, Recovers int
		Warm            uint64
	}
	for _, tt := range []struct {
		name   string
		memory int64
		want   fits
	}{
		{"unknown", math.MaxInt64, fits{256 << 20, host.DefaultMaxTurns, host.DefaultRecoverParallel, 1 << 30}},
		{"4 GiB", 4 << 30, fits{256 << 20, host.DefaultMaxTurns, host.DefaultRecoverParallel, 1 << 30}},
		{"512 MiB", 512 << 20, fits{256 << 20, 128, 4, 128 << 20}},
		{"odd", 100<<20 + 12345, fits{50 << 20, 25, 1, 25<<20 + 3086}},
		{"tiny", 8 << 20, fits{16 << 20, 4, 1, 2 << 20}},
	} {
		o := fit(Options{}, tt.memory)
		got := fits{int64(o.Limits.MemoryBytes), o.MaxTurns, o.RecoverParallel, o.Warm.Bytes}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
	set := Options{
		Limits: abi.Limits{MemoryBytes: 1 << 30}, MaxTurns: 5000, RecoverParallel: 9, Warm: host.WarmLimits{Bytes: 1 << 40},
	}
	o := fit(set, 64<<20)
	if o.Limits != set.Limits || o.MaxTurns != 5000 || o.RecoverParallel != 9 || o.Warm != set.Warm {
		t.Errorf("what was set became %+v", o)
	}
}

func TestMemory(t *testing.T) {
	if got := total("MemFree: 1 kB\nMemTotal:       24683100 kB\n"); got != 24683100<<10 {
		t.Errorf("total %d", got)
	}
	if got := total("none of it"); got != math.MaxInt64 {
		t.Errorf("without a total %d", got)
	}
	if a, b := bound("536870912\n"), bound("max\n"); a != 512<<20 || b != math.MaxInt64 {
		t.Errorf("bounds %d and %d", a, b)
	}
	var groups []string
	for dir := groupOf("4:memory:/old\n0::/system.slice/agents.service\n"); dir != ""; dir = parentOf(dir) {
		groups = append(groups, dir)
	}
	if diff := cmp.Diff([]string{"/system.slice/agents.service", "/system.slice", "/"}, groups); diff != "" {
		t.Errorf("groups (-want +got)\n%s", diff)
	}
	if got := groupOf("4:memory:/old\n"); got != "" {
		t.Errorf("group %q", got)
	}
	if memory() < 1<<20 {
		t.Errorf("this machine has %d bytes", memory())
	}
}

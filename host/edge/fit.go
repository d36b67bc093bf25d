package edge

import (
	"fmt"
	"math"
	"os"
	"path"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Fitted is what Open makes of options that say nothing of memory: the defaults of
// host.Config, and less on a machine, or in a control group, that is small for them.
//
//   - a turn may have half of all memory, up to abi.DefaultLimits;
//   - for each 4 MiB one turn may run, up to host.DefaultMaxTurns, for each 64 MiB one
//     turn is recovered at once, up to host.DefaultRecoverParallel;
//   - a quarter of all memory may be kept warm, up to 1 GiB.
//
// So nothing changes from 4 GiB on. What is set in o stays.
func Fitted(o Options) Options { return fit(o, memory()) }

func fit(o Options, memory int64) Options {
	const (
		wasmPage = 64 << 10
		least    = 16 << 20 // with which a Go harness still runs
		warm     = 1 << 30
	)
	if o.Limits == (abi.Limits{}) {
		o.Limits = abi.DefaultLimits()
		half := max(least, memory/2/wasmPage*wasmPage)
		o.Limits.MemoryBytes = min(o.Limits.MemoryBytes, abi.Int64(half))
	}
	if o.MaxTurns == 0 {
		o.MaxTurns = int(min(host.DefaultMaxTurns, max(4, memory>>22)))
	}
	if o.RecoverParallel == 0 {
		o.RecoverParallel = int(min(host.DefaultRecoverParallel, max(1, memory>>26)))
	}
	if o.Warm.Bytes == 0 {
		o.Warm.Bytes = uint64(min(warm, memory/4))
	}
	return o
}

// memory is what this process may have, math.MaxInt64 where the system does not tell.
func memory() int64 {
	const addresses = 2 << 30 // of a process of 32 bits, nearly
	least := int64(math.MaxInt64)
	if math.MaxInt == math.MaxInt32 {
		least = addresses
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		least = min(least, total(string(text)))
	}
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for dir := groupOf(string(group)); dir != ""; dir = parentOf(dir) {
		if text, err := os.ReadFile(path.Join("/sys/fs/cgroup", dir, "memory.max")); err == nil {
			least = min(least, bound(string(text)))
		}
	}
	return least
}

// total is MemTotal of /proc/meminfo.
func total(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kB); n == 1 && kB > 0 {
			return kB << 10
		}
	}
	return math.MaxInt64
}

// groupOf is the control group of /proc/self/cgroup, in the one hierarchy that newer
// systems have; empty if there is none.
func groupOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if dir, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::/"); ok {
			return "/" + dir
		}
	}
	return ""
}

// parentOf is the group above, empty above the topmost.
func parentOf(group string) string {
	if group == "/" {
		return ""
	}
	return path.Dir(group)
}

// bound is what memory.max says, which may be that there is none.
func bound(memoryMax string) int64 {
	var n int64
	if _, err := fmt.Sscan(memoryMax, &n); err != nil || n <= 0 {
		return math.MaxInt64
	}
	return n
}

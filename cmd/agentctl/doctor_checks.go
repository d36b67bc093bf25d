package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm"
)

// problem is the finding of an error that stands in the way.
func (a *app) problem(check string, err error) finding {
	return finding{Check: check, Status: statusProblem, Text: shortened(err.Error()), Next: a.nextStep(err)}
}

// checkConfig reads the configuration as a turn would, and looks for the keys of its
// models.
func (a *app) checkConfig(ctx context.Context) []finding {
	if _, err := a.dataDirectory(); err != nil {
		return nil // and checkData has said so
	}
	models, err := a.models(ctx)
	if err != nil {
		f := a.problem("config", err)
		f.Next = "no turn runs while it is so; docs/models.md has what may stand there"
		return []finding{f}
	}
	lines := models.Lines()
	if len(lines) == 0 {
		return nil
	}
	found := []finding{{
		Check: "config", Status: statusOK, Text: fmt.Sprintf("there are %s of models beside %s", count(len(lines), "line", "lines"), edge.EchoModel),
		Facts: map[string]any{"models": models.Names()},
	}}
	missing := map[string]bool{}
	for _, l := range lines {
		if l.KeyProblem != "" && !missing[l.Provider] {
			missing[l.Provider] = true
			found = append(found, finding{Check: "config", Status: statusNote, Text: fmt.Sprintf("provider %q: %s", l.Provider, l.KeyProblem)})
		}
	}
	return found
}

// checkPolicy reads the policy, if there is one, as a turn would.
func (a *app) checkPolicy(ctx context.Context) []finding {
	if _, err := a.models(ctx); err != nil {
		return nil // the configuration says where it is, and checkConfig has spoken
	}
	p, path, err := a.policy(ctx)
	switch {
	case errors.Is(err, host.ErrNotFound):
		return nil
	case err != nil:
		f := a.problem("policy", err)
		f.Text, _, _ = strings.Cut(f.Text, "\n")
		f.Next = "no turn runs while it is so; " + a.inPlace("policy check") + " says all that is wrong"
		return []finding{f}
	}
	return []finding{{
		Check: "policy", Status: statusOK, Text: fmt.Sprintf("%q has %s", path, count(len(p.Rules()), "rule", "rules")),
		Facts: map[string]any{"file": path, "digest": p.Digest(), "rules": len(p.Rules())},
	}}
}

func (a *app) checkProgram(context.Context) []finding {
	bundled := finding{
		Check: "harnesses", Status: statusOK, Text: strings.Join(harnesses.Names(), ", "),
		Facts: map[string]any{"bundled": harnesses.Names()},
	}
	if len(harnesses.Names()) == 0 {
		bundled.Status, bundled.Text = statusProblem, "this agentctl was built without bundled harnesses"
		bundled.Next = "run `make` in the source tree, or pass --harness FILE.wasm"
	}
	return []finding{
		{
			Check: "program", Status: statusOK,
			Text: fmt.Sprintf("%s, %s/%s, %d processors, ABI %d",
				runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), abi.Version),
			Facts: map[string]any{
				"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"processors": runtime.NumCPU(), "abi": abi.Version,
			},
		},
		bundled,
	}
}

// checkData opens the store as every command does, or sees whether one could be
// made.
func (a *app) checkData(context.Context) []finding {
	dir, err := a.dataDirectory()
	if err != nil {
		return []finding{a.problem("data", err)}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		if err = probe(dir); err == nil {
			return []finding{{
				Check: "data", Status: statusOK, Text: fmt.Sprintf("%q holds nothing yet; the first command makes a store there", dir),
				Facts: map[string]any{"dir": dir},
			}}
		}
	}
	if err != nil {
		f := a.problem("data", fmt.Errorf("%q cannot be used: %w", dir, causeOf(err)))
		f.Next = a.nextStep(journal.ErrReadOnly)
		return []finding{f}
	}
	j, err := journal.Open(dir, journal.Options{Beside: edge.Beside()})
	if errors.Is(err, journal.ErrLocked) {
		return []finding{{
			Check: "data", Status: statusNote, Text: err.Error(),
			Next:  "commands on this directory wait for it, and give up after a moment",
			Facts: map[string]any{"dir": dir, "locked": true},
		}}
	}
	if err != nil {
		return []finding{a.problem("data", err)}
	}
	format := j.Format()
	room, err := j.Room()
	last, unread := collection(j)
	readOnly, damage := j.ReadOnly(), j.Damage()
	if err := errors.Join(err, unread, j.Close()); err != nil {
		return []finding{a.problem("data", err)}
	}
	size := sizeOf(dir)
	found := []finding{{
		Check: "data", Status: statusOK,
		Text:  fmt.Sprintf("%q has a store of format %d, %s; %s", dir, format, bytesText(size), last.text(a.now())),
		Facts: map[string]any{"dir": dir, "format": format, "bytes": size, "locked": false},
	}}
	if last != nil {
		found[0].Facts["collected"] = last
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		found = append(found, finding{
			Check: "data", Status: statusNote, Text: fmt.Sprintf("other users may look into %q: its mode is %#o", dir, info.Mode().Perm()),
			Next: "chmod 700 " + shellWord(dir) + " keeps what agents say to yourself",
		})
	}
	if damage != nil {
		f := a.problem("data", fmt.Errorf("a part of the store is damaged, and it gives no room back: %w", damage))
		f.Next = "agentctl verify tells whose sessions are; export the others and import them into another --data"
		found = append(found, f)
	}
	if errors.Is(readOnly, journal.ErrReadOnly) {
		f := a.problem("data", fmt.Errorf("the store can be read, but not written: %w", causeOf(readOnly)))
		f.Next = a.nextStep(journal.ErrReadOnly)
		return append(found, f)
	}
	return append(found, a.roomFinding(room))
}

func (a *app) roomFinding(room journal.Room) finding {
	f := finding{Check: "space", Status: statusOK}
	if room.Free == math.MaxInt64 {
		f.Text = "how much is free cannot be told on this system"
		return f
	}
	f.Text = fmt.Sprintf("%s free; a write needs %s to be safe", bytesText(room.Free), bytesText(room.Need))
	f.Facts = map[string]any{"free_bytes": room.Free, "needed_bytes": room.Need}
	if room.Free < room.Need {
		f.Status, f.Next = statusProblem, a.nextStep(journal.ErrFull)
	}
	return f
}

// checkCache looks at the directory of compiled modules. Without one all works,
// slowly.
func (a *app) checkCache(context.Context) []finding {
	const next = "name a directory that you can write to with AGENTCELL_CACHE"
	dir := a.cacheDirectory()
	if dir == "" {
		return []finding{{
			Check: "cache", Status: statusNote, Text: "there is no place for compiled modules: every run compiles anew", Next: next,
		}}
	}
	if err := probe(dir); err != nil {
		return []finding{{
			Check: "cache", Status: statusNote, Next: next,
			Text:  fmt.Sprintf("%q cannot be written: %v: every run compiles anew", dir, causeOf(err)),
			Facts: map[string]any{"dir": dir, "writable": false},
		}}
	}
	size := sizeOf(dir)
	f := finding{
		Check: "cache", Status: statusOK, Text: fmt.Sprintf("%q has %s of compiled modules", dir, bytesText(size)),
		Facts: map[string]any{"dir": dir, "writable": true, "bytes": size},
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows" {
		f.Status = statusProblem
		f.Text = fmt.Sprintf("other users can write to %q, and with that run code as you: its mode is %#o", dir, info.Mode().Perm())
		f.Next = "chmod go-w " + shellWord(dir) + ", and remove what is in it unless you trust them"
	}
	return []finding{f}
}

// checkEngine loads a harness, which takes the engine, executable memory and the
// cache.
func (a *app) checkEngine(ctx context.Context) []finding {
	if len(harnesses.Names()) == 0 {
		return nil // and checkProgram has said so
	}
	name := defaultHarness
	if !slices.Contains(harnesses.Names(), name) {
		name = harnesses.Names()[0]
	}
	d, err := a.inspectBundled(ctx, name)
	if err != nil {
		return []finding{a.problem("engine", fmt.Errorf("harness %s does not load: %w", name, err))}
	}
	return []finding{{
		Check: "engine", Status: statusOK, Text: fmt.Sprintf("harness %s loads and describes itself", name),
		Facts: map[string]any{"harness": name, "module": d.Digest, "runtime": d.Runtime},
	}}
}

func (a *app) inspectBundled(ctx context.Context, name string) (host.Inspection, error) {
	harness, err := edge.Bundled(name)
	if err != nil {
		return host.Inspection{}, err
	}
	options, err := a.options(ctx, "")
	if err != nil {
		return host.Inspection{}, err
	}
	options.ConfigFile = "" // which says nothing of harnesses
	h, err := edge.OpenMemory(options)
	if err != nil {
		return host.Inspection{}, err
	}
	d, err := h.Inspect(ctx, harness)
	return d, errors.Join(err, h.Close())
}

func (a *app) checkKernel(context.Context) []finding {
	m, err := wasm.ProbeMemory(wasm.MemoryAuto)
	if err != nil {
		return []finding{a.problem("memory", err)}
	}
	facts := map[string]any{"mapped": m.Memory != wasm.MemoryCopy, "memory": string(m.Memory), "dirty": m.Dirty}
	text := "memory is mapped copy-on-write (" + string(m.Memory) + ")"
	if m.Memory == wasm.MemoryCopy {
		text = "each cell has a copy of its memory"
	}
	if text += "; what a turn has written is found by " + m.Dirty; m.Dirty != wasm.DirtyCompare {
		return []finding{{Check: "memory", Status: statusOK, Text: text, Facts: facts}}
	}
	if m.Why != nil {
		text += ": " + strings.ReplaceAll(m.Why.Error(), "\n", "; ")
	}
	return []finding{{
		Check: "memory", Status: statusNote, Text: text, Facts: facts,
		Next: "all works; turns of harnesses with much memory take longer",
	}}
}

func (a *app) checkLimits(context.Context) []finding {
	fitted := edge.Fitted(edge.Options{})
	l := fitted.Limits
	return []finding{{
		Check: "limits", Status: statusOK,
		Text: fmt.Sprintf("%d turns at once; a turn has %s of memory, %d fuel, %d effects, %d frames, %s of output, %s a request, %s an input, %s unless --deadline says otherwise",
			fitted.MaxTurns, bytesText(int64(l.MemoryBytes)), l.Fuel, l.Effects, l.Depth, bytesText(int64(l.OutputBytes)),
			bytesText(int64(l.RequestBytes)), bytesText(host.MaxInputBytes), host.DefaultDeadline),
		Facts: map[string]any{
			"turns": fitted.MaxTurns, "warm_bytes": fitted.Warm.Bytes,
			"memory_bytes": int64(l.MemoryBytes), "fuel": int64(l.Fuel), "effects": l.Effects, "depth": l.Depth,
			"output_bytes": int64(l.OutputBytes), "request_bytes": int64(l.RequestBytes),
			"input_bytes": host.MaxInputBytes, "deadline_ms": host.DefaultDeadline.Milliseconds(),
		},
	}}
}

// probe writes a file into dir, or where dir is missing into the directory that it
// would be made in, and removes it again.
func probe(dir string) error {
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%q is not a directory", dir)
		}
		if err == nil {
			break
		}
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return err
	}
	f, err := os.CreateTemp(dir, ".agentctl-doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// sizeOf adds up the files below dir, as far as they can be seen.
func sizeOf(dir string) int64 {
	total := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

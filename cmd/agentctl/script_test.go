package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentcell/agentcell/harnesses"
	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agentctl": main})
}

// TestScripts runs testdata/script: agentctl as its users have it, one process a
// command. The test binary itself serves as agentctl.
func TestScripts(t *testing.T) {
	needHarnesses(t)
	needPrograms(t, "bash", "python3", "sha256sum")
	warm(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"capture":  capture,
			"mask":     mask,
			"start":    start,
			"await":    await,
			"signal":   sendSignal,
			"finish":   finish,
			"mkguest":  makeGuest,
			"mkserver": buildMCPServer,
			"repeat":   repeat,
			"forge":    forge,
			"serve":    serveModel,
			"rot":      rot,
			"turns":    turns,
		},
	})
}

// needHarnesses skips a test that runs bundled harnesses where there are none,
// or fails it where nothing may be missing.
func needHarnesses(t testing.TB) {
	t.Helper()
	if len(harnesses.Names()) > 0 {
		return
	}
	const text = "no bundled harnesses: run `make harnesses` first"
	if os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// needPrograms fails where nothing may be missing. Elsewhere the scripts that
// want a program which is not there skip themselves.
func needPrograms(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("AGENTCELL_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
	}
}

// testCache is the compile cache that the tests of all packages share.
func testCache() (string, error) {
	if dir := os.Getenv("AGENTCELL_TEST_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "agentcell-test"), err
}

// warm compiles the bundled harnesses into the cache, so that no script sees it
// happen.
func warm(t testing.TB) {
	t.Helper()
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	h, err := edge.OpenMemory(edge.Options{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range harnesses.Names() {
		harness, err := edge.Bundled(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Inspect(t.Context(), harness); err != nil {
			t.Fatal(err)
		}
	}
}

func setup(env *testscript.Env) error {
	cache, err := testCache()
	if err != nil {
		return err
	}
	env.Setenv("AGENTCTL_DATA", filepath.Join(env.WorkDir, "data"))
	env.Setenv("AGENTCELL_CACHE", cache)
	verifier, err := filepath.Abs("../../docs/verify_chain.py")
	if err != nil {
		return err
	}
	env.Setenv("VERIFY_CHAIN", verifier)
	env.Setenv("UNPACK_PORTABLE", filepath.Join(filepath.Dir(verifier), "unpack_portable.py"))
	plugins, err := pluginDirectory()
	if err != nil {
		return err
	}
	env.Setenv("PLUGINS", plugins)
	// For scripts that build harnesses: the compiler's cache, and no network.
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return err
	}
	env.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	env.Setenv("GOPROXY", "off")
	env.Values[processes{}] = map[string]*exec.Cmd{}
	return nil
}

// pluginDirectory has the plug-ins that the SDK of Extism comes with, which others
// have built.
func pluginDirectory() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "wasm"), nil
}

// exits is `exits CODE program args…`: exec, and the exit code is CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := codeOf(ts, err); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func codeOf(ts *testscript.TestScript, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case !errors.As(err, &exit):
		ts.Fatalf("%v", err)
	case !exit.Exited():
		return exit.Sys().(syscall.WaitStatus).Signal().String()
	}
	return strconv.Itoa(exit.ExitCode())
}

// capture is `capture NAME REGEXP [FILE]`: sets the variable to what the first
// group matches in FILE, or else stdout.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: capture NAME REGEXP [FILE]")
	}
	file := "stdout"
	if len(args) == 3 {
		file = args[2]
	}
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile(file))
	if len(found) != 2 {
		ts.Fatalf("%s has no %q", file, args[1])
	}
	ts.Setenv(args[0], found[1])
}

// varying matches what differs from run to run.
var varying = regexp.MustCompile(`\b(?:sess|exec)-[0-9a-f]{24}\b|\b[0-9a-f]{64}\b|root=[0-9a-f]{12}\b` +
	`|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|(?m: +\d+s$)`)

// mask is `mask FROM TO`: a copy in which ids and hashes are numbered in the
// order they appear, and times are gone.
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mask FROM TO")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(masked(ts.ReadFile(args[0]))), 0o644))
}

func masked(text string) string {
	numbers := map[string]int{}
	return varying.ReplaceAllStringFunc(text, func(s string) string {
		kind, id, _ := strings.Cut(s, "-")
		switch {
		case strings.HasPrefix(s, "root="):
			kind, id = "root=", s
		case strings.HasSuffix(s, "Z"):
			return "TIME"
		case strings.HasSuffix(s, "s"):
			return "  AGE"
		case id == "":
			kind, id = "hash", s
		}
		if numbers[id] == 0 {
			numbers[id] = len(numbers) + 1
		}
		return fmt.Sprintf("%s-%d", strings.TrimSuffix(kind, "-"), numbers[id])
	})
}

func TestMasked(t *testing.T) {
	a, b := "sess-"+strings.Repeat("a", 24), "sess-"+strings.Repeat("b", 24)
	got := masked(a + " " + b + " " + a + " root=0123456789ab 2026-01-02T03:04:05.5Z  12s\n")
	want := "sess-1 sess-2 sess-1 root=-3 TIME  AGE\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// processes is the key of a script's background processes.
type processes struct{}

func process(ts *testscript.TestScript, name string) *exec.Cmd {
	cmd := ts.Value(processes{}).(map[string]*exec.Cmd)[name]
	if cmd == nil {
		ts.Fatalf("no process %q", name)
	}
	return cmd
}

// start is `start NAME program args…`: runs it in the background, with its
// output in NAME.out and NAME.err.
func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME program [args...]")
	}
	name, program := args[0], args[1]
	// The program is a link beside the test binary's other names, in PATH.
	path := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			path = filepath.Join(dir, program)
			break
		}
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, variable := range []string{"PATH", "HOME", "TMPDIR", "AGENTCTL_DATA", "AGENTCELL_CACHE"} {
		cmd.Env = append(cmd.Env, variable+"="+ts.Getenv(variable))
	}
	stdout, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ts.Check(cmd.Start())
	ts.Value(processes{}).(map[string]*exec.Cmd)[name] = cmd
	ts.Defer(func() { _ = cmd.Process.Kill() })
}

// await is `await FILE REGEXP`: waits until FILE has a match.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	pattern := regexp.MustCompile("(?m)" + args[1])
	const patience = time.Minute
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		ts.Check(err)
		switch {
		case pattern.Match(text):
			return
		case time.Now().After(end):
			ts.Fatalf("no %q in %s, which has:\n%s", args[1], args[0], text)
		}
	}
}

// sendSignal is `signal INT|TERM|KILL NAME`.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal INT|TERM|KILL NAME")
	}
	ts.Check(process(ts, args[1]).Process.Signal(signals[args[0]]))
}

// finish is `finish NAME CODE`: waits for the process; CODE is its exit code, or
// the signal that ended it.
func finish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: finish NAME CODE")
	}
	if got := codeOf(ts, process(ts, args[0]).Wait()); got != args[1] {
		ts.Fatalf("%s: exit code %s, want %s; stderr:\n%s", args[0], got, args[1], ts.ReadFile(args[0]+".err"))
	}
}

// repeat is `repeat N TEXT FILE`.
func repeat(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeat N TEXT FILE")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	text, err := strconv.Unquote(`"` + args[1] + `"`) // with Go's escapes
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.Repeat(text, n)), 0o644))
}

// turns is `turns SESSION N`: it runs N turns of a session, each on the input 1.
func turns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: turns SESSION N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ctx := context.Background()
	h, err := edge.Open(ts.Getenv("AGENTCTL_DATA"), edge.Options{Paused: true, CacheDir: ts.Getenv("AGENTCELL_CACHE")})
	ts.Check(err)
	defer func() { ts.Check(h.Close()) }()
	uid, err := h.Resolve(ctx, "", args[0])
	ts.Check(err)
	for range n {
		_, err := h.Exec(ctx, host.ExecRequest{Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, "1")}})
		ts.Check(err)
	}
}

// rot is `rot SESSION page|node|image|record`: a row of the session's last image, one
// that no earlier image has, or its first record gets other bytes.
func rot(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rot SESSION page|node|image|record")
	}
	key := rotten(ts, args[0], args[1])
	db, err := badger.Open(badger.DefaultOptions(ts.Getenv("AGENTCTL_DATA")).WithLogger(nil))
	ts.Check(err)
	defer func() { ts.Check(db.Close()) }()
	ts.Check(db.Update(func(txn *badger.Txn) error {
		return txn.Set(key, []byte("rotten"))
	}))
}

// rotten is the row that rot spoils.
func rotten(ts *testscript.TestScript, session, what string) (key []byte) {
	row := func(kind byte, name abi.Digest) []byte { return append([]byte{kind}, name[:]...) }
	ctx := context.Background()
	h, err := edge.Open(ts.Getenv("AGENTCTL_DATA"), edge.Options{Paused: true})
	ts.Check(err)
	defer func() { ts.Check(h.Close()) }()
	uid, err := h.Resolve(ctx, "", session)
	ts.Check(err)
	s, err := h.Get(ctx, uid)
	ts.Check(err)
	if what == "record" {
		return []byte("r" + string(uid) + "\x00\x00\x00\x00\x00\x00\x00\x00\x01")
	}
	j := h.Journal()
	last, err := j.LoadImage(s.Root)
	ts.Check(err)
	if what == "image" {
		return row('i', s.Root)
	}
	var before *journal.Image
	for r, err := range h.Replay(ctx, uid, 0, 0) {
		ts.Check(err)
		if r.Event.Kind != abi.EventEnd || r.Event.Cell.Root == s.Root {
			continue
		}
		if im, err := j.LoadImage(r.Event.Cell.Root); err == nil {
			before = im
		}
	}
	pages, err := j.DiffImages(before, last)
	ts.Check(err)
	hash := func(im *journal.Image, first, n uint32) abi.Digest {
		bytes := []byte{1}
		for page := first; page < first+n; page++ {
			leaf := make([]byte, 1+abi.PageSize)
			ts.Check(j.ReadPage(im, page, leaf[1:]))
			d := abi.DigestOf(leaf)
			if n == 1 {
				return d
			}
			bytes = append(bytes, d[:]...)
		}
		return abi.DigestOf(bytes)
	}
	if what == "node" {
		return row('t', hash(last, pages[0]/16*16, 16))
	}
	return row('p', hash(last, pages[0], 1))
}

// forge is `forge SESSION NAME`: a session NAME with the record of SESSION, in
// which the model gave other answers. Its chain is whole; its turns are not.
func forge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forge SESSION NAME")
	}
	ctx := context.Background()
	h, err := edge.Open(ts.Getenv("AGENTCTL_DATA"), edge.Options{Paused: true})
	ts.Check(err)
	defer func() { ts.Check(h.Close()) }()
	uid, err := h.Resolve(ctx, "", args[0])
	ts.Check(err)
	source, err := h.Journal().Session(uid)
	ts.Check(err)
	forged, err := h.Journal().Create(ctx, journal.Session{
		UID: abi.NewSessionID([12]byte{0xff}), Project: source.Project, Name: args[1],
		Created: source.Created, Meta: source.Meta, Summary: source.Summary,
	})
	ts.Check(err)
	var events [][]byte
	for r, err := range h.Replay(ctx, uid, 1, source.Head.Seq) {
		ts.Check(err)
		if r.Event.Kind == abi.EventLifecycle {
			r.Event.Cell.UID = forged.UID
		}
		if r.Event.Kind == abi.EventOutput {
			*r.Event.Message = abi.Text(abi.RoleAssistant, "forged")
		}
		b, err := abi.EncodeEvent(r.Event)
		ts.Check(err)
		events = append(events, b)
	}
	_, err = h.Journal().Append(ctx, forged.UID, journal.Append{Fence: 1, Events: events, Summary: source.Summary})
	ts.Check(err)
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestHarnessName(t *testing.T) {
	for dir, want := range map[string]string{
		"greeter":                "greeter",
		"My Greeter!":            "my-greeter",
		"grüße":                  "gr--e",
		"日本":                     "harness",
		".hidden":                "hidden",
		"--":                     "harness",
		"/":                      "harness",
		"a.b_c-d":                "a.b_c-d",
		"v2":                     "harness-v2",
		"con":                    "harness-con",
		"NUL.x":                  "harness-nul.x",
		"sess-1":                 "harness-sess-1",
		"main~1":                 "main-1",
		strings.Repeat("x", 300): strings.Repeat("x", 40),
	} {
		if got := harnessName(dir); got != want {
			t.Errorf("%q: got %q, want %q", dir, got, want)
		}
	}
}

// The go command takes the modules that harness new writes.
func TestModulePaths(t *testing.T) {
	for _, dir := range []string{"greeter", "My Greeter!", "v2", "con", "NUL.x", "main~1", "日本"} {
		path := "example.com/" + harnessName(dir)
		if err := checkModulePath(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		work := t.TempDir()
		init := exec.Command("go", "mod", "init", path)
		init.Dir = work
		if out, err := init.CombinedOutput(); err != nil {
			t.Errorf("go mod init %s: %v\n%s", path, err, out)
		}
	}
	for _, path := range []string{"", "/", "a//b", "/a", "a/", "a b", "a/b.", "..", "a/../b", "é", sdkModule, sdkModule + "/x"} {
		if checkModulePath(path) == nil {
			t.Errorf("%q is taken for a module path", path)
		}
	}
}

// New modules name the version of Go that the SDK's does.
func TestSDKGo(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^go ` + regexp.QuoteMeta(sdkGo) + `$`).Match(text) {
		t.Errorf("go.mod does not say go %s", sdkGo)
	}
}

func TestFindSDK(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	tests := []struct {
		flag, dir string
		want      sdkSource
	}{
		{"v1.2.3", elsewhere, sdkSource{Version: "v1.2.3"}},
		{"v0.0.0-20260102030405-0123456789ab", elsewhere, sdkSource{Version: "v0.0.0-20260102030405-0123456789ab"}},
		{root, elsewhere, sdkSource{Tree: root, Version: "v0.0.0"}},
		{"../..", elsewhere, sdkSource{Tree: root, Version: "v0.0.0"}},
		// By the directory, and by where this test's source is.
		{"", filepath.Join(root, "harnesses", "new"), sdkSource{Tree: root, Version: "v0.0.0"}},
		{"", elsewhere, sdkSource{Tree: root, Version: "v0.0.0"}},
	}
	for _, test := range tests {
		got, err := findSDK(test.flag, test.dir)
		if err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%+v: %s", test, diff)
		}
	}
	for _, flag := range []string{".", "1.2.3", "v1", "latest", elsewhere} {
		if got, err := findSDK(flag, elsewhere); err == nil {
			t.Errorf("%q: got %+v", flag, got)
		}
	}
	for v, want := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "v1.2.3-4-gabcdef0": false, "v1.2.3-dirty": false, "unknown": false, "(devel)": false, "0e3e42a": false,
	} {
		if got := release.MatchString(v) && !between.MatchString(v); got != want {
			t.Errorf("%s is a release: %v", v, got)
		}
	}
	if got := (sdkSource{Tree: "/a b"}).Replacement(); got != `"/a b"` {
		t.Errorf("a tree with a blank is written as %s", got)
	}
}

// A turn on trial that parks has not failed.
func TestTrialFacts(t *testing.T) {
	turn := trial{inputs: []abi.Message{abi.Text(abi.RoleUser, "hi")}, modelCalls: 1, took: 1500 * time.Microsecond}
	how := fact{"", `on trial with the input "hi", the echo model and a journal in memory`}
	tests := []struct {
		execution host.Execution
		state     host.ExecState
		want      []fact
	}{
		{
			host.Execution{State: abi.StateCompleted, Fuel: 7, Pages: 3},
			host.ExecCompleted,
			[]fact{{"first turn", "3 pages (12.0 KiB) of memory changed"}, {"", "7 fuel, 1 model calls, 1.5 ms here"}, how},
		},
		{
			host.Execution{State: abi.StateFailed, Reason: abi.ReasonTrap, Fuel: 7},
			host.ExecFailed,
			[]fact{{"first turn", "turn failed (trap)"}, {"", "7 fuel, 1 model calls, 1.5 ms here"}, how},
		},
		{
			host.Execution{Waiting: make([]host.Waiting, 1)},
			host.ExecAwaiting,
			[]fact{
				{"first turn", "parked: it waits for a decision, a signal or a time, and has no cost yet"},
				{"", "1 model calls, 1.5 ms here"},
				how,
			},
		},
	}
	for _, test := range tests {
		turn.Execution = test.execution
		if diff := cmp.Diff(test.want, turn.facts(), cmp.AllowUnexported(fact{})); diff != "" {
			t.Errorf("%s: %s", test.state, diff)
		}
		if got := newTrialJSON(&turn).State; got != test.state {
			t.Errorf("got state %s, want %s", got, test.state)
		}
	}
}

func TestTopLevelRand(t *testing.T) {
	tests := []struct {
		name, code string
		want       []string
	}{
		{"none", `import "fmt"; func f() { fmt.Println() }`, nil},
		{"v1", `import "math/rand"; func f() { rand.Seed(1); rand.Intn(3) }`, []string{"rand.Seed", "rand.Intn"}},
		{"v2", `import "math/rand/v2"; var x = rand.IntN(3); var f = rand.Shuffle`, []string{"rand.IntN", "rand.Shuffle"}},
		{"generic", `import "math/rand/v2"; var x = rand.N[int](3)`, []string{"rand.N"}},
		{"renamed", `import r "math/rand"; func f() { r.Int() }`, []string{"r.Int"}},
		{"dot", `import . "math/rand"; func f() { Int() }`, []string{`import . "math/rand"`}},
		{"blank", `import _ "math/rand"; var x = 1`, nil},
		{"another rand", `import "crypto/rand"; var x = rand.Reader`, nil},
		{"own generator", `import "math/rand/v2"; func f() { r := rand.New(rand.NewPCG(1, 2)); r.IntN(3); var s rand.Source; _ = s }`, nil},
		{"hidden by a variable", `import "math/rand/v2"; func f() { rand := rand.New(nil); rand.IntN(3) }`, nil},
		{"hidden by a parameter", `import "math/rand/v2"; func f(rand *rand.Rand) { rand.IntN(3) }; func g() { rand.IntN(3) }`, []string{"rand.IntN"}},
		{"hidden by a range", `import "math/rand/v2"; func f(l []*rand.Rand) { for _, rand := range l { rand.IntN(3) } }`, nil},
		{"broken", `import "math/rand"; func f() { rand.Int(`, nil},
		{"not for a cell", "//go:build linux\n\npackage p; import \"math/rand\"; var x = rand.Int()", nil},
	}
	for _, test := range tests {
		dir := t.TempDir()
		code := test.code
		if !strings.Contains(code, "package") {
			code = "package p; " + code
		}
		for _, name := range []string{"x.go", "x_test.go", "x_linux.go", "testdata/x.go", "_x/x.go", "other/x.go"} {
			file := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "other", "go.mod"), []byte("module other\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := findTopLevelRand(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range found {
			if w.File != "x.go" || w.Line < 1 {
				t.Errorf("%s: a warning about %s:%d", test.name, w.File, w.Line)
			}
			got = append(got, w.What)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

package extism

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/wasmtest"
)

// FuzzMend: whatever is taken for a module, mend gives bytes or ErrModule, mends what
// it has mended no further, and makes no module of what is none.
func FuzzMend(f *testing.F) {
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x02\x05\x01\x01m\x01"))
	f.Add(wasmtest.Module{
		Imports: []wasmtest.Import{{Module: envModule, Name: httpRequest, Type: "i64 i64 -> i64"}},
		Tables:  []wasmtest.Table{{Min: 3}, {Max: wasmtest.Max(7)}},
		Funcs:   []wasmtest.Func{{Export: "run"}},
	}.Bytes())
	ctx := f.Context()
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	f.Cleanup(func() { _ = runtime.Close(ctx) })
	f.Fuzz(func(t *testing.T, code []byte) {
		mended, err := mend(code)
		if err != nil {
			if !errors.Is(err, ErrModule) {
				t.Fatal(err)
			}
			return
		}
		again, err := mend(mended)
		if err != nil || !bytes.Equal(mended, again) {
			t.Fatalf("mended %x, and again %x, %v", mended, again, err)
		}
		if m, err := runtime.CompileModule(t.Context(), mended); err == nil {
			_ = m.Close(t.Context())
			if _, err := runtime.CompileModule(t.Context(), code); err != nil {
				t.Fatalf("%x is a module and was none: %v", mended, err)
			}
		}
	})
}

func TestMend(t *testing.T) {
	module := func(m string, tables ...wasmtest.Table) []byte {
		return wasmtest.Module{
			Imports: []wasmtest.Import{
				{Module: m, Name: httpRequest, Type: "i64 i64 -> i64"},
				{Module: envModule, Name: "alloc", Type: "i64 -> i64"},
			},
			Tables: tables, Funcs: []wasmtest.Func{{Export: "run"}},
		}.Bytes()
	}
	most := wasmtest.Max(MaxTableEntries)
	got, err := mend(module(envModule, wasmtest.Table{Min: 3}, wasmtest.Table{Max: wasmtest.Max(7)}, wasmtest.Table{Max: wasmtest.Max(1 << 30)}))
	want := module(hostModule, wasmtest.Table{Min: 3, Max: most}, wasmtest.Table{Max: wasmtest.Max(7)}, wasmtest.Table{Max: most})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAllowed(t *testing.T) {
	hosts := []string{"api.example.com", "*.wild.example", "10.0.0.7", "[::1]", "*"}
	for text, want := range map[string]bool{
		"https://api.example.com/x":   true,
		"https://API.example.com:444": true,
		"https://a.b.wild.example":    true,
		"http://10.0.0.7:80/":         true,
		"http://[::1]:80/":            true,
		"http://10.0.0.8/":            false,
		"http://[::2]/":               false,
		"http://localhost/":           false,
		"ftp://api.example.com/":      false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := allowed(hosts, u); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	u, err := url.Parse("https://api.example.com.evil.example/")
	if err != nil {
		t.Fatal(err)
	}
	if allowed(hosts[:4], u) == nil {
		t.Errorf("%s is allowed", u)
	}
}

// Where a name may stand for an address, that is none of a network's own.
func TestRefusePrivate(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.215.14:443": true, "[2606:2800:21f:cb07::1]:443": true,
		"127.0.0.1:80": false, "10.1.2.3:80": false, "172.16.0.1:80": false, "192.168.1.1:80": false, "169.254.169.254:80": false,
		"100.64.0.1:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false,
		"[::1]:80": false, "[::]:80": false, "[fe80::1]:80": false, "[fd00::1]:80": false, "[::ffff:127.0.0.1]:80": false, "nonsense": false,
	} {
		if err := refusePrivate("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	for host, want := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "localhost.": false, "2130706433": false, "127.1": false} {
		if near(host) != want {
			t.Errorf("near(%s) is %t", host, !want)
		}
	}
}

// What arguments are for a plug-in, and what its answer is for the caller.
func TestValues(t *testing.T) {
	for _, tt := range []struct{ input, args, want, fails string }{
		{"", ``, `{}`, ""},
		{"", `{"n":12345678901234567890, "s":"é"}`, `{"n":12345678901234567890, "s":"é"}`, ""},
		{"text", `{"text":"a \"b\" \u00e9\n"}`, "a \"b\" é\n", ""},
		{"text", `{"text":""}`, "", ""},
		{"text", `{"text":[1,12345678901234567890]}`, "[1,12345678901234567890]", ""},
		{"text", `{"other":1}`, "", `the argument "text" is missing`},
		{"text", ``, "", `the argument "text" is missing`},
	} {
		got, err := Manifest{Input: tt.input}.input(abi.Struct(tt.args))
		if tt.fails != "" {
			if err == nil || err.Error() != tt.fails {
				t.Errorf("%s of %s: %v", tt.input, tt.args, err)
			}
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%s of %s: %q, %v", tt.input, tt.args, got, err)
		}
	}
	part := func(s string) abi.ToolResult {
		return abi.ToolResult{Content: []abi.Part{{Text: &abi.TextPart{Text: s}}}}
	}
	png := []byte("\x89PNG\x0d\x0a\x1a\x0a\xff")
	for output, want := range map[string]abi.ToolResult{
		``:                                {},
		" {\"n\":12345678901234567890}\n": {Output: abi.Struct(`{"n":12345678901234567890}`)},
		`{"n":1,"n":2}`:                   part(`{"n":1,"n":2}`),
		`{"n":`:                           part(`{"n":`),
		`[1]`:                             part(`[1]`),
		"plain é":                         part("plain é"),
		string(png):                       {Content: []abi.Part{{File: &abi.FilePart{MIME: "image/png", Bytes: png}}}},
	} {
		got, err := result([]byte(output))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", output, err, diff)
		}
	}
}

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Path{
		dir:                 {Host: dir, Guest: filepath.ToSlash(dir)},
		dir + ":/data":      {Host: dir, Guest: "/data"},
		dir + ":/data:ro":   {Host: dir, Guest: "/data", ReadOnly: true},
		dir + ":ro":         {Host: dir, Guest: filepath.ToSlash(dir), ReadOnly: true},
		file:                {},
		dir + "/gone:/data": {},
		":/data":            {},
	} {
		got, err := ParsePath(text)
		if want == (Path{}) {
			if err == nil {
				t.Errorf("%s: no error", text)
			}
			continue
		}
		if again, err := ParsePath(got.String()); err != nil || again != got {
			t.Errorf("%s: %v, read again %+v", text, err, again)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for name, m := range map[string]Manifest{
		"no export":          {},
		"memory":             {Export: "run", Memory: MaxMemory + 1},
		"time":               {Export: "run", TimeoutMS: -1},
		"a scheme":           {Export: "run", Hosts: []string{"https://example.com"}},
		"a port":             {Export: "run", Hosts: []string{"example.com:443"}},
		"a pattern":          {Export: "run", Hosts: []string{"[a"}},
		"an empty host":      {Export: "run", Hosts: []string{""}},
		"a nameless config":  {Export: "run", Config: map[string]string{"": "x"}},
		"a nameless secret":  {Export: "run", Config: map[string]string{"key": "secret:"}},
		"paths without WASI": {Export: "run", Paths: []Path{{Host: dir, Guest: "/"}}},
		"a relative path":    {Export: "run", WASI: true, Paths: []Path{{Host: ".", Guest: "/"}}},
	} {
		if err := m.Check(); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseManifest([]byte(`{"export":"run","network":true}`)); !errors.Is(err, ErrManifest) {
		t.Errorf("an unknown field: %v", err)
	}
}

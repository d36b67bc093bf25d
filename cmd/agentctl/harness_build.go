package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

type harnessBuildOptions struct {
	dir    string
	output string
}

func newHarnessBuildCommand(a *app) *cobra.Command {
	opts := harnessBuildOptions{dir: "."}
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a harness in Go to WebAssembly",
		Long: `build compiles the harness in DIR, the current directory if none is named, with the
standard Go toolchain, which must be in PATH:

  ` + strings.Replace(buildLine("NAME.wasm"), " -buildmode", " \\\n      -buildmode", 1) + `

The module goes into NAME.wasm in the current directory, NAME being the directory's,
unless -o names a file. It is loaded before it is put there, so that one which agentctl
would refuse is refused now, with the reason. docs/harness-authoring.md says what a
harness may do.

Uses of top-level functions of math/rand and math/rand/v2 are told of on stderr. They
draw their seed once, before the first session, so that every session and every
fork gets the same numbers.`,
		Example: `  agentctl harness new ./greeter
  agentctl harness build ./greeter
  agentctl harness build ./greeter -o hello.wasm`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("build takes one directory, not also %q", args[1])
			}
			if len(args) == 1 && args[0] != "" {
				opts.dir = args[0]
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runHarnessBuild(cmd.Context(), a, opts) },
	}
	cmd.Flags().VarP(text(&opts.output, ""), "output", "o", "write the module to `FILE`")
	return cmd
}

// buildFlags and buildEnvironment are what a harness is built with. One version of
// Go then makes the same module of the same source everywhere.
func buildFlags() []string {
	return []string{"-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w"}
}

func buildEnvironment() []string { return []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"} }

// buildLine is the command, in the harness's directory, as one would type it.
func buildLine(output string) string {
	words := append(buildEnvironment(), "go", "build")
	for _, flag := range buildFlags() {
		if name, value, found := strings.Cut(flag, "="); found && strings.Contains(value, " ") {
			flag = name + "='" + value + "'"
		}
		words = append(words, flag)
	}
	return strings.Join(append(words, "-o", output, "."), " ")
}

type builtJSON struct {
	Harness  string        `json:"harness"`
	File     string        `json:"file"`
	Size     int64         `json:"size"`
	Module   abi.Digest    `json:"module"`
	Warnings []randWarning `json:"warnings,omitempty"`
}

func runHarnessBuild(ctx context.Context, a *app, opts harnessBuildOptions) error {
	dir, err := filepath.Abs(opts.dir)
	if err != nil {
		return fmt.Errorf("harness build: %w", err)
	}
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("directory %q: %w", opts.dir, causeOf(err))
	} else if !info.IsDir() {
		return usagef("%q is a file; name the directory that has the harness's Go files", opts.dir)
	}
	output := opts.output
	if output == "" {
		output = harnessName(filepath.Base(dir)) + ".wasm"
	}
	warnings, err := findTopLevelRand(dir)
	if err != nil {
		return fmt.Errorf("harness build: %w", err)
	}
	for _, w := range warnings {
		a.note("warning: %s", w)
	}
	// Beside the output, so that it can be moved there whatever happens.
	scratch, err := os.MkdirTemp(filepath.Dir(output), ".agentctl-build-")
	if err != nil {
		return fmt.Errorf("output %q: %w", output, causeOf(err))
	}
	defer os.RemoveAll(scratch)
	built, err := filepath.Abs(filepath.Join(scratch, filepath.Base(output)))
	if err != nil {
		return fmt.Errorf("output %q: %w", output, err)
	}
	if err := goBuild(ctx, a, dir, built); err != nil {
		return err
	}
	d, err := a.inspectBuilt(ctx, output, built)
	if err != nil {
		return err
	}
	if err := os.Rename(built, output); err != nil {
		return fmt.Errorf("output %q: %w", output, causeOf(err))
	}
	if a.json {
		a.object(builtJSON{d.Harness.ID, output, d.Size, d.Digest, warnings})
		return nil
	}
	a.line(fmt.Sprintf("built %s  %s  %s", output, bytesText(d.Size), d.Digest))
	return nil
}

// goBuild runs the Go toolchain in dir.
func goBuild(ctx context.Context, a *app, dir, output string) error {
	program, err := exec.LookPath("go")
	if err != nil {
		return &adviceError{
			errors.New("harness build: no go command in PATH"),
			fmt.Sprintf("install Go %s or later from https://go.dev/dl, or where it is, in %s: %s", sdkGo, dir, buildLine(filepath.Base(output))),
		}
	}
	var said bytes.Buffer
	build := exec.CommandContext(ctx, program, append(append([]string{"build"}, buildFlags()...), "-o", output, ".")...)
	build.Dir = dir
	build.Env = append(os.Environ(), buildEnvironment()...)
	build.Stdout, build.Stderr = &said, &said
	err = build.Run()
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		a.remark(noteJSON{Note: strings.TrimRight(said.String(), "\n")})
		return &adviceError{
			fmt.Errorf("harness build: go build failed: %w", err),
			fmt.Sprintf("by hand, in %s: %s", dir, buildLine(filepath.Base(output))),
		}
	case said.Len() > 0:
		a.note("%s", strings.TrimRight(said.String(), "\n"))
	}
	return nil
}

// inspectBuilt loads what was built for output.
func (a *app) inspectBuilt(ctx context.Context, output, built string) (host.Inspection, error) {
	code, err := readFile(ctx, built, maxModule)
	if err != nil {
		return host.Inspection{}, fmt.Errorf("output %q: %w", output, err)
	}
	name := strings.TrimSuffix(filepath.Base(output), ".wasm")
	return a.inspect(ctx, host.Harness{Name: name, Code: code}, nil)
}

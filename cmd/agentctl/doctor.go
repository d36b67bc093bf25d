package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what agentctl finds on this machine, and say what to do about it",
		Long: `doctor looks at everything agentctl needs: the data directory and who has it, free
space, the configuration and the policy, the compile cache, the engine, what the kernel can do,
the bundled harnesses, and the limits that hold. It loads a harness for real, and changes nothing that is yours.

Each line is "ok", a "note" of what is worth knowing, or a "problem" with what to do. The exit
code is 0 if there is no problem, and 1 if something will not work.`,
		Example: `  agentctl doctor
  agentctl doctor --data /srv/agents --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), a) },
	}
}

// status is how a thing was found.
type status string

const (
	statusOK      status = "ok"
	statusNote    status = "note"    // works, and is worth knowing
	statusProblem status = "problem" // something will not work
)

// finding is what doctor says of one thing. Facts has the numbers behind the text
// for programs.
type finding struct {
	Check  string         `json:"check"`
	Status status         `json:"status"`
	Text   string         `json:"text"`
	Next   string         `json:"next,omitempty"`
	Facts  map[string]any `json:"facts,omitempty"`
}

func runDoctor(ctx context.Context, a *app) error {
	problems := 0
	for _, check := range []func(context.Context) []finding{
		a.checkProgram, a.checkData, a.checkConfig, a.checkPolicy, a.checkCache, a.checkEngine, a.checkKernel, a.checkLimits,
	} {
		for _, f := range check(ctx) {
			if f.Status == statusProblem {
				problems++
			}
			a.finding(f)
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
	switch problems {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("there is a problem")
	}
	return fmt.Errorf("there are %d problems", problems)
}

func (a *app) finding(f finding) {
	if a.json {
		a.object(f)
		return
	}
	const layout = "%-7s  %-9s  %s"
	text := fmt.Sprintf(layout, f.Status, f.Check, f.Text)
	if f.Status == statusProblem {
		a.data([]byte(a.outStyle.bad + oneLine(text) + a.outStyle.reset + "\n"))
	} else {
		a.line(text)
	}
	if f.Next != "" {
		a.line(fmt.Sprintf(layout, "", "", f.Next))
	}
}

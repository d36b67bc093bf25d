package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// defaultProject is that of whoever names none.
const defaultProject = "default"

func newRootCommand(a *app) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "agentctl",
		Short: "Run durable agents in sealed cells",
		Long: `agentctl runs AI agents in sealed WebAssembly cells. Everything an agent asks of
the world is asked through the host, which writes the answer to a hash-chained
journal first. So a session survives crashes, replays without a single model call,
forks at any record, inside a turn too, and can be proven by running it again.

It needs no server, no API key and no configuration.

Data goes to stdout, the rest to stderr. With --json each line is one object: a
record has "event", a piece of an answer "delta", a session "state"; on stderr an
error has "error" and "code", what is worth knowing is a "note", and a line of the
log has "log", "level", "time" and "attrs".

The log tells what the host does, each attempt of a model call, and what harnesses
log. It is off unless --log, -v or AGENTCTL_LOG wants it.

Environment:
  AGENTCTL_DATA    the data directory, unless --data names it
                   (default: agentcell in the XDG data directory)
  AGENTCELL_CACHE  where compiled modules are kept; without such a place every
                   run compiles anew
                   (default: agentcell in the XDG cache directory)
  AGENTCTL_LOG     the level of the log, unless --log or -v names it
  NO_COLOR         no color, whatever the terminal can do`,
		Example: `  agentctl exec --input "hello"
  agentctl list`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				runVersion(a)
				return nil
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print what this agentctl is")
	flags := root.PersistentFlags()
	flags.Var(text(&a.dataDir, a.getenv("AGENTCTL_DATA")), "data", "`DIR` that holds everything (env AGENTCTL_DATA)")
	flags.Var(text(&a.configFile, ""), "config-file", "`FILE` of models and tools (default: agentcell.yaml in the data directory)")
	flags.Var(text(&a.policyFile, ""), "policy", "`FILE` of rules over tool calls (default: policy.yaml in the data directory)")
	flags.Var(text(&a.project, defaultProject), "project", "project `P` that session names belong to")
	flags.BoolVar(&a.json, "json", false, "print one JSON object a line, on stderr too")
	flags.BoolVar(&a.quiet, "quiet", false, "say nothing on stderr but errors")
	flags.Var(logFlag{&a.logFrom}, "log", "show the log on stderr, from `LEVEL` on: "+strings.Join(logWords(), ", ")+" (env AGENTCTL_LOG)")
	flags.VarPF(moreFlag{&a.verbose}, "verbose", "v", "--log info; -vv is --log debug").NoOptDefVal = "true"
	// The default is the environment's and would show up as a literal.
	flags.Lookup("data").DefValue = ""
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s; see %s --help", flagError(err), cmd.CommandPath())
	})
	root.SetOut(dataWriter{a.output})
	root.SetHelpTemplate(helpTemplate)
	root.SetHelpCommand(newHelpCommand())
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			// Of a command that is not there cobra shows its parent's help.
			if a.helpErr = unknownCommand(cmd, cmd.Flags().Args()); a.helpErr != nil {
				return
			}
		}
		help(cmd, args)
	})

	root.AddCommand(
		newExecCommand(a),
		newChatCommand(a),
		newCreateCommand(a),
		newListCommand(a),
		newGetCommand(a),
		newShowCommand(a),
		newDiffCommand(a),
		newReplayCommand(a),
		newWatchCommand(a),
		newForkCommand(a),
		newRerunCommand(a),
		newResumeCommand(a),
		newCancelCommand(a),
		newApproveCommand(a),
		newDenyCommand(a),
		newApprovalsCommand(a),
		newSignalCommand(a),
		newVerifyCommand(a),
		newRepairCommand(a),
		newUpgradeCommand(a),
		newSaveCommand(a),
		newSnapshotsCommand(a),
		newSuspendCommand(a),
		newExportCommand(a),
		newImportCommand(a),
		newDeleteCommand(a),
		newUsageCommand(a),
		newBudgetCommand(a),
		newGCCommand(a),
		newDUCommand(a),
		newHarnessCommand(a),
		newModelCommand(a),
		newToolCommand(a),
		newPolicyCommand(a),
		newSecretCommand(a),
		newDoctorCommand(a),
		newCompletionCommand(a),
		newVersionCommand(a),
	)
	a.completions(root)
	return root
}

const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}
` + exitCodesHelp + "\n"

// flagError says of a value that strconv cannot read what is wanted in its place.
func flagError(err error) string {
	var syntax *strconv.NumError
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	want := "want a whole number"
	switch {
	case errors.Is(err, strconv.ErrRange):
		want = "the number is too large"
	case syntax.Func == "ParseBool":
		want = "want true or false"
	}
	return strings.TrimSuffix(err.Error(), syntax.Error()) + want
}

// dataWriter hands what cobra prints, which is help, to the output.
type dataWriter struct{ o *output }

func (w dataWriter) Write(b []byte) (int, error) {
	w.o.data(b)
	return len(b), nil
}

// newHelpCommand is cobra's, but for a topic that is not there.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil {
				return &usageError{err}
			}
			if err := unknownCommand(topic, rest); err != nil {
				return err
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// unknownCommand refuses arguments of a command that only has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	const distance = 2
	cmd.SuggestionsMinimumDistance = distance
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %s?", near[0])
	}
	return usagef("%s; see %s --help", text, cmd.CommandPath())
}

// called is what a message calls a command, which begins with agentctl anyway.
func called(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// noArguments refuses arguments and says where they belong.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no argument %q; see %s --help", called(cmd), args[0], cmd.CommandPath())
}

// sessionFlag is a command's --session, which may also stand as its only
// argument.
type sessionFlag struct{ ref string }

func (s *sessionFlag) add(cmd *cobra.Command) {
	cmd.Flags().Var(text(&s.ref, ""), "session", "the session `S`: its uid, a unique prefix of it, or its name")
	cmd.Args = s.argument
}

func (s *sessionFlag) argument(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && s.ref == "":
		s.ref = args[0]
	case len(args) > 0:
		return usagef("%s takes one session, not also %q; see %s --help", called(cmd), args[len(args)-1], cmd.CommandPath())
	}
	if s.ref == "" {
		return usagef("which session? Name one with --session; agentctl list shows them")
	}
	return nil
}

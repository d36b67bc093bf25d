package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
)

// chatHarness is what a new chat runs when nobody says otherwise.
const chatHarness = "chat"

type chatOptions struct {
	newSessionFlags
	session string
	files   turnFlags
	given   func(flag string) bool
}

func newChatCommand(a *app) *cobra.Command {
	var opts chatOptions
	cmd := &cobra.Command{
		Use:   "chat [S]",
		Short: "Talk to a session: a line a turn",
		Long: `chat runs a turn for every line you type and shows the answer as it comes. Without S it
makes a session first; with S it goes on with that one and shows what was said last. A
turn that was interrupted is taken up, and of one that is parked you are asked for each
call that waits, with its arguments in full.

Ctrl-C cancels the turn, and a second one leaves at once; where you type, it clears the
line. Ctrl-D or /quit leaves. The arrows bring back what was said before, Alt-Enter begins
a new line, and pasted text of several lines is one input.

` + chatHelp() + `
Where stdin is no terminal each line is a turn, too: answers go to stdout, the rest to
stderr, and the exit code is that of the first turn or command that failed, or 8 if the
session awaits something in the end. --json prints what agentctl exec prints.

--name, --harness, --label and --limit are for a new session. --model and --config are
kept with a new session and else hold for the turns of this chat. --script and --tools
are as for exec.`,
		Example: `  printf 'hello\nand again\n' | agentctl chat
  printf 'one more thing\n/undo\n' | agentctl chat demo
  echo hello | agentctl chat --name tutor --config '{"system":"be brief"}' --script answers.jsonl --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && args[0] == "":
				return usagef("the session's name is empty; give one, or leave it out for a new session")
			case len(args) == 1 && opts.session == "":
				opts.session = args[0]
			case len(args) > 0:
				return usagef("chat takes one session, not also %q; what you say comes from stdin", args[len(args)-1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runChat(cmd.Context(), a, opts)
		},
	}
	opts.newSessionFlags.add(cmd)
	f := cmd.Flags()
	opts.harness, f.Lookup("harness").DefValue = chatHarness, chatHarness
	f.Var(text(&opts.session, ""), "session", "go on with session `S`: its uid, a unique prefix of it, or its name")
	opts.files.add(cmd, a)
	return cmd
}

func (o *chatOptions) check() error {
	for _, flag := range []string{"name", "harness", "label", "limit", "retain", "grant", "budget", "tree-budget"} {
		if o.session != "" && o.given(flag) {
			return usagef("--%s is for a new session; leave it or the session out", flag)
		}
	}
	return o.files.check(o.model)
}

func runChat(ctx context.Context, a *app, opts chatOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	a.stays = true
	c := &chat{app: a, files: opts.files, model: opts.files.model("")}
	if opts.session == "" {
		return chatNew(ctx, c, opts)
	}
	var err error
	if c.config, err = readConfig(ctx, opts.config); err != nil {
		return err
	}
	if opts.model != "" {
		c.model = opts.model
	}
	return a.withSession(ctx, opts.files.script, opts.session, func(h *edge.Host, s host.Session) error {
		c.host, c.session = h, s
		return c.talkTo(ctx, func() error { return c.open(ctx, s) })
	})
}

// chatNew makes the session to talk to.
func chatNew(ctx context.Context, c *chat, opts chatOptions) error {
	create, err := opts.request(ctx, c.app)
	if err != nil {
		return err
	}
	return c.with(ctx, opts.files.script, func(h *edge.Host) error {
		if _, err := h.Policy(); err != nil {
			return err
		}
		if err := completeHarness(ctx, h, &create.Harness); err != nil {
			return err
		}
		s, err := h.Create(ctx, create)
		if err != nil {
			return err
		}
		c.host = h
		return c.talkTo(ctx, func() error {
			c.enter(s)
			return nil
		})
	})
}

// talkTo finds out who talks, begins, and goes on until they have nothing more to
// say.
func (c *chat) talkTo(ctx context.Context, begin func() error) error {
	person, err := c.person()
	if err != nil {
		return err
	}
	if person == nil {
		c.talker, c.view = newPipe(c.app), view{output: c.output}
	} else {
		defer person.restore()
		c.talker, c.view = person, view{output: c.output, live: true}
		c.note("a line a turn; /help shows what else there is, Ctrl-D leaves")
	}
	if err := begin(); err != nil {
		return err
	}
	return c.run(ctx)
}

// chatHelp lists the commands.
func chatHelp() string {
	var b strings.Builder
	b.WriteString("A line that begins with a slash is a command:\n")
	for _, cmd := range chatCommands() {
		fmt.Fprintf(&b, "  %-28s%s\n", strings.TrimSpace("/"+cmd.name+" "+cmd.arguments), cmd.about)
	}
	fmt.Fprintf(&b, "  %-28s%s\n", "//TEXT", "says TEXT with a slash before it")
	return b.String()
}

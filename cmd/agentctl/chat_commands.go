package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// chatCommand is a line that begins with a slash.
type chatCommand struct {
	name, arguments, about string
	// run gets what stands behind the name. The first of it must be there if the
	// arguments do not stand in brackets.
	run func(c *chat, ctx context.Context, rest string) error
}

// chatCommands are all of them, in the order in which help shows them.
func chatCommands() []chatCommand {
	return []chatCommand{
		{"undo", "", "go on in a fork from before the last turn", (*chat).undo},
		{"fork", "[NAME]", "go on in a fork from here", (*chat).fork},
		{"save", "NAME", "keep this point as a snapshot", (*chat).save},
		{"new", "[NAME]", "begin a session of the same kind", (*chat).renew},
		{"session", "[S]", "go on with session S, or say which this is", (*chat).change},
		{"approve", "[CALL] [REASON]", "let a call happen that waits", func(c *chat, ctx context.Context, rest string) error {
			return c.decideOn(ctx, true, rest)
		}},
		{"deny", "[CALL] [REASON]", "refuse a call that waits", func(c *chat, ctx context.Context, rest string) error {
			return c.decideOn(ctx, false, rest)
		}},
		{"signal", "NAME [JSON]", "send the signal that is waited for", (*chat).signal},
		{"resume", "", "go on with an interrupted or parked turn", func(c *chat, ctx context.Context, _ string) error {
			return c.resume(ctx)
		}},
		{"cancel", "", "end an interrupted or parked turn", (*chat).cancel},
		{"help", "", "show these commands", func(c *chat, _ context.Context, _ string) error {
			c.remark(noteJSON{Note: strings.TrimSuffix(chatHelp(), "\n")})
			return nil
		}},
		{"quit", "", "leave", func(*chat, context.Context, string) error { return errQuit }},
	}
}

// slashWords are the commands as one types them.
func slashWords() []string {
	var words []string
	for _, cmd := range chatCommands() {
		word := "/" + cmd.name
		if cmd.arguments != "" {
			word += " "
		}
		words = append(words, word)
	}
	return words
}

// command does what a line says that begins with a slash.
func (c *chat) command(ctx context.Context, line string) error {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	all := chatCommands()
	i := slices.IndexFunc(all, func(cmd chatCommand) bool { return cmd.name == name })
	switch {
	case i < 0:
		return usagef("unknown command %.40q; /help shows those there are, and a line that begins with // is said with one slash", "/"+name)
	case rest == "" && all[i].arguments != "" && !strings.HasPrefix(all[i].arguments, "["):
		return usagef("/%s wants %s", name, all[i].arguments)
	case rest != "" && all[i].arguments == "":
		return usagef("/%s takes no %.40q", name, rest)
	}
	return all[i].run(c, ctx, rest)
}

// fork is /fork: a child from here, an open turn included.
func (c *chat) fork(ctx context.Context, name string) error {
	return c.forkAt(ctx, c.session.Head.Seq, name, "a fork of %s, which stays as it is")
}

// undo is /undo. What there is before the first turn is a session as new as this
// one was.
func (c *chat) undo(ctx context.Context, _ string) error {
	if c.session.Head.Seq == 0 {
		return usagef("nothing was said yet that could be undone")
	}
	at, err := c.before(ctx)
	switch {
	case err != nil:
		return err
	case at == 0:
		return c.renew(ctx, "")
	}
	return c.forkAt(ctx, at, "", "a fork of %s from before its last turn; that one stays as it is")
}

// before is the END before the session's last turn, 0 if that is its first.
func (c *chat) before(ctx context.Context) (abi.Seq, error) {
	skip := 1
	if c.session.State == host.ExecInterrupted || c.session.State == host.ExecAwaiting {
		skip = 0 // its last turn has none
	}
	const page = 256
	for to := c.session.Head.Seq; to > 0; to -= page {
		var ends []abi.Seq
		for r, err := range c.host.Replay(ctx, c.session.UID, max(1, to-page+1), to) {
			if err != nil {
				return 0, err
			}
			if r.Event.Kind == abi.EventEnd {
				ends = append(ends, r.Seq)
			}
		}
		if len(ends) > skip {
			return ends[len(ends)-1-skip], nil
		}
		skip -= len(ends)
	}
	return 0, nil
}

// forkAt makes a child and goes on in it. what says what the child is to the
// session, which it names.
func (c *chat) forkAt(ctx context.Context, at abi.Seq, name, what string) error {
	req := host.ForkRequest{Session: c.session.UID, At: at}
	if name != "" {
		req.Names = []string{name}
	}
	// The image of a point of an imported session is made by running it again.
	making, stop := c.interruptible(ctx)
	children, err := c.host.Fork(making, req)
	stop()
	if err != nil {
		return err
	}
	return c.moveTo(ctx, children[0], what)
}

// renew is /new: a session like this one, in which nothing was said.
func (c *chat) renew(ctx context.Context, name string) error {
	s := c.session
	code, err := c.host.Journal().Blob(s.Module)
	if err != nil {
		return fmt.Errorf("the harness of session %s: %w", s.UID, err)
	}
	made, err := c.host.Create(ctx, host.CreateRequest{
		Project: s.Project, Name: name, Harness: host.Harness{Name: s.Harness, Code: code},
		Model: s.Model, Config: s.Config, Labels: s.Labels, Limits: s.Limits, Retention: s.Retention,
	})
	if err != nil {
		return err
	}
	return c.moveTo(ctx, made, "a new session like %s, which stays as it is")
}

// moveTo goes on in a session that was made from this one, which stays as it is.
// A turn that is open there is taken up.
func (c *chat) moveTo(ctx context.Context, s host.Session, what string) error {
	left := c.ref
	c.session, c.ref = s, string(s.UID)
	if s.Name != "" {
		c.ref = s.Name
	}
	if c.json {
		c.object(newSessionJSON(s))
	}
	c.note("now in %s, "+what, c.ref, left)
	if s.State == host.ExecInterrupted || s.State == host.ExecAwaiting {
		return c.resume(ctx)
	}
	return nil
}

// change is /session.
func (c *chat) change(ctx context.Context, ref string) error {
	if ref == "" {
		c.facts()
		return nil
	}
	uid, err := c.host.Resolve(ctx, c.project, ref)
	if err != nil {
		return err
	}
	s, err := c.host.Get(ctx, uid)
	if err != nil {
		return err
	}
	return c.open(ctx, s)
}

// facts says which session this is.
func (c *chat) facts() {
	s := c.session
	if c.json {
		c.object(newSessionJSON(s))
		return
	}
	c.complain("session " + oneLine(spaced(string(s.UID), s.Name)))
	c.complain(fmt.Sprintf("harness %s, turns %d, seq %d, %s", oneLine(s.Harness), s.Turns, s.Head.Seq, stateText(s, c.now())))
}

// save is /save.
func (c *chat) save(ctx context.Context, name string) error {
	making, stop := c.interruptible(ctx)
	saved, err := c.host.Save(making, host.SaveRequest{Session: c.session.UID, Name: name})
	stop()
	if err != nil {
		return err
	}
	if c.json {
		c.object(newSnapshotJSON(saved))
	}
	c.note("snapshot %s is seq=%d of %s", oneLine(saved.Name), saved.At, c.ref)
	return nil
}

// cancel is /cancel: the open turn, which is not running, ends.
func (c *chat) cancel(ctx context.Context, _ string) error {
	err := c.once(ctx, func(ctx context.Context) (host.Execution, error) { return c.host.Cancel(ctx, c.session.UID) })
	var ended *turnError
	if errors.As(err, &ended) {
		c.note("the turn is %s", ended.Reason)
		return nil // as asked
	}
	return err
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// report tells of an error on stderr: the cause, and what to do next.
func (a *app) report(err error, code int) {
	e := errorJSON{Error: shortened(strings.TrimSpace(err.Error())), Code: code, Next: a.nextStep(err)}
	var (
		ended    *turnError
		awaiting *awaitingError
	)
	switch {
	case errors.As(err, &ended):
		e.Session, e.Execution, e.Reason = ended.Session.UID, ended.ID, ended.Reason
	case errors.As(err, &awaiting):
		e.Session, e.Execution = awaiting.session.UID, awaiting.session.Execution
	}
	d, differs := differenceOf(err)
	if differs {
		e.Error = fmt.Sprintf("the record does not hold at seq %d: %s", d.seq, d.what)
		var other *otherWayError
		switch {
		case errors.As(err, &other):
			e.Error, e.Next = fmt.Sprintf("the new module goes another way at seq %d: %s", d.seq, d.what), other.next
		case unreadable(err):
			e.Next = "put a copy of the directory back, import the session from a file, or give it up: " + a.aboutSession("delete")
		case a.ref != "": // not a file
			e.Next = a.agentctl("replay") + " shows the record"
		}
		e.Seq, e.What, e.Want, e.Got = int64(d.seq), d.what, d.want, d.got
	}
	if a.json {
		a.complainObject(e)
		return
	}
	text := e.Error
	if awaiting == nil { // which is no error
		text = "agentctl: " + text
	}
	if differs && (!d.want.IsZero() || !d.got.IsZero()) {
		text += fmt.Sprintf("\n  want %s\n  got  %s", orNone(d.want), orNone(d.got))
	}
	if e.Next != "" {
		text += "\n" + e.Next
	}
	a.complain(text)
}

// unreadable reports that what does not hold is a record that cannot be read, and so
// not be shown.
func unreadable(err error) bool {
	var broken *journal.Broken
	return errors.As(err, &broken) && broken.Got.IsZero() && broken.Want.IsZero()
}

func orNone(d abi.Digest) string {
	if d.IsZero() {
		return "none"
	}
	return d.String()
}

// nextStep says what a person can do about err, where its text does not.
func (a *app) nextStep(err error) string {
	var (
		advice   *adviceError
		awaiting *awaitingError
		damage   *host.ImageDamage
		ended    *turnError
	)
	switch {
	case errors.As(err, &awaiting):
		return awaiting.next
	case errors.As(err, &ended) && ended.Reason == abi.ReasonBudget:
		return a.inPlace("budget") + " --session " + string(ended.Session.UID) + " shows what it may use and changes it"
	case errors.As(err, &ended) && ended.Reason == abi.ReasonLimit && ended.Session.Limits.MemoryBytes > 0:
		return "the limit is the session's own, and stays; " + a.inPlace("create") + " --limit memory=SIZE makes a session with another"
	case errors.As(err, &advice):
		return advice.next
	case errors.As(err, &damage):
		return a.inPlace("repair") + " --session " + string(damage.Session) + " makes it again from the record"
	case errors.Is(err, host.ErrExists):
		return "choose another name, or go on with that session: " + a.inPlace("exec") + " --session NAME"
	case errors.Is(err, host.ErrConflict):
		return a.agentctl("get") + " shows where the session is now"
	case errors.Is(err, host.ErrBusy):
		return "wait until its turn has ended"
	case errors.Is(err, host.ErrNothingOpen):
		return a.agentctl("exec") + " --input TEXT begins a turn"
	case errors.Is(err, host.ErrOpenTurn):
		return a.agentctl("resume") + " goes on with it; " + a.agentctl("exec") + " --abandon --input TEXT drops it for a new one"
	case errors.Is(err, runtimes.ErrModule):
		return "docs/abi.md says what a module needs"
	case errors.Is(err, journal.ErrCorrupt):
		return a.aboutSession("repair") + " makes damaged memory again; for a damaged record, put a copy of the directory back, or import the session from a file"
	case errors.Is(err, journal.ErrUnreadable):
		return "put a copy of the directory back; sessions that were exported can be imported into another --data DIR"
	case errors.Is(err, journal.ErrFull):
		return "make room there, or name a directory on another disk with --data"
	case errors.Is(err, journal.ErrReadOnly):
		return "name a directory that you can write to with --data or AGENTCTL_DATA"
	}
	return ""
}

// agentctl is a command line as one may type it about the session at hand, if
// there is one.
func (a *app) agentctl(command string) string {
	line := a.inPlace(command)
	if a.ref != "" {
		line += " --session " + a.ref
	}
	return line
}

// aboutSession is the same, with a word for the session if there is none at hand.
func (a *app) aboutSession(command string) string {
	line := a.agentctl(command)
	if a.ref == "" {
		line += " --session S"
	}
	return line
}

// inPlace is a command line for the directory, the project and the files that were
// named.
func (a *app) inPlace(command string) string {
	line := "agentctl " + command
	if a.dataDir != a.getenv("AGENTCTL_DATA") {
		line += " --data " + shellWord(a.dataDir)
	}
	if a.project != defaultProject {
		line += " --project " + shellWord(a.project)
	}
	if a.configFile != "" {
		line += " --config-file " + shellWord(a.configFile)
	}
	if a.policyFile != "" {
		line += " --policy " + shellWord(a.policyFile)
	}
	return line
}

// shortened leaves out the middle of a text that nobody would read to its end,
// such as one that quotes a name of a megabyte: what is wrong stands at one of
// its ends.
func shortened(text string) string {
	const most, end = 4000, 1000
	if len(text) <= most {
		return text
	}
	head, tail := end, len(text)-end
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s … (%d bytes left out) … %s", text[:head], tail-head, text[tail:])
}

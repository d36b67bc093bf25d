package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/sdk/abi"
)

// report tells of an error on stderr: the cause, and what to do next.
func (a *app) report(err error, code int) {
	e := errorJSON{Error: strings.TrimSpace(err.Error()), Code: code, Next: nextStep(err)}
	var ended *turnError
	if errors.As(err, &ended) {
		e.Session, e.Execution, e.Reason = ended.Session.UID, ended.ID, ended.Reason
	}
	d, differs := differenceOf(err)
	if differs {
		e.Error = fmt.Sprintf("the record does not hold at seq %d: %s", d.seq, d.what)
		e.Next = "agentctl replay --session S shows the record"
		e.Seq, e.What, e.Want, e.Got = int64(d.seq), d.what, d.want, d.got
	}
	if a.json {
		line, err := encodeLine(e)
		if err != nil {
			line = []byte(err.Error())
		}
		a.complain(strings.TrimSuffix(string(line), "\n"))
		return
	}
	text := "agentctl: " + e.Error
	if differs && (!d.want.IsZero() || !d.got.IsZero()) {
		text += fmt.Sprintf("\n  want %s\n  got  %s", orNone(d.want), orNone(d.got))
	}
	if e.Next != "" {
		text += "\n" + e.Next
	}
	a.complain(text)
}

func orNone(d abi.Digest) string {
	if d.IsZero() {
		return "none"
	}
	return d.String()
}

// nextStep says what a person can do about err, where its text does not.
func nextStep(err error) string {
	switch {
	case errors.Is(err, host.ErrExists):
		return "choose another name, or go on with that session: agentctl exec --session NAME"
	case errors.Is(err, host.ErrConflict):
		return "agentctl get --session S shows where the session is now"
	case errors.Is(err, host.ErrBusy):
		return "wait until its turn has ended"
	case errors.Is(err, runtimes.ErrModule):
		return "docs/abi.md says what a module needs"
	}
	return ""
}

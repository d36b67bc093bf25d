package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

type verifyOptions struct {
	session   sessionFlag
	file      string // instead of a session
	reexecute bool
	strict    bool
	head      string
}

func newVerifyCommand(a *app) *cobra.Command {
	var opts verifyOptions
	cmd := &cobra.Command{
		Use:   "verify --session S | FILE [--reexecute] [--strict] [--head H]",
		Short: "Check a session's hash chain, and prove its turns by running them again",
		Long: `verify checks that every record is the one its successor's hash names, up to the
head. --head also demands that the chain has a record with that hash, which catches a
record cut short. --reexecute runs every turn again from the record alone, without a
model call: outputs and memory must be the recorded ones, byte for byte. Turns that
ended for an outside reason, such as a cancel, are checked as far as they went.

All images of the session's memory that are stored are read, too. One that is damaged is
made again by agentctl repair.

Instead of a session it takes a FILE that export made (- is stdin), and needs no
store then: a file that was cut, edited or mixed with another is told as what it is.

When something does not hold, the first bad seq, both hashes and what differs are
told, and the exit code is 6.`,
		Example: `  agentctl verify --session demo
  agentctl verify demo --reexecute --strict
  agentctl verify demo.agentcell --reexecute`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	cmd.Args = opts.arguments
	f := cmd.Flags()
	f.BoolVar(&opts.reexecute, "reexecute", false, "run every turn again and compare outputs and memory")
	f.BoolVar(&opts.strict, "strict", false, "also check that every line is in its canonical form")
	f.Var(text(&opts.head, ""), "head", "the hash `H` of a record that the chain must have")
	return cmd
}

// arguments takes a session, or a file, unless --session named a session.
func (o *verifyOptions) arguments(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && o.session.ref == "" && isPortable(args[0]) {
		o.file = args[0]
		return nil
	}
	return o.session.argument(cmd, args)
}

func runVerify(ctx context.Context, a *app, opts verifyOptions) error {
	head, err := abi.ParseDigest(opts.head)
	if err != nil {
		return usagef("--head %q: %w", opts.head, err)
	}
	if opts.head != "" && head.IsZero() {
		return usagef("--head %q: no record has this hash", opts.head)
	}
	check := func(h *edge.Host, s host.Session) error {
		return a.verify(ctx, h, host.VerifyRequest{
			Session: s.UID, Reexecute: opts.reexecute, Strict: opts.strict, Head: head,
		})
	}
	if opts.file != "" {
		return a.withFile(ctx, opts.file, check)
	}
	return a.withSession(ctx, "", opts.session.ref, check)
}

// verify checks a session and tells what was found.
func (a *app) verify(ctx context.Context, h *edge.Host, req host.VerifyRequest) error {
	v, err := h.Verify(ctx, req)
	if err != nil {
		if d, ok := differenceOf(err); ok && a.json {
			a.object(newFailedVerificationJSON(req.Session, d))
		}
		var damage *host.ImageDamage
		if errors.As(err, &damage) && a.json {
			a.object(newFailedVerificationJSON(req.Session, difference{seq: damage.At, what: damage.Error()}))
		}
		return err
	}
	if a.json {
		a.object(newVerificationJSON(req.Session, v, req.Reexecute))
		return nil
	}
	a.line(fmt.Sprintf("verified: %d records, head %s", v.Records, orNone(v.Head.Hash)))
	if v.Images > 0 {
		a.line(fmt.Sprintf("memory: %s whole", count(int(v.Images), "image is", "images are")))
	}
	if req.Reexecute {
		a.line(reexecutedLine(v))
	}
	return nil
}

func reexecutedLine(v host.Verification) string {
	line := fmt.Sprintf("re-executed: %d turns byte-identical, %d provider calls, root %s", v.Reexecuted, v.ProviderCalls, v.Root)
	if v.Upgrades > 0 {
		line += fmt.Sprintf(", upgraded %d times", v.Upgrades)
	}
	if v.Prefix > 0 {
		line += fmt.Sprintf(", %d checked as a prefix", v.Prefix)
	}
	if v.ChainOnly > 0 {
		line += fmt.Sprintf(", %d by chain only", v.ChainOnly)
	}
	return line
}

// difference is where and how a verification failed.
type difference struct {
	seq       abi.Seq
	what      string
	want, got abi.Digest
}

// differenceOf finds the difference that err tells of.
func differenceOf(err error) (difference, bool) {
	var (
		broken   *journal.Broken
		diverged *turn.Divergence
	)
	switch {
	case errors.As(err, &broken):
		return difference{broken.Seq, broken.What, broken.Want, broken.Got}, true
	case errors.As(err, &diverged):
		return difference{diverged.Seq, diverged.What, diverged.Want, diverged.Got}, true
	}
	return difference{}, false
}

type verificationJSON struct {
	Session  abi.SessionID `json:"session"`
	Verified bool          `json:"verified"`
	Records  int64         `json:"records"`
	Seq      int64         `json:"seq"`
	Head     abi.Digest    `json:"head"`
	Images   int64         `json:"images,omitempty"`
	*reexecutionJSON
}

type reexecutionJSON struct {
	Reexecuted    int64      `json:"reexecuted"`
	Prefix        int64      `json:"prefix"`
	ChainOnly     int64      `json:"chain_only"`
	Upgrades      int64      `json:"upgrades,omitempty"`
	ProviderCalls int64      `json:"provider_calls"`
	Root          abi.Digest `json:"root"`
}

func newVerificationJSON(uid abi.SessionID, v host.Verification, reexecuted bool) verificationJSON {
	out := verificationJSON{
		Session: uid, Verified: true, Records: v.Records, Seq: int64(v.Head.Seq), Head: v.Head.Hash, Images: v.Images,
	}
	if reexecuted {
		out.reexecutionJSON = &reexecutionJSON{v.Reexecuted, v.Prefix, v.ChainOnly, v.Upgrades, v.ProviderCalls, v.Root}
	}
	return out
}

type failedVerificationJSON struct {
	Session  abi.SessionID `json:"session"`
	Verified bool          `json:"verified"`
	Seq      int64         `json:"seq"`
	What     string        `json:"what"`
	Want     abi.Digest    `json:"want,omitzero"`
	Got      abi.Digest    `json:"got,omitzero"`
}

func newFailedVerificationJSON(uid abi.SessionID, d difference) failedVerificationJSON {
	return failedVerificationJSON{Session: uid, Seq: int64(d.seq), What: d.what, Want: d.want, Got: d.got}
}

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// newSessionFlags say what a new session is made of.
type newSessionFlags struct {
	harness string
	name    string
	from    string // a snapshot, in place of a harness
	model   string
	config  string
	labels  map[string]string
	grants  []string
	limits  abi.Limits
	retain  host.Retention
	budget  host.Amounts
	tree    host.Amounts // of the session and its forks
	runs    bool         // a turn of it, at once
	// Of create alone: other commands bound the time of their turn.
	deadline, callTimeout time.Duration
}

func (n *newSessionFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(text(&n.harness, defaultHarness), "harness", "harness of a new session: a bundled or pushed `NAME`, or a .wasm file")
	f.Var(text(&n.name, ""), "name", "name `N` of a new session, unique in its project")
	f.Var(text(&n.model, ""), "model", "model `M` for calls that name none (default: the session's, or echo)")
	f.Var(text(&n.config, ""), "config", "the harness's config: `JSON` or @file")
	f.Var(labelsFlag{labels: &n.labels}, "label", "label `KEY=VALUE` of a new session; may be given several times")
	f.Var(namesFlag{&n.grants}, "grant", "tools that it may call: `NAMES`, or patterns such as files.* (default: all)")
	f.Var(limitsFlag{&n.limits}, "limit", "bound `NAME=VALUE` of its turns: "+strings.Join(limitNames(), ", "))
	f.Var(retainFlag{&n.retain}, "retain", "images of past turns that it keeps: all, or a `LIST` (default last=8,every=16)")
	// It fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("limit", valueNames(limitNames()))
	addBudget(cmd, &n.budget, "budget", "what it may use in all: `NAME=VALUE`, such as tokens=100000; see agentctl budget")
	addBudget(cmd, &n.tree, "tree-budget", "the same, `NAME=VALUE`, of it and its forks together")
}

// addFrom adds the flag for what a session can be made of in place of a harness.
func (n *newSessionFlags) addFrom(cmd *cobra.Command) {
	cmd.Flags().Var(text(&n.from, ""), "from-snapshot", "make the new session from the snapshot `NAME`")
}

// check refuses what a session from a snapshot does not take: it keeps that of the
// one that was saved.
func (n *newSessionFlags) check(given func(flag string) bool, more ...string) error {
	for _, flag := range append([]string{"harness", "limit", "retain", "grant", "budget", "tree-budget"}, more...) {
		if n.from != "" && given(flag) {
			return usagef("a session from a snapshot keeps the %s it was saved with; leave --%s or --from-snapshot out", flag, flag)
		}
	}
	return nil
}

// makeFrom makes a session from the snapshot and does work with it.
func (n *newSessionFlags) makeFrom(ctx context.Context, a *app, h *edge.Host, work func(*edge.Host, host.Session) error) error {
	if err := n.mayRun(h); err != nil {
		return err
	}
	s, err := h.CreateFromSnapshot(ctx, host.FromSnapshotRequest{Project: a.project, Snapshot: n.from, Name: n.name, Labels: n.labels})
	if err != nil {
		return err
	}
	return work(h, s)
}

// make makes a session of the harness and does work with it.
func (n *newSessionFlags) make(ctx context.Context, a *app, scriptFile string, work func(*edge.Host, host.Session) error) error {
	req, err := n.request(ctx, a)
	if err != nil {
		return err
	}
	return a.with(ctx, scriptFile, func(h *edge.Host) error {
		if err := n.mayRun(h); err != nil {
			return err
		}
		if err := completeHarness(ctx, h, &req.Harness); err != nil {
			return err
		}
		s, err := h.Create(ctx, req)
		if err != nil {
			return err
		}
		return work(h, s)
	})
}

// mayRun refuses a session that is made for a turn which the policy does not let begin,
// as it cannot be read: the same command, put right, is to find nothing of the attempt.
func (n *newSessionFlags) mayRun(h *edge.Host) error {
	if !n.runs {
		return nil
	}
	_, err := h.Policy()
	return err
}

// request is the CreateRequest of the flags. Its harness may want to be completed.
func (n *newSessionFlags) request(ctx context.Context, a *app) (host.CreateRequest, error) {
	config, err := readConfig(ctx, n.config)
	if err != nil {
		return host.CreateRequest{}, err
	}
	harness, err := a.loadHarness(ctx, n.harness)
	if err != nil {
		return host.CreateRequest{}, err
	}
	return host.CreateRequest{
		Project: a.project, Name: n.name, Harness: harness, Model: n.model, Config: config,
		Labels: n.labels, Grants: n.grants, Limits: n.limits, Retention: n.retain, Budget: n.budget, TreeBudget: n.tree,
		Deadline: n.deadline, CallTimeout: n.callTimeout,
	}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// budgetFlag is a flag that is given once for each amount.
type budgetFlag struct {
	budget *host.Amounts
	given  map[string]bool
}

func newBudgetFlag(budget *host.Amounts) budgetFlag {
	return budgetFlag{budget, make(map[string]bool)}
}

func (f budgetFlag) Set(s string) error {
	name, value, found := strings.Cut(s, "=")
	switch {
	case !found:
		return fmt.Errorf("want NAME=VALUE, such as tokens=100000; the names are %s", strings.Join(host.AmountNames(), ", "))
	case f.given[name]:
		return fmt.Errorf("%s is given twice", name)
	}
	f.given[name] = true
	return unwrapInvalid(f.budget.Set(name, value))
}

// unwrapInvalid is err without the words for every invalid request.
func unwrapInvalid(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), host.ErrInvalid.Error()+": "))
}

// String is called on the zero value too.
func (f budgetFlag) String() string { return "" }

func (f budgetFlag) Type() string { return "budget" }

// addBudget adds a flag that takes a budget.
func addBudget(cmd *cobra.Command, budget *host.Amounts, name, what string) budgetFlag {
	f := newBudgetFlag(budget)
	cmd.Flags().Var(f, name, what)
	// It fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(name, valueNames(host.AmountNames()))
	return f
}

const budgetHelp = `tokens (of requests and answers), cost (in the currency of the price table),
model_calls, tool_calls, turns, fuel, and wall (time, such as 1h30m; that a turn is parked
does not count)`

type budgetOptions struct {
	session sessionFlag
	ownSet  budgetFlag
	treeSet budgetFlag
}

func newBudgetCommand(a *app) *cobra.Command {
	var opts budgetOptions
	cmd := &cobra.Command{
		Use:   "budget --session S [--set NAME=VALUE ...] [--tree NAME=VALUE ...]",
		Short: "Show or change what a session and its forks may use",
		Long: `budget shows what a session may use and how much of it is left, or changes that: with
--set for the session alone, with --tree for the session and its forks together. The
amounts are ` + budgetHelp + `; 0 lifts a bound. What is not named stays as it is,
and what was used goes on counting.

What a call may take at most is set aside before it is made: a turn that asks for more
than is left ends FAILED, and nothing is called. Forks share the budget of their tree. A
tree's budget that is set for the first time is shared with the forks made from then on.`,
		Example: `  agentctl budget --session demo
  agentctl budget --session demo --set tokens=200000 --set model_calls=50
  agentctl budget --session demo --tree wall=2h`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBudget(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	opts.ownSet = addBudget(cmd, new(host.Amounts), "set", "bound `NAME=VALUE` of the session; may be given several times")
	opts.treeSet = addBudget(cmd, new(host.Amounts), "tree", "bound `NAME=VALUE` of the session and its forks together")
	return cmd
}

// changed is what f changes a budget to, nil if it changes nothing.
func (f budgetFlag) changed(budget host.Amounts) *host.Amounts {
	if len(f.given) == 0 {
		return nil
	}
	for name := range f.given {
		_ = budget.Set(name, f.budget.Text(name)) // which has read it before
	}
	return &budget
}

func runBudget(ctx context.Context, a *app, opts budgetOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		spending, err := h.Spending(ctx, s.UID)
		if err != nil {
			return err
		}
		own, tree := opts.ownSet.changed(spending.Budget), opts.treeSet.changed(spending.TreeBudget)
		if own != nil || tree != nil {
			if spending, err = h.SetBudget(ctx, s.UID, own, tree); err != nil {
				return err
			}
		}
		a.spending(s, spending)
		return nil
	})
}

type usageOptions struct {
	session sessionFlag
	tree    bool
}

func newUsageCommand(a *app) *cobra.Command {
	var opts usageOptions
	cmd := &cobra.Command{
		Use:   "usage --session S [--tree]",
		Short: "Show what a session, or its whole fork tree, has used",
		Long: `usage shows what a session has used: ` + budgetHelp + `.
INHERITED is what the session that it was forked from had used by then, which counts
against its own budget; ASIDE is set aside for what is under way. With --tree there is a line for
each session that has the same oldest ancestor, and their sum.

It reads no records, however long they are. agentctl budget sets bounds.`,
		Example: `  agentctl usage --session demo
  agentctl usage --session demo --tree --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUsage(cmd.Context(), a, opts) },
	}
	opts.session.add(cmd)
	cmd.Flags().BoolVar(&opts.tree, "tree", false, "all sessions of the fork tree")
	return cmd
}

func runUsage(ctx context.Context, a *app, opts usageOptions) error {
	return a.withSession(ctx, "", opts.session.ref, func(h *edge.Host, s host.Session) error {
		if !opts.tree {
			spending, err := h.Spending(ctx, s.UID)
			if err == nil {
				a.spending(s, spending)
			}
			return err
		}
		all, err := h.TreeSpending(ctx, s.UID)
		if err != nil {
			return err
		}
		return a.treeSpending(ctx, h, all)
	})
}

// amountsJSON are amounts under --json: whole numbers, costs in millionths, times in
// seconds.
type amountsJSON struct {
	Tokens     int64   `json:"tokens"`
	CostMicros int64   `json:"cost_micros"`
	ModelCalls int64   `json:"model_calls"`
	ToolCalls  int64   `json:"tool_calls"`
	Turns      int64   `json:"turns"`
	Fuel       int64   `json:"fuel"`
	Seconds    float64 `json:"wall_seconds"`
}

func newAmountsJSON(a host.Amounts) amountsJSON {
	return amountsJSON{a.Tokens, a.Cost, a.ModelCalls, a.ToolCalls, a.Turns, a.Fuel, a.Wall.Seconds()}
}

// spendingJSON is what usage and budget show under --json. A bound of 0 is none.
type spendingJSON struct {
	Session   abi.SessionID `json:"session"`
	Name      string        `json:"name,omitempty"`
	Used      amountsJSON   `json:"used"`
	Inherited amountsJSON   `json:"inherited"`
	Aside     amountsJSON   `json:"aside"`
	Budget    amountsJSON   `json:"budget"`
	Tree      *treeJSON     `json:"tree,omitempty"`
}

// treeJSON is what a fork tree with a budget shares.
type treeJSON struct {
	Session abi.SessionID `json:"session"` // that has the account
	Used    amountsJSON   `json:"used"`
	Aside   amountsJSON   `json:"aside"`
	Budget  amountsJSON   `json:"budget"`
}

func newSpendingJSON(s host.Session, sp host.Spending) spendingJSON {
	out := spendingJSON{
		Session: sp.Session, Name: s.Name, Used: newAmountsJSON(sp.Used), Inherited: newAmountsJSON(sp.Inherited),
		Aside: newAmountsJSON(sp.Held), Budget: newAmountsJSON(sp.Budget),
	}
	if sp.Tree != "" {
		out.Tree = &treeJSON{sp.Tree, newAmountsJSON(sp.TreeUsed), newAmountsJSON(sp.TreeHeld), newAmountsJSON(sp.TreeBudget)}
	}
	return out
}

// spending writes what one session has used, and may.
func (a *app) spending(s host.Session, sp host.Spending) {
	if a.json {
		a.object(newSpendingJSON(s, sp))
		return
	}
	bound := func(budget host.Amounts, name string) string {
		if !budget.Has(name) {
			return "-"
		}
		return budget.Text(name)
	}
	header := []string{"AMOUNT", "USED", "INHERITED", "ASIDE", "BUDGET"}
	if sp.Tree != "" {
		header = append(header, "TREE USED", "TREE ASIDE", "TREE BUDGET")
	}
	var rows [][]string
	for _, name := range host.AmountNames() {
		row := []string{name, sp.Used.Text(name), sp.Inherited.Text(name), sp.Held.Text(name), bound(sp.Budget, name)}
		if sp.Tree != "" {
			row = append(row, sp.TreeUsed.Text(name), sp.TreeHeld.Text(name), bound(sp.TreeBudget, name))
		}
		rows = append(rows, row)
	}
	a.data([]byte((&table{most: a.columns}).format(header, rows)))
}

// treeSpending writes what each session of a tree has used, and the sum.
func (a *app) treeSpending(ctx context.Context, h *edge.Host, all []host.Spending) error {
	var sum host.Amounts
	var rows [][]string
	row := func(uid, name string, used host.Amounts) {
		cells := []string{uid, name}
		for _, amount := range host.AmountNames() {
			cells = append(cells, used.Text(amount))
		}
		rows = append(rows, cells)
	}
	for _, sp := range all {
		s, err := h.Get(ctx, sp.Session)
		if err != nil {
			return err
		}
		sum = sum.Plus(sp.Used)
		if a.json {
			a.object(newSpendingJSON(s, sp))
			continue
		}
		row(string(sp.Session), oneLine(s.Name), sp.Used)
	}
	if a.json {
		return nil
	}
	row("all", "", sum)
	header := []string{"SESSION", "NAME"}
	for _, name := range host.AmountNames() {
		header = append(header, strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	t := table{most: a.columns, elastic: []int{1}}
	a.data([]byte(t.format(header, rows)))
	return nil
}

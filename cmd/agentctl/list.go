package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
)

type listOptions struct {
	limit     int
	token     string
	harnesses []string
	states    []string
	model     string
	parent    string
	labels    map[string]string
	sort      string
	reverse   bool
	tree      bool
	given     func(flag string) bool
}

func newListCommand(a *app) *cobra.Command {
	var opts listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List a project's sessions, newest first",
		Long: `list shows a project's sessions, newest first: uid, name, harness, state of the last
or open turn, ended turns, last seq, age, labels. It lists all of them, page by page;
with --limit it stops early and says on stderr how to go on.

--harness, --state, --model, --parent and --label leave out all others. Of several
--harness or --state one must be the session's, of several --label all. --tree puts forks
below the session they grew from, 16 levels deep, further ones beside their parents; a
session whose parent is left out stands at the left. --sort goes by name, harness and
state from A to Z, by numbers and times from high to low.`,
		Example: `  agentctl list
  agentctl list --limit 20
  agentctl list --state interrupted --state failed
  agentctl list --label team=search --label urgent
  agentctl list --sort turns --limit 3
  agentctl list --tree --harness echo
  agentctl list --project default --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.given = cmd.Flags().Changed
			return runList(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.IntVar(&opts.limit, "limit", 0, "stop after `N` sessions (default: all)")
	f.Var(text(&opts.token, ""), "page-token", "go on where a list with --limit stopped: its `TOKEN`")
	f.StringArrayVar(&opts.harnesses, "harness", nil, "only sessions of the harness `NAME`")
	f.StringArrayVar(&opts.states, "state", nil, "only sessions in `STATE`: "+strings.Join(stateWords(), ", "))
	f.Var(text(&opts.model, ""), "model", "only sessions whose own model is `M`")
	f.Var(text(&opts.parent, ""), "parent", "only forks of session `S`")
	f.Var(labelsFlag{&opts.labels, true}, "label", "only sessions with the label `KEY=VALUE`, or KEY with any value")
	f.Var(text(&opts.sort, ""), "sort", "sort by `KEY`: "+strings.Join(sortNames(), ", ")+" (default: created)")
	f.BoolVar(&opts.reverse, "reverse", false, "the other way round")
	f.BoolVar(&opts.tree, "tree", false, "show forks below their parents")
	return cmd
}

// execStates are the states that a session can be in.
func execStates() []host.ExecState {
	return []host.ExecState{
		host.ExecPending, host.ExecRunning, host.ExecInterrupted, host.ExecAwaiting,
		host.ExecCompleted, host.ExecFailed, host.ExecCanceled,
	}
}

// stateWords are the states as one types them.
func stateWords() []string {
	var words []string
	for _, s := range execStates() {
		words = append(words, strings.ToLower(string(s)))
	}
	return words
}

// ordered reports that the sessions are wanted in another order than the store's,
// which takes all of them before the first can be shown.
func (o *listOptions) ordered() bool { return o.sort != "" || o.reverse || o.tree }

// filter checks the flags and is what they choose, but for the parent.
func (o *listOptions) filter() (host.Filter, error) {
	f := host.Filter{Harnesses: o.harnesses, Model: o.model, Labels: o.labels}
	for _, name := range o.states {
		state := host.ExecState(strings.ToUpper(name))
		if !slices.Contains(execStates(), state) {
			return f, usagef("--state %q: want one of %s", name, strings.Join(stateWords(), ", "))
		}
		f.States = append(f.States, state)
	}
	_, sortable := sortKeys()[o.sort]
	switch {
	case slices.Contains(o.harnesses, ""):
		return f, usagef("--harness is empty; give it a value or leave it out")
	case o.given("limit") && o.limit < 1:
		return f, usagef("--limit is %d; want 1 or more", o.limit)
	case o.sort != "" && !sortable:
		return f, usagef("--sort %q: want one of %s", o.sort, strings.Join(sortNames(), ", "))
	case o.tree && o.limit > 0:
		return f, usagef("a tree is shown whole; leave --tree or --limit out")
	case o.token != "" && o.ordered():
		return f, usagef("pages are of sessions newest first; leave --page-token out, or --sort, --reverse and --tree")
	}
	return f, nil
}

// pageSize is how many sessions are asked for at a time.
const pageSize = 500

func runList(ctx context.Context, a *app, opts listOptions) error {
	filter, err := opts.filter()
	if err != nil {
		return err
	}
	if dir, missing := a.noData(); missing {
		if !a.json {
			a.note("no sessions: there is no data in %q yet; %s --input \"hello\" makes some", dir, a.agentctl("exec"))
		}
		return nil
	}
	return a.inquire(func(i *inquiry) error {
		l := listing{app: a, inquiry: i, opts: opts, table: table{most: a.columns, elastic: []int{7, 1, 2}}} // LABELS, NAME, HARNESS
		req := host.ListRequest{Project: a.project, Token: opts.token, Filter: filter}
		if opts.ordered() {
			err = l.inOrder(ctx, req)
		} else {
			err = l.byPages(ctx, req)
		}
		if err == nil && l.shown == 0 && !a.json {
			l.noteNone()
		}
		return err
	})
}

// listing is one run of list.
type listing struct {
	*app
	inquiry *inquiry
	opts    listOptions
	table   table
	shown   int
}

// page gives a page of the sessions that the flags choose.
func (l *listing) page(ctx context.Context, req host.ListRequest) (host.ListPage, error) {
	r, err := l.inquiry.ask(ctx, question{Op: opList, Project: l.project, Ref: l.opts.parent, List: &req})
	if err != nil {
		return host.ListPage{}, err
	}
	return *r.Page, nil
}

// byPages shows sessions as the store has them.
func (l *listing) byPages(ctx context.Context, req host.ListRequest) error {
	for {
		req.Limit = pageSize
		if l.opts.limit > 0 {
			req.Limit = min(l.opts.limit-l.shown, pageSize)
		}
		page, err := l.page(ctx, req)
		if err != nil {
			return err
		}
		rows := make([]listed, len(page.Sessions))
		for i, s := range page.Sessions {
			rows[i].Session = s
		}
		if err := l.show(rows); err != nil {
			return err
		}
		req.Token = page.Next
		switch {
		case page.Next == "":
			return nil
		case l.opts.limit > 0 && l.shown >= l.opts.limit:
			if !l.quiet {
				l.remark(noteJSON{fmt.Sprintf("there are more: %s --page-token %s", l.again(), page.Next), page.Next})
			}
			return nil
		}
	}
}

// listed is a session with its place in the tree.
type listed struct {
	host.Session
	branch string
	depth  int
}

type listedJSON struct {
	sessionJSON
	Depth int `json:"depth"`
}

// show writes a portion of the list.
func (l *listing) show(sessions []listed) error {
	header := []string{"SESSION", "NAME", "HARNESS", "STATE", "TURNS", "SEQ", "AGE", ""}
	rows := make([][]string, 0, len(sessions))
	for _, s := range sessions {
		switch {
		case l.json && l.opts.tree:
			l.object(listedJSON{newSessionJSON(s.Session), s.depth})
		case l.json:
			l.object(newSessionJSON(s.Session))
		default:
			labels := oneLine(labelsText(s.Labels))
			if labels != "" {
				header[7] = "LABELS"
			}
			rows = append(rows, []string{
				s.branch + string(s.UID), oneLine(s.Name), oneLine(s.Harness), stateText(s.Session, l.now()),
				fmt.Sprint(s.Turns), fmt.Sprint(s.Head.Seq), age(l.now().Sub(s.Created)), labels,
			})
		}
	}
	if len(rows) > 0 {
		l.data([]byte(l.table.format(header, rows)))
	}
	l.shown += len(sessions)
	return l.flush()
}

func (l *listing) noteNone() {
	switch o := l.opts; {
	case len(o.harnesses)+len(o.states)+len(o.labels) > 0 || o.model != "" || o.parent != "":
		l.note("no session of project %q is like that; %s shows all", l.project, l.agentctl("list"))
	default:
		l.note("no sessions in project %q; %s --input \"hello\" makes one", l.project, l.agentctl("exec"))
	}
}

// again is the command line of this list, without its page.
func (l *listing) again() string {
	line := fmt.Sprintf("%s --limit %d", l.agentctl("list"), l.opts.limit)
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				line += " --" + flag + " " + shellWord(v)
			}
		}
	}
	add("harness", l.opts.harnesses...)
	add("state", l.opts.states...)
	add("model", l.opts.model)
	add("parent", l.opts.parent)
	for _, key := range slices.Sorted(maps.Keys(l.opts.labels)) {
		word := key
		if value := l.opts.labels[key]; value != "" {
			word += "=" + value
		}
		add("label", word)
	}
	return line
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9._/:@%+=,-]+$`)

// shellWord is s as a shell takes it for one word.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

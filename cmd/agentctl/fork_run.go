package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// fanOutFlags are those of fork --run.
type fanOutFlags struct {
	run      []string
	inputs   string
	parallel int
	model    string
	deadline time.Duration
	key      string
	files    turnFlags
}

func (o *fanOutFlags) add(cmd *cobra.Command, a *app) {
	f := cmd.Flags()
	f.StringArrayVar(&o.run, "run", nil, "run a turn of each child on this input: `TEXT`, - for stdin, or @file")
	f.Var(text(&o.inputs, ""), "inputs", "make a child for each line of `FILE` (or - for stdin), and run its turn on that line")
	f.IntVar(&o.parallel, "parallel", 0, "run at most `P` turns at once (default: 4 for each processor)")
	f.Var(text(&o.model, ""), "model", "give the children the model `M` for calls that name none")
	f.Var(text(&o.key, ""), "key", "make the children, and run each one's turn, once for all commands with the key `K`")
	f.Var(duration(&o.deadline), "deadline", "fail a turn after this `TIME` (default 10m)")
	o.files.add(cmd, a)
}

// read gives the input of each child, nil if none is to be run. One input is that of
// all.
func (o *fanOutFlags) read(ctx context.Context, a *app, given func(string) bool) ([][]abi.Message, error) {
	switch {
	case given("run") && given("inputs"):
		return nil, usagef("--run is one input for all children, --inputs one for each; leave one of them out")
	case given("parallel") && o.parallel < 1:
		return nil, usagef("--parallel is %d; want 1 or more", o.parallel)
	}
	if err := o.files.check(o.model); err != nil {
		return nil, err
	}
	if !given("run") && !given("inputs") {
		for _, flag := range []string{"parallel", "deadline", "script", "tools", "call-timeout"} {
			if given(flag) {
				return nil, usagef("--%s is about the children's turns; give them an input with --run or --inputs", flag)
			}
		}
		return nil, nil
	}
	if given("run") {
		messages, err := a.readInputs(ctx, "--run", o.run)
		if err != nil {
			return nil, err
		}
		return [][]abi.Message{messages}, host.CheckInputs(messages)
	}
	var all []byte
	var err error
	if o.inputs == "-" {
		all, err = wait(ctx, func() ([]byte, error) { return readAll(a.stdin, maxInput) })
	} else {
		all, err = readFile(ctx, o.inputs, maxInput)
	}
	if err != nil {
		return nil, fmt.Errorf("--inputs %s: %w", o.inputs, err)
	}
	if !utf8.Valid(all) {
		return nil, usagef("--inputs %s is not UTF-8 text", o.inputs)
	}
	var inputs [][]abi.Message
	for line := range strings.Lines(string(all)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			return nil, usagef("--inputs %s: line %d is empty; each line is the input of a child", o.inputs, len(inputs)+1)
		}
		messages := []abi.Message{abi.Text(abi.RoleUser, line)}
		if err := host.CheckInputs(messages); err != nil {
			return nil, fmt.Errorf("--inputs %s: line %d: %w", o.inputs, len(inputs)+1, err)
		}
		inputs = append(inputs, messages)
	}
	switch n := len(inputs); {
	case n == 0:
		return nil, usagef("--inputs %s has no line", o.inputs)
	case n > host.MaxForkCount:
		return nil, usagef("--inputs %s has %d lines; one fork makes at most %d children", o.inputs, n, host.MaxForkCount)
	}
	return inputs, nil
}

// fanOut runs a turn of each of a fork's children.
type fanOut struct {
	*app
	host  *edge.Host
	board board

	mu   sync.Mutex
	rows []*fanRow
}

// fanRow is a child and how its turn goes.
type fanRow struct {
	session host.Session
	begun   time.Time
	doing   string // while it runs: what its newest record is
	done    bool
	end     host.Execution
	waits   []waitJSON // what it is parked for
	err     error
	output  string // the first line of the newest output
	tokens  int64
}

// runChildren runs the turns, tells how they go, and ends with a table of what came
// of them.
func (a *app) runChildren(ctx context.Context, h *edge.Host, children []host.Session, inputs [][]abi.Message, o fanOutFlags) error {
	f := &fanOut{app: a, host: h, board: board{output: a.output}}
	for _, c := range children {
		f.rows = append(f.rows, &fanRow{session: c})
	}
	parallel := o.parallel
	if parallel == 0 {
		parallel = 4 * runtime.NumCPU()
	}
	stop := f.watch()
	a.turning.Store(true)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(parallel, len(children)) {
		wg.Go(func() {
			for i := range next {
				f.turn(ctx, f.rows[i], host.ExecRequest{
					Session: children[i].UID, Inputs: inputs[i%len(inputs)], Model: o.files.model(o.model),
					Deadline: o.deadline, CallTimeout: a.callTimeout, Key: o.key,
				})
			}
		})
	}
feed:
	for i := range children {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	a.turning.Store(false)
	stop()
	return f.conclude()
}

// turn runs the turn of one child.
func (f *fanOut) turn(ctx context.Context, row *fanRow, req host.ExecRequest) {
	f.mu.Lock()
	row.begun = time.Now()
	f.mu.Unlock()
	req.Observe = func(u host.Update) {
		if u.Record == nil {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		e := u.Record.Event
		row.doing = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(e.Kind), "EVENT_"), "_", " "))
		switch {
		case e.Kind == abi.EventOutput && e.Message != nil:
			row.output = firstLine(e.Message.Text())
		case e.Usage != nil:
			row.tokens += int64(e.Usage.InputTokens + e.Usage.OutputTokens)
		}
	}
	end, err := f.host.Exec(ctx, req)
	var waits []waitJSON
	if err == nil && end.State == "" {
		waits, err = waitsOf(ctx, f.host, end.Session)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	row.done, row.end, row.waits, row.err = true, end, waits, err
	if err == nil {
		row.session = end.Session
	}
	done := 0
	for _, r := range f.rows {
		if r.done {
			done++
		}
	}
	switch {
	case f.json:
		f.object(row.json())
	case !f.board.live():
		f.note("%d of %d: %s %s", done, len(f.rows), row.name(), row.state())
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// name is what one calls the child.
func (r *fanRow) name() string {
	if r.session.Name != "" {
		return r.session.Name
	}
	return string(r.session.UID)
}

// notRun is the state of a child whose turn Ctrl-C was quicker than.
const notRun = "not run"

// state is how the turn ended, or why it did not.
func (r *fanRow) state() string {
	switch {
	case errors.Is(r.err, errInterrupted), !r.done && r.begun.IsZero():
		return notRun
	case r.err != nil:
		return "ERROR"
	case !r.done:
		return r.doing
	case r.end.State == "":
		return string(host.ExecAwaiting)
	}
	return string(r.end.State)
}

// says is what came of the turn, in a line.
func (r *fanRow) says() string {
	switch {
	case r.state() == notRun:
		return ""
	case r.err != nil:
		return r.err.Error()
	case r.done && r.end.State != abi.StateCompleted:
		return r.fault().Error()
	}
	return r.output
}

// fault is the error that the command would have ended with for this turn alone.
func (r *fanRow) fault() error {
	switch {
	case r.err != nil:
		return r.err
	case !r.done:
		return errInterrupted
	case r.end.State == "":
		return &awaitingError{session: r.session, waits: r.waits}
	case r.end.State != abi.StateCompleted:
		return &turnError{r.end}
	}
	return nil
}

// fanRowJSON is a child whose turn is over, under --json.
type fanRowJSON struct {
	sessionJSON
	Output string `json:"output,omitempty"`
	Tokens int64  `json:"tokens"`
	Error  string `json:"error,omitempty"`
}

func (r *fanRow) json() fanRowJSON {
	out := fanRowJSON{sessionJSON: newAwaitingJSON(r.session, r.waits), Output: r.output, Tokens: r.tokens}
	if err := r.fault(); err != nil && len(r.waits) == 0 {
		out.Error = err.Error()
	}
	return out
}

// conclude prints the table and gives the error that weighs most.
func (f *fanOut) conclude() error {
	var rows [][]string
	var worst error
	count := map[string]int{}
	for _, r := range f.rows {
		count[r.state()]++
		if fault := r.fault(); fault != nil && (worst == nil || weight(fault) > weight(worst)) {
			worst = fault
		}
		rows = append(rows, []string{
			oneLine(r.name()), r.state(), fmt.Sprint(r.tokens), r.session.Root.Short(), oneLine(r.says()),
		})
	}
	if !f.json {
		t := table{most: f.columns, elastic: []int{4}}
		f.data([]byte(t.format([]string{"CHILD", "STATE", "TOKENS", "ROOT", "OUTPUT"}, rows)))
	}
	if worst == nil {
		of, with := "the child", "it with another session"
		if n := len(f.rows); n > 1 {
			of, with = fmt.Sprintf("all %d children", n), "two of them"
		}
		f.note("%s completed; %s A B compares %s", of, f.inPlace("diff"), with)
		return nil
	}
	if f.json {
		return &reportedError{worst}
	}
	var texts []string
	for _, state := range slices.Sorted(maps.Keys(count)) {
		texts = append(texts, fmt.Sprintf("%d %s", count[state], state))
	}
	f.note("%s", strings.Join(texts, ", "))
	return &reportedError{worst}
}

// weight orders what can come of turns: the exit code says the worst of it.
func weight(err error) int {
	switch exitCode(err) {
	case exitAwaiting:
		return 1
	case exitInterrupted:
		return 2
	case exitTurnFailed:
		return 3
	}
	return 4
}

// watch keeps a board on the terminal, if there is one, until stop.
func (f *fanOut) watch() (stop func()) {
	if !f.board.live() {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		const often = 100 * time.Millisecond
		tick := time.NewTicker(often)
		defer tick.Stop()
		for {
			select {
			case <-end:
				f.board.show(nil)
				return
			case <-tick.C:
				f.board.show(f.lines())
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// lines are what the board shows: the turns that run, and how many are done.
func (f *fanOut) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	done := 0
	for _, r := range f.rows {
		switch {
		case r.done:
			done++
		case !r.begun.IsZero():
			out = append(out, fmt.Sprintf("%s  %4s  %s  %s", oneLine(r.name()), age(time.Since(r.begun)), r.doing, oneLine(r.output)))
		}
	}
	return append(out, fmt.Sprintf("%d of %d children done", done, len(f.rows)))
}

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrBudget: what a turn asks for next is more than the budget of its session, or
// of its fork tree, leaves. The turn ends FAILED.
var ErrBudget = errors.New("budget spent")

// overBudget says of what there is not enough.
type overBudget struct {
	amount                  int  // index into amountNames
	tree                    bool // it is the tree's budget
	want, limit, used, held int64
	what                    string // in place of the figures
}

func (e *overBudget) Error() string {
	if e.what != "" {
		return fmt.Sprintf("%v: %s", ErrBudget, e.what)
	}
	whose := "the session"
	if e.tree {
		whose = "the session and its forks"
	}
	text := func(n int64) string { return amountText(e.amount, n) }
	return fmt.Sprintf("%v: %s of %s: the limit is %s, used are %s, set aside %s, and this may take %s",
		ErrBudget, amountNames[e.amount], whose, text(e.limit), text(e.used), text(e.held), text(e.want))
}

func (e *overBudget) Unwrap() error { return ErrBudget }

// purse is what a turn spends from: its session's budget, which stands in the
// summary, and the account of the session's fork tree.
//
// What may be used is set aside first, durably with the record that announces it,
// and what was used is known later: so whatever becomes of a turn, no more is used
// than there is. Guarded by execution.mu.
type purse struct {
	budget     Amounts
	tree       abi.SessionID // whose account it is, empty if there is none
	used, held Amounts       // of the session
	owedUsed   Amounts       // what the account is not charged yet
	owedHeld   Amounts
	turn       Amounts // what is set aside for the turn as a whole
}

func newPurse(s summary) purse {
	return purse{budget: s.Budget, tree: s.Tree, used: s.Used, held: s.Held}
}

// bounded reports whether there is any budget.
func (p *purse) bounded() bool { return p.tree != "" || p.budget != Amounts{} }

// settle takes back what was set aside, and counts what was used instead.
func (p *purse) settle(aside, used Amounts) {
	p.held, p.owedHeld = p.held.plus(-1, aside), p.owedHeld.plus(-1, aside)
	p.used, p.owedUsed = p.used.plus(1, used), p.owedUsed.plus(1, used)
}

// lost counts what is set aside, and of which nobody can say any more what became,
// as used: calls that may have been made. Time and fuel of a run that is to be
// run again are not.
func (p *purse) lost() {
	used := p.held
	used.Turns, used.Fuel, used.Wall = 0, 0, 0
	p.settle(p.held, used)
	p.turn = Amounts{}
}

// reserve sets want aside, or says what the session's budget does not have.
func (p *purse) reserve(want Amounts) error {
	limit, used, held := p.budget.vector(), p.used.vector(), p.held.vector()
	for i, n := range want.vector() {
		if n > 0 && limit[i] > 0 && n > limit[i]-used[i]-held[i] {
			return &overBudget{amount: i, want: n, limit: limit[i], used: used[i], held: held[i]}
		}
	}
	p.held = p.held.plus(1, want)
	return nil
}

// unreserve is the opposite of reserve.
func (p *purse) unreserve(want Amounts) { p.held = p.held.plus(-1, want) }

// charges are what the account is to be charged with a commit that reserved want.
func (p *purse) charges(want Amounts) []journal.Charge {
	if p.tree == "" || p.owedUsed == (Amounts{}) && p.owedHeld == (Amounts{}) && want == (Amounts{}) {
		return nil
	}
	return []journal.Charge{{Account: p.tree, Used: p.owedUsed.vector(), Held: p.owedHeld.vector(), Take: want.vector()}}
}

// charged takes note that the charges of then, a copy of p, are durable.
func (p *purse) charged(then purse) {
	p.owedUsed, p.owedHeld = p.owedUsed.plus(-1, then.owedUsed), p.owedHeld.plus(-1, then.owedHeld)
}

// unbounded is what is left of an amount that has no bound.
const unbounded = math.MaxInt64

// left is what may be set aside of each amount now; of the tree's account others may
// take some meanwhile.
func (x *execution) left() (Amounts, error) {
	x.mu.Lock()
	p := x.purse
	x.mu.Unlock()
	left := make([]int64, len(amountNames))
	limit, used, held := p.budget.vector(), p.used.vector(), p.held.vector()
	for i := range left {
		left[i] = unbounded
		if limit[i] > 0 {
			left[i] = max(0, limit[i]-used[i]-held[i])
		}
	}
	if p.tree == "" {
		return amountsOf(left), nil
	}
	a, err := x.host.journal.Account(p.tree)
	if err != nil {
		return Amounts{}, err
	}
	owed := p.owedUsed.plus(1, p.owedHeld).vector()
	for i := range left {
		if a.Limit[i] > 0 {
			left[i] = min(left[i], max(0, a.Limit[i]-a.Used[i]-a.Held[i]-owed[i]))
		}
	}
	return amountsOf(left), nil
}

// treeOver says what the account of the tree does not have.
func treeOver(e *journal.SpentError) error {
	return &overBudget{amount: e.Counter, tree: true, want: e.Want, limit: e.Limit, used: e.Used, held: e.Held}
}

// spend begins the spending of a turn that is about to run: what a dead process left
// set aside is settled, and what the turn may use without asking is set aside,
// durably. It gives the wall time that the turn may take outside of calls.
func (x *execution) spend(deadline time.Duration) (time.Duration, error) {
	x.mu.Lock()
	x.purse.lost()
	x.mu.Unlock()
	if !x.bounded() {
		return deadline, nil
	}
	left, err := x.left()
	if err != nil {
		return 0, err
	}
	// One that has nothing left asks for as little as there is, to be refused.
	want := Amounts{Turns: 1, Fuel: int64(x.spec.Limits.Fuel), Wall: max(1, min(deadline, left.Wall))}
	x.mu.Lock()
	x.purse.turn = want
	x.mu.Unlock()
	if err := x.commit(commitment{reserve: want}); err != nil {
		x.mu.Lock()
		x.purse.turn = Amounts{}
		x.mu.Unlock()
		return 0, err
	}
	return want.Wall, nil
}

func (x *execution) bounded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.purse.bounded()
}

func (x *execution) settle(aside, used Amounts) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.purse.settle(aside, used)
}

// borrow takes time for a call out of what is set aside for the turn itself, where the
// budget has no other: of a short one the turn has all that there is. It takes half of
// it at most, so that something is left to go on with.
func (x *execution) borrow(need time.Duration) time.Duration {
	if need <= 0 {
		return 0
	}
	lent := x.watch.lend(need)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.purse.turn.Wall -= lent
	return lent
}

// settleCall is settle for calls that are done. What they have left of the time that
// they borrowed goes back to the turn.
func (x *execution) settleCall(aside, used Amounts) {
	c := &x.calling
	back := max(0, min(c.lent, aside.Wall-used.Wall))
	x.watch.give(back)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.purse.turn.Wall += back
	aside.Wall -= back
	x.purse.settle(aside, used)
	*c = calling{}
}

// affordable lowers limits to what the budget leaves: a turn is told what fuel it
// has. One that has none left is refused when it runs.
func (x *execution) affordable(limits abi.Limits) (abi.Limits, error) {
	if !x.bounded() {
		return limits, nil
	}
	left, err := x.left()
	if err == nil && left.Fuel > 0 {
		limits.Fuel = min(limits.Fuel, abi.Int64(left.Fuel))
	}
	return limits, err
}

// endSpending counts what the turn used as a whole: one that has ended, or is only
// left and will be run again.
func (x *execution) endSpending(fuel uint64, ended bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.purse
	var used Amounts
	if x.watch != nil {
		used.Wall = x.watch.ran()
	}
	if c := x.calling; !c.began.IsZero() {
		used.Wall += time.Since(c.began) // they are cut off
		x.calling = calling{}
	}
	if ended {
		used.Fuel = int64(fuel)
		if !p.bounded() || p.held.Turns > 0 { // else it was refused
			used.Turns = 1
		}
	}
	p.settle(p.turn, used)
	p.turn = Amounts{}
	p.lost() // calls under way
}

// DefaultMaxOutputTokens bounds the answer to a model call of a session with a budget of
// tokens or cost, where the call itself sets no bound: what it may cost must be
// known before it is made.
const DefaultMaxOutputTokens = 8192

// outputParams are the parameters in which a call bounds its answer.
var outputParams = []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}

// minCallTime is the time below which a call is not made, as no answer comes so soon.
const minCallTime = 100 * time.Millisecond

// calling is what the calls of models and tools that are under way may use.
type calling struct {
	aside  Amounts
	lent   time.Duration // of aside.Wall: what the turn had
	output int64         // the most tokens of an answer, 0 if there is no bound
	tools  int           // calls of tools
	began  time.Time     // zero if none is under way
	free   bool          // the model call has failed and cost nothing
}

// aside is what must be set aside, beside what the turn has already, for what ready
// asks for.
func (x *execution) aside(ready turn.Ready) (Amounts, error) {
	if ready.Effect == nil && len(ready.Tools) == 0 {
		return Amounts{}, nil
	}
	x.calling = calling{began: time.Now(), tools: len(ready.Tools)}
	if !x.bounded() {
		return Amounts{}, nil
	}
	left, err := x.left()
	if err != nil {
		return Amounts{}, err
	}
	c := &x.calling
	c.lent = x.borrow(x.calls - left.Wall)
	// With less than is of use it asks for that, to be refused.
	c.aside = Amounts{ToolCalls: int64(c.tools), Wall: max(min(x.calls, minCallTime), min(x.calls, left.Wall)+c.lent)}
	if ready.Effect != nil {
		err = x.mayTake(ready.Effect.Call, left)
	}
	want := c.aside
	want.Wall -= c.lent
	return want, err
}

// callTime is how long each of the calls may take.
func (x *execution) callTime() time.Duration {
	return cmp.Or(x.calling.aside.Wall, x.calls)
}

// toolDone counts one call of a tool, and with the last one the time of all.
func (x *execution) toolDone() {
	c := &x.calling
	c.tools--
	one := Amounts{ToolCalls: min(1, c.aside.ToolCalls)}
	x.settle(one, Amounts{ToolCalls: 1})
	if c.tools == 0 {
		x.settleCall(Amounts{Wall: c.aside.Wall}, Amounts{Wall: time.Since(c.began)})
	}
}

// mayTake finds what a model call may take at most.
func (x *execution) mayTake(call abi.ModelCall, left Amounts) error {
	c := &x.calling
	c.aside.ModelCalls = 1
	if left.Tokens == unbounded && left.Cost == unbounded {
		return nil
	}
	request, err := json.Marshal(call)
	if err != nil {
		return err
	}
	input := int64(len(request)) + unwritten(call)
	c.output = DefaultMaxOutputTokens
	for _, name := range outputParams {
		if n, err := strconv.ParseInt(call.Params[name], 10, 64); err == nil && n > 0 {
			c.output = n
		}
	}
	c.output = min(c.output, left.Tokens-input)
	price, ok := x.host.price(call.Model)
	if left.Cost != unbounded {
		if !ok {
			return &overBudget{what: fmt.Sprintf("it is one of cost, and model %q has no price here", call.Model)}
		}
		c.output = min(c.output, price.affordable(left.Cost-price.Cost(input, 0)))
	}
	// One that cannot pay for an answer asks for a token, to be refused.
	c.output = max(1, c.output)
	c.aside.Tokens, c.aside.Cost = saturate(input, c.output), price.Cost(input, c.output)
	return nil
}

// A request takes at most a token for each byte, as no tokenizer makes more of one, and
// what is not written in it: a picture counts by its size, and what an API tells its
// model of how to call tools counts too.
const (
	fileTokens = 2000
	toolTokens = 500
)

func unwritten(call abi.ModelCall) (tokens int64) {
	var count func([]abi.Part)
	count = func(parts []abi.Part) {
		for _, p := range parts {
			switch {
			case p.File != nil:
				tokens += fileTokens
			case p.ToolResult != nil:
				count(p.ToolResult.Content)
			}
		}
	}
	for _, m := range call.Messages {
		count(m.Parts)
	}
	if len(call.Tools) > 0 {
		tokens += toolTokens
	}
	return tokens
}

func (h *Host) price(model string) (Price, bool) {
	if h.cfg.Prices == nil {
		return Price{}, false
	}
	return h.cfg.Prices(model)
}

// took is what a model call has used. What nobody knows counts as all that was set
// aside for it.
func (x *execution) took(e *turn.Effect, a turn.Answer) Amounts {
	aside := x.calling.aside
	used := Amounts{ModelCalls: 1, Wall: time.Since(x.calling.began)}
	switch u := a.Usage; {
	case u != nil:
		used.Tokens = saturate(max(0, int64(u.InputTokens)), max(0, int64(u.OutputTokens)))
		if price, ok := x.host.price(e.Call.Model); ok {
			used.Cost = price.Cost(int64(u.InputTokens), int64(u.OutputTokens))
		}
	case !x.calling.free:
		used.Tokens, used.Cost = aside.Tokens, aside.Cost
	}
	return used
}

// notAgainError ends a model call that cannot be made once more.
type notAgainError struct{ error }

// anew gives what a provider asks before it makes an attempt after one that may have
// been paid for: that one counts as all that was set aside, and as much is set aside
// once more. It is nil where there is no budget of what an answer costs.
func (x *execution) anew() func() error {
	aside := Amounts{Tokens: x.calling.aside.Tokens, Cost: x.calling.aside.Cost}
	if aside == (Amounts{}) {
		return nil
	}
	return func() error {
		x.settle(aside, aside)
		if err := x.commit(commitment{reserve: aside}); err != nil {
			return &notAgainError{err}
		}
		return nil
	}
}

// Spending is what a session has used, and may.
type Spending struct {
	Session abi.SessionID
	// Used is what the session used itself, Inherited what the session that it was
	// forked from had used by then, which counts against Budget too. Held is set
	// aside for what is under way.
	Used, Inherited, Held Amounts
	// Budget is that of the session, and of each fork of it alone.
	Budget Amounts
	// Tree is the session whose account this one and its relatives share, empty if
	// there is none; the others are that account.
	Tree                           abi.SessionID
	TreeBudget, TreeUsed, TreeHeld Amounts
}

// Spending tells what a session has used. It reads no record.
func (h *Host) Spending(ctx context.Context, uid abi.SessionID) (Spending, error) {
	r, err := h.row(uid)
	if err != nil {
		return Spending{}, fmt.Errorf("spending: %w", err)
	}
	return h.spending(r)
}

func (h *Host) spending(r row) (Spending, error) {
	s := Spending{
		Session: r.UID, Used: r.sum.Used.plus(-1, r.sum.Inherited), Inherited: r.sum.Inherited, Held: r.sum.Held,
		Budget: r.sum.Budget, Tree: r.sum.Tree,
	}
	if s.Tree == "" {
		return s, nil
	}
	a, err := h.journal.Account(s.Tree)
	if err != nil {
		return s, fmt.Errorf("spending of session %s: %w", r.UID, err)
	}
	s.TreeBudget, s.TreeUsed, s.TreeHeld = amountsOf(a.Limit), amountsOf(a.Used), amountsOf(a.Held)
	return s, nil
}

// TreeSpending tells what all sessions of a fork tree have used that are there, by
// uid: those that share their oldest ancestor with the named one.
func (h *Host) TreeSpending(ctx context.Context, uid abi.SessionID) ([]Spending, error) {
	if _, err := h.row(uid); err != nil {
		return nil, fmt.Errorf("spending: %w", err)
	}
	parents := map[abi.SessionID]abi.SessionID{}
	var rows []row
	for s, err := range h.journal.Sessions() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("spending: %w", err)
		}
		parents[s.UID] = s.Parent
		if s.IsDeleted() {
			continue
		}
		r, err := decodeRow(s)
		if err != nil {
			return nil, fmt.Errorf("spending: %w", err)
		}
		rows = append(rows, r)
	}
	root := func(uid abi.SessionID) abi.SessionID {
		for range len(parents) {
			if parents[uid] == "" {
				break
			}
			uid = parents[uid]
		}
		return uid
	}
	var out []Spending
	for _, r := range rows {
		if root(r.UID) != root(uid) {
			continue
		}
		s, err := h.spending(r)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// SetBudget gives a session another budget, and with tree the session and its forks
// together: the account that they have already, or one for it and the forks that it
// has from now on. What was used counts as before. It is ErrBusy while a turn
// runs.
func (h *Host) SetBudget(ctx context.Context, uid abi.SessionID, budget, tree *Amounts) (Spending, error) {
	s, err := h.setBudget(ctx, uid, budget, tree)
	if err != nil {
		return Spending{}, fmt.Errorf("set budget: session %s: %w", uid, err)
	}
	return s, nil
}

func (h *Host) setBudget(ctx context.Context, uid abi.SessionID, budget, tree *Amounts) (Spending, error) {
	for _, b := range []*Amounts{budget, tree} {
		if b != nil {
			if err := checkBudget(*b); err != nil {
				return Spending{}, err
			}
		}
	}
	o, err := h.outside(ctx, uid)
	if err != nil {
		return Spending{}, err
	}
	defer o.done()
	sum := o.r.sum
	if budget != nil {
		sum.Budget = *budget
	}
	if tree != nil {
		sum.Tree = cmp.Or(sum.Tree, uid)
		if err := h.journal.SetAccount(ctx, sum.Tree, tree.vector()); err != nil {
			return Spending{}, err
		}
	}
	_, err = h.journal.Append(ctx, uid, journal.Append{Head: o.r.Head, Fence: o.r.Head.Fence + 1, Summary: mustJSON(sum)})
	if err != nil {
		return Spending{}, asConflict(err)
	}
	return h.Spending(ctx, uid)
}

func checkBudget(b Amounts) error {
	for i, n := range b.vector() {
		if n < 0 {
			return fmt.Errorf("%w: a budget of %s below zero", ErrInvalid, amountNames[i])
		}
	}
	return nil
}

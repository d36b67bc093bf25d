package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// meta is what the host keeps of a session for ever.
type meta struct {
	pin
	Runtime     string            `json:"runtime"`
	HoldsMemory bool              `json:"holds_memory,omitempty"`
	Model       string            `json:"model,omitempty"`
	Config      []byte            `json:"config,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Grants      []string          `json:"grants,omitempty"`
	Limits      abi.Limits        `json:"limits,omitzero"`
	Deadline    time.Duration     `json:"deadline,omitempty"` // in nanoseconds, like the next
	CallTimeout time.Duration     `json:"call_timeout,omitempty"`
	Retention   Retention         `json:"retention,omitzero"`
	Again       *again            `json:"again,omitempty"`
}

// summary is what the host keeps beside a session's head, so that nothing need
// read the record to know where the session stands.
type summary struct {
	Updated    abi.Time        `json:"updated"`
	Turns      int64           `json:"turns,omitempty"`
	ModelCalls int64           `json:"model_calls,omitempty"`
	State      abi.EndState    `json:"state,omitempty"`
	Reason     abi.EndReason   `json:"reason,omitempty"`
	Execution  abi.ExecutionID `json:"execution,omitempty"`
	Closed     abi.Seq         `json:"closed,omitempty"`    // newest END or FORK
	Root       abi.Digest      `json:"root,omitzero"`       // image of the last completed turn
	Open       abi.Seq         `json:"open,omitempty"`      // EXECUTION_START of the open turn
	Forked     abi.Seq         `json:"forked,omitempty"`    // FORK that no completed turn has followed yet
	Waiting    []Waiting       `json:"waiting,omitempty"`   // what the open turn is parked for
	Suspended  bool            `json:"suspended,omitempty"` // by a person, and nothing has run since
	Upgraded   *upgraded       `json:"upgraded,omitempty"`

	// What the session used, with what it inherited, what is set aside for its open
	// turn, and what it may: see Spending.
	Used      Amounts       `json:"used,omitzero"`
	Inherited Amounts       `json:"inherited,omitzero"`
	Held      Amounts       `json:"held,omitzero"`
	Budget    Amounts       `json:"budget,omitzero"`
	Tree      abi.SessionID `json:"tree,omitempty"`
}

// row is a session as stored, decoded. The pin in meta is that of the next turn,
// which upgrades change; made is the one that is stored there.
type row struct {
	journal.Session
	meta meta
	made pin
	sum  summary
}

func decodeRow(s journal.Session) (row, error) {
	r := row{Session: s}
	if err := json.Unmarshal(s.Meta, &r.meta); err != nil {
		return row{}, fmt.Errorf("session %s: metadata: %w", s.UID, err)
	}
	var err error
	r.sum, err = decodeSummary(s)
	r.made = r.meta.pin
	r.meta.pin = r.pinned(r.sum.Upgraded)
	return r, err
}

func decodeSummary(s journal.Session) (sum summary, err error) {
	if err := json.Unmarshal(s.Summary, &sum); err != nil {
		return summary{}, fmt.Errorf("session %s: summary: %w", s.UID, err)
	}
	return sum, nil
}

// row reads a session; one that is unknown, or was deleted, is ErrNotFound.
func (h *Host) row(uid abi.SessionID) (row, error) {
	r, err := h.stored(uid)
	if err != nil {
		return row{}, fmt.Errorf("session %q: %w", uid, err)
	}
	return r, nil
}

// stored is row for who names the session in any case.
func (h *Host) stored(uid abi.SessionID) (row, error) {
	s, err := h.journal.Session(uid)
	switch {
	case errors.Is(err, journal.ErrNotFound):
		return row{}, ErrNotFound
	case err != nil:
		return row{}, err
	case s.IsDeleted():
		return row{}, errDeleted
	}
	return decodeRow(s)
}

// errDeleted is why a session that was deleted is not found.
var errDeleted = fmt.Errorf("%w: it was deleted", ErrNotFound)

func wasDeleted(uid abi.SessionID) error {
	return fmt.Errorf("session %q: %w", uid, errDeleted)
}

// show is the session as callers see it. Whether a turn runs is asked of this
// host, never of the store: no ghost of a dead process is ever RUNNING.
func (h *Host) show(r row) Session {
	return h.state(r, h.claimed(r.UID) != nil)
}

func (h *Host) state(r row, running bool) Session {
	s := Session{
		UID: r.UID, Project: r.Project, Name: r.Name,
		Harness: r.meta.Harness, Module: r.meta.Module, Runtime: r.meta.Runtime,
		HoldsMemory: r.meta.HoldsMemory, Model: r.meta.Model, Config: r.meta.Config,
		Labels: r.meta.Labels, Grants: r.meta.Grants, Limits: r.meta.Limits,
		Deadline: r.meta.Deadline, CallTimeout: r.meta.CallTimeout, Retention: r.meta.Retention,
		Created: r.Created, Updated: r.sum.Updated.Time,
		Parent: r.Parent, ForkSeq: r.At,
		Reason: r.sum.Reason, Execution: r.sum.Execution, Turns: r.sum.Turns,
		Head: r.Head, Closed: r.sum.Closed, Root: r.sum.Root, Waiting: r.sum.Waiting,
		Suspended: r.sum.Suspended, Compute: h.compute(r, running),
	}
	switch {
	case running:
		s.State = ExecRunning
	case parked(r.sum.Waiting, h.cfg.Now()):
		s.State = ExecAwaiting
	case r.sum.Open != 0:
		s.State = ExecInterrupted
	case r.sum.State == "":
		s.State = ExecPending
	default:
		s.State = ExecState(r.sum.State)
	}
	return s
}

func (h *Host) compute(r row, running bool) ComputeState {
	switch {
	case r.IsDeleted():
		return ComputeTerminated
	case running:
		return ComputeLive
	case r.Head.Seq == 0:
		return ComputeNone
	case r.sum.Open == 0 && h.warm.has(warmKey{r.meta.Module, r.sum.Root}):
		return ComputeWarm
	}
	return ComputeCold
}

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)

// checkName refuses names that are hard to type, look like a uid, or would pass
// for a path.
func checkName(what, name string) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("%w: %s %q: use 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit", ErrInvalid, what, name)
	}
	if strings.HasPrefix(name, "sess-") {
		return fmt.Errorf("%w: %s %q: the prefix sess- is kept for uids", ErrInvalid, what, name)
	}
	return nil
}

// Create makes a session pinned to the harness's module, which it stores. It
// loads the module first, so that what no runtime can honour is refused with
// nothing written (P1): ErrPlacement, or runtimes.ErrModule for what is no harness.
// A name that is taken is ErrExists; the rest of a request that cannot be is
// ErrInvalid, a model that this host does not have ErrNotFound. The first record is
// committed with the first turn.
func (h *Host) Create(ctx context.Context, req CreateRequest) (Session, error) {
	s, err := h.create(ctx, req)
	if err != nil {
		return Session{}, fmt.Errorf("create session: %w", err)
	}
	return s, nil
}

func (h *Host) create(ctx context.Context, req CreateRequest) (Session, error) {
	defer h.journal.Hold()() // from Collect
	if req.Project == "" {
		req.Project = DefaultProject
	}
	if err := checkName("project", req.Project); err != nil {
		return Session{}, err
	}
	if req.Name != "" {
		if err := checkName("name", req.Name); err != nil {
			return Session{}, err
		}
	}
	if err := errors.Join(checkConfig(req.Config), checkLabels(req.Labels), checkGrants(req.Grants), h.checkLimits(req.Limits), checkTimes(req.Deadline, req.CallTimeout), checkRetention(req.Retention), checkBudget(req.Budget), checkBudget(req.TreeBudget)); err != nil {
		return Session{}, err
	}
	if req.Model != "" {
		if err := h.knowsModel(req.Model); err != nil {
			return Session{}, err
		}
	}
	code := req.Harness.Module()
	mod, err := h.module(ctx, code, "")
	if err == nil {
		err = h.checkMemory(mod, req.Limits)
	}
	if err != nil {
		return Session{}, err
	}
	if err := h.storeModule(ctx, code); err != nil {
		return Session{}, err
	}
	m := meta{
		pin: pin{Harness: req.Harness.Name, Module: code.Digest}, Runtime: mod.runtime.Capabilities().Runtime,
		HoldsMemory: mod.desc.Harness.HoldsMemory(), Model: req.Model, Config: req.Config, Labels: req.Labels, Grants: req.Grants, Limits: req.Limits,
		Deadline: req.Deadline, CallTimeout: req.CallTimeout, Retention: req.Retention,
	}
	if mod.golden != nil {
		m.GoldenRoot = mod.golden.Root()
	}
	now := abi.NewTime(h.cfg.Now())
	uid, err := h.newSessionID()
	if err != nil {
		return Session{}, err
	}
	sum := summary{Updated: now, Root: m.GoldenRoot, Budget: req.Budget}
	create := h.journal.Create
	if req.TreeBudget != (Amounts{}) {
		sum.Tree = uid
		create = func(ctx context.Context, s journal.Session) (journal.Session, error) {
			return h.journal.CreateWithAccount(ctx, s, req.TreeBudget.vector())
		}
	}
	stored, err := create(ctx, journal.Session{
		UID: uid, Project: req.Project, Name: req.Name, Created: now.Time, Meta: mustJSON(m), Summary: mustJSON(sum),
	})
	if errors.Is(err, journal.ErrExists) {
		return Session{}, fmt.Errorf("name %q in project %q: %w", req.Name, req.Project, ErrExists)
	}
	if err != nil {
		return Session{}, err
	}
	r, err := decodeRow(stored)
	if err != nil {
		return Session{}, err
	}
	h.log.Info("session created", "session", uid, "harness", m.Harness, "module", m.Module.Short())
	return h.show(r), nil
}

// maxConfigBytes bounds a turn's config.
const maxConfigBytes = 1 << 20

func checkConfig(config []byte) error {
	if len(config) > maxConfigBytes {
		return fmt.Errorf("%w: the config has %d bytes, at most %d are taken", ErrInvalid, len(config), maxConfigBytes)
	}
	return nil
}

// What labels may be.
const (
	maxLabels     = 64
	maxLabelBytes = 253 // of a key, and of a value
)

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w: %d labels: a session takes at most %d", ErrInvalid, len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch value := labels[key]; {
		case key == "" || strings.ContainsAny(key, "= \t\n,"):
			return fmt.Errorf("%w: label %q: a key is not empty and has no space, '=' or ','", ErrInvalid, key)
		case !utf8.ValidString(key) || !utf8.ValidString(value):
			return fmt.Errorf("%w: label %q: not UTF-8", ErrInvalid, key)
		case len(key) > maxLabelBytes || len(value) > maxLabelBytes:
			return fmt.Errorf("%w: label %.40q: keys and values have at most %d bytes", ErrInvalid, key, maxLabelBytes)
		}
	}
	return nil
}

// checkLimits refuses limits that no turn of this host is given.
func (h *Host) checkLimits(l abi.Limits) error {
	most := h.cfg.Limits
	for _, f := range []struct {
		name       string
		want, most int64
	}{
		{"depth", int64(l.Depth), int64(most.Depth)},
		{"effects", int64(l.Effects), int64(most.Effects)},
		{"fuel", int64(l.Fuel), int64(most.Fuel)},
		{"memory_bytes", int64(l.MemoryBytes), int64(most.MemoryBytes)},
		{"output_bytes", int64(l.OutputBytes), int64(most.OutputBytes)},
		{"request_bytes", int64(l.RequestBytes), int64(most.RequestBytes)},
	} {
		if f.want < 0 || f.want > f.most {
			return fmt.Errorf("%w: limit %s %d: this host gives 1 to %d", ErrInvalid, f.name, f.want, f.most)
		}
	}
	return nil
}

func checkTimes(deadline, call time.Duration) error {
	if deadline < 0 || call < 0 {
		return fmt.Errorf("%w: deadline %s, call time-out %s", ErrInvalid, deadline, call)
	}
	return nil
}

// limits are those of a turn of the session: its own where it has some, but never
// more than this host gives.
func (h *Host) limits(m meta) abi.Limits {
	l, most := m.Limits, h.cfg.Limits
	l.Depth = smaller(l.Depth, most.Depth)
	l.Effects = smaller(l.Effects, most.Effects)
	l.Fuel = smaller(l.Fuel, most.Fuel)
	l.MemoryBytes = smaller(l.MemoryBytes, most.MemoryBytes)
	l.OutputBytes = smaller(l.OutputBytes, most.OutputBytes)
	l.RequestBytes = smaller(l.RequestBytes, most.RequestBytes)
	return l
}

// smaller is own, or most where own is above it or no bound.
func smaller[T ~int32 | ~int64](own, most T) T {
	if own <= 0 { // below only in what was imported
		return most
	}
	return min(own, most)
}

// mustJSON encodes the host's own plain structs, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (h *Host) random(b []byte) error {
	if _, err := io.ReadFull(h.cfg.Random, b); err != nil {
		return fmt.Errorf("random source: %w", err)
	}
	return nil
}

func (h *Host) newSessionID() (abi.SessionID, error) {
	var b [12]byte
	err := h.random(b[:])
	return abi.NewSessionID(b), err
}

// Get tells what is known of a session. One that never was, or was deleted, is
// ErrNotFound.
func (h *Host) Get(ctx context.Context, uid abi.SessionID) (Session, error) {
	r, err := h.row(uid)
	if err != nil {
		return Session{}, err
	}
	return h.show(r), nil
}

// Resolve finds the session that ref names: a uid, a name in the project, or a
// prefix of a uid that only one session has (with or without "sess-"). ErrNotFound
// says which is near, ErrAmbiguous which they are.
func (h *Host) Resolve(ctx context.Context, project, ref string) (abi.SessionID, error) {
	if project == "" {
		project = DefaultProject
	}
	if ref == "" {
		return "", fmt.Errorf("%w: empty session name", ErrInvalid)
	}
	if s, err := h.journal.Session(abi.SessionID(ref)); err == nil && s.IsDeleted() {
		return "", wasDeleted(s.UID)
	} else if err == nil {
		return s.UID, nil
	} else if !errors.Is(err, journal.ErrNotFound) {
		return "", err
	}
	if uid, err := h.journal.FindName(project, ref); err == nil {
		return uid, nil
	} else if !errors.Is(err, journal.ErrNotFound) {
		return "", err
	}
	prefix := ref
	if !strings.HasPrefix(prefix, "sess-") {
		prefix = "sess-" + prefix
	}
	const show = 5
	uids, err := h.journal.FindPrefix(prefix, show)
	switch {
	case err != nil:
		return "", err
	case len(uids) == 1:
		return uids[0], nil
	case len(uids) > 1:
		return "", fmt.Errorf("%w: %q begins the uid of %s: give more digits", ErrAmbiguous, ref, joinIDs(uids))
	}
	return "", h.unknownSession(project, ref)
}

func joinIDs(uids []abi.SessionID) string {
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = string(uid)
	}
	return strings.Join(texts, ", ")
}

// unknownSession is ErrNotFound with the nearest names of the project's newest
// sessions.
func (h *Host) unknownSession(project, ref string) error {
	page, err := h.journal.List(project, "", 200)
	if err != nil {
		return err
	}
	type near struct {
		text     string
		distance int
	}
	var nearest []near
	for _, s := range page.Sessions {
		text := s.Name
		if text == "" {
			text = string(s.UID)
		}
		if d := distance(ref, text); d <= max(2, len(ref)/3) {
			nearest = append(nearest, near{text, d})
		}
	}
	slices.SortStableFunc(nearest, func(a, b near) int { return a.distance - b.distance })
	var hint string
	switch {
	case len(nearest) > 0:
		var texts []string
		for _, n := range nearest[:min(3, len(nearest))] {
			texts = append(texts, fmt.Sprintf("%q", n.text))
		}
		hint = ": did you mean " + strings.Join(texts, ", ") + "?"
	case len(page.Sessions) == 0:
		hint = ", which has no sessions yet"
	}
	return fmt.Errorf("session %q: %w in project %q%s", ref, ErrNotFound, project, hint)
}

// distance is the Levenshtein distance of two short texts.
func distance(a, b string) int {
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		diagonal := last[0]
		last[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = last[j+1]
			last[j+1] = min(cost, last[j]+1, last[j+1]+1)
		}
	}
	return last[len(b)]
}

// knowsModel refuses a model without provider, naming those there are.
func (h *Host) knowsModel(name string) error {
	if h.cfg.provider(name) != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(h.cfg.Models))
	if h.cfg.Routes != nil {
		names = append(names, h.cfg.Routes.Names()...)
	}
	return fmt.Errorf("model %q: %w: this host has %s", name, ErrNotFound, strings.Join(names, ", "))
}

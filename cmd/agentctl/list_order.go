package main

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ref is what an order needs of a session. All refs of a project are held in
// memory, sessions only a portion at a time.
type ref struct {
	uid, parent abi.SessionID
	text        string
	number      int64
}

// sortKeys are what sessions can be sorted by. A key sets a ref's text, which
// sorts upwards, or its number, which sorts downwards.
func sortKeys() map[string]func(host.Session, *ref) {
	return map[string]func(host.Session, *ref){
		"created": func(s host.Session, r *ref) { r.number = s.Created.UnixMicro() },
		"updated": func(s host.Session, r *ref) { r.number = s.Updated.UnixMicro() },
		"turns":   func(s host.Session, r *ref) { r.number = s.Turns },
		"seq":     func(s host.Session, r *ref) { r.number = int64(s.Head.Seq) },
		"name":    func(s host.Session, r *ref) { r.text = s.Name },
		"harness": func(s host.Session, r *ref) { r.text = s.Harness },
		"state":   func(s host.Session, r *ref) { r.text = string(s.State) },
	}
}

func sortNames() []string { return slices.Sorted(maps.Keys(sortKeys())) }

// inOrder shows sessions sorted, or as a tree.
func (l *listing) inOrder(ctx context.Context, req host.ListRequest) error {
	refs, err := l.refs(ctx, req)
	if err != nil {
		return err
	}
	all := len(refs)
	if l.opts.limit > 0 && l.opts.limit < all {
		refs = refs[:l.opts.limit]
	}
	places := flat(refs)
	if l.opts.tree {
		places = tree(refs)
	}
	portion := make([]listed, 0, pageSize)
	for p := range places {
		if portion = append(portion, p); len(portion) < pageSize {
			continue
		}
		if err := l.showPlaces(ctx, portion); err != nil {
			return err
		}
		portion = portion[:0]
	}
	if err := l.showPlaces(ctx, portion); err != nil {
		return err
	}
	if left := all - len(refs); left > 0 {
		l.note("%d more are not shown; a larger --limit shows them", left)
	}
	return nil
}

// showPlaces shows a portion of the list of which only places and uids are known
// yet.
func (l *listing) showPlaces(ctx context.Context, places []listed) error {
	uids := make([]abi.SessionID, len(places))
	for i, p := range places {
		uids[i] = p.UID
	}
	r, err := l.inquiry.ask(ctx, question{Op: opSessions, Sessions: uids})
	if err != nil {
		return err
	}
	there := make(map[abi.SessionID]host.Session, len(places))
	for _, s := range r.Page.Sessions {
		there[s.UID] = s
	}
	shown := places[:0]
	for _, p := range places {
		if s, ok := there[p.UID]; ok {
			p.Session = s
			shown = append(shown, p)
		}
	}
	return l.show(shown)
}

// refs gives what the order needs of all sessions, sorted.
func (l *listing) refs(ctx context.Context, req host.ListRequest) ([]ref, error) {
	key := func(host.Session, *ref) {}
	if l.opts.sort != "" {
		key = sortKeys()[l.opts.sort]
	}
	var refs []ref
	for req.Limit = pageSize; ; {
		page, err := l.page(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sessions {
			r := ref{uid: s.UID, parent: s.Parent}
			key(s, &r)
			refs = append(refs, r)
		}
		if req.Token = page.Next; req.Token == "" {
			break
		}
	}
	slices.SortStableFunc(refs, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(b.number, a.number))
	})
	if l.opts.reverse {
		slices.Reverse(refs)
	}
	return refs, nil
}

func flat(refs []ref) iter.Seq[listed] {
	return func(yield func(listed) bool) {
		for _, r := range refs {
			if !yield(listed{Session: host.Session{UID: r.uid}}) {
				return
			}
		}
	}
}

// maxIndent is the depth below which a tree goes no further to the right: a
// session that is forked after each turn makes a tree as deep as it is long.
const maxIndent = 16

// tree puts refs below their parents. Those whose parent is not among them, or
// not known, are roots. Siblings keep their order.
func tree(refs []ref) iter.Seq[listed] {
	known := make(map[abi.SessionID]bool, len(refs))
	for _, r := range refs {
		known[r.uid] = true
	}
	children := map[abi.SessionID][]abi.SessionID{}
	for _, r := range refs {
		parent := r.parent
		if !known[parent] {
			parent = "" // no uid
		}
		children[parent] = append(children[parent], r.uid)
	}
	return func(yield func(listed) bool) {
		for _, root := range children[""] {
			if !yield(listed{Session: host.Session{UID: root}}) || !below(children, root, "", 1, yield) {
				return
			}
		}
	}
}

// below yields all that grew from parent, and reports whether to go on.
func below(children map[abi.SessionID][]abi.SessionID, parent abi.SessionID, indent string, depth int, yield func(listed) bool) bool {
	for i, child := range children[parent] {
		branch, next := "├─ ", indent+"│  "
		if i == len(children[parent])-1 {
			branch, next = "└─ ", indent+"   "
		}
		if depth >= maxIndent {
			next = indent
		}
		if !yield(listed{host.Session{UID: child}, indent + branch, depth}) || !below(children, child, next, depth+1, yield) {
			return false
		}
	}
	return true
}

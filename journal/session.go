package journal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Create stores a session without records: s but for its Head, Parent and At,
// which are zero. Created is truncated to what a record can hold. It returns
// what it stored, durable, or wraps ErrExists if the uid, or the name in the
// project, is taken.
func (j *Journal) Create(ctx context.Context, s Session) (Session, error) {
	return j.create(ctx, s, nil)
}

// CreateWithAccount is Create, and makes the session's account with these limits in
// the same commit.
func (j *Journal) CreateWithAccount(ctx context.Context, s Session, limit []int64) (Session, error) {
	return j.create(ctx, s, &Account{Limit: slices.Clone(limit)})
}

func (j *Journal) create(ctx context.Context, s Session, account *Account) (Session, error) {
	s.Created = abi.NewTime(s.Created).Time
	s.Parent, s.At, s.Head = "", 0, Head{}
	err := s.check()
	size := s.rowsSize(nil)
	if account != nil {
		err = errors.Join(err, checkLimit(account.Limit))
		size += entryOverhead + maxUID + accountSize
	}
	if err == nil {
		err = j.writer.do(ctx, &job{size: size, stage: func(st *stage) error {
			err := st.create(nil, s)
			if err == nil && account != nil {
				st.setAccount(s.UID, *account)
			}
			return err
		}})
	}
	if err != nil {
		return Session{}, fmt.Errorf("create session %q: %w", s.UID, err)
	}
	s.Meta, s.Summary = append([]byte(nil), s.Meta...), append([]byte(nil), s.Summary...)
	return s, nil
}

func (s *Session) check() error {
	return errors.Join(checkUID(s.UID), checkName("project", s.Project), checkName("name", s.Name))
}

// rowsSize bounds the size of what create puts.
func (s *Session) rowsSize(segs []segment) int {
	const rows = 4
	n := rows*(entryOverhead+len(s.UID)) + 3*len(s.Project) + 2*len(s.Name) + 2*len(s.Meta) + len(s.Parent) + 64
	for _, g := range segs {
		n += len(g.uid) + 12
	}
	return n + headRowSize(s.UID, s.Summary)
}

// create puts the rows of new sessions, whose ancestors' records are segs, or
// refuses them all.
func (st *stage) create(segs []segment, sessions ...Session) error {
	rows := make([]Entry, 0, 3*len(sessions))
	fresh := make(map[string]bool, 2*len(sessions))
	for i := range sessions {
		s := &sessions[i]
		for _, e := range s.rows(segs) {
			rows = append(rows, e)
			if e.Key[0] == kindCreated {
				continue // there if, and only if, the session is
			}
			free, err := st.absent(e.Key)
			if err != nil {
				return err
			}
			if !free || fresh[string(e.Key)] {
				return s.taken(e.Key[0])
			}
			fresh[string(e.Key)] = true
		}
	}
	for _, e := range rows {
		if fresh[string(e.Key)] {
			st.add(e)
		} else {
			st.batch.Put(e)
		}
	}
	for _, s := range sessions {
		st.heads[s.UID] = s.Head
		st.batch.Put(Entry{headKey(s.UID), encodeHead(s.Head, s.Summary)})
	}
	return nil
}

// rows are the entries of a session that never change.
func (s *Session) rows(segs []segment) []Entry {
	rows := []Entry{
		{metaKey(s.UID), encodeMeta(*s, segs)},
		{createdKey(s.Project, s.Created, s.UID), nil},
	}
	if s.Name != "" {
		rows = append(rows, Entry{nameKey(s.Project, s.Name), []byte(s.UID)})
	}
	return rows
}

// taken is the error for a session one of whose keys, of this kind, exists.
func (s *Session) taken(kind byte) error {
	if kind == kindName {
		return fmt.Errorf("%w: the name %q in project %q", ErrExists, s.Name, s.Project)
	}
	return fmt.Errorf("%w: session %q", ErrExists, s.UID)
}

// Session reads a session's metadata and head. A deleted session, as long as
// Collect leaves something of it, is marked as such. It wraps ErrNotFound.
func (j *Journal) Session(uid abi.SessionID) (Session, error) {
	view := j.view()
	defer view.Close()
	s, _, err := session(view, uid)
	return s, err
}

func session(view View, uid abi.SessionID) (Session, []segment, error) {
	s, segs, err := undeleted(view, uid)
	if err != nil {
		return s, segs, err
	}
	deleted, err := view.Get(deletedKey(uid))
	switch {
	case errors.Is(err, ErrNotFound):
		return s, segs, nil
	case err != nil:
		return s, segs, fmt.Errorf("session %q: %w", uid, err)
	}
	return s, segs, decodeDeleted(&s, deleted)
}

// undeleted reads a session that is known not to be deleted.
func undeleted(view View, uid abi.SessionID) (Session, []segment, error) {
	row, err := view.Get(metaKey(uid))
	if err != nil {
		return Session{}, nil, fmt.Errorf("session %q: %w", uid, err)
	}
	s, segs, err := decodeMeta(uid, row)
	if err != nil {
		return Session{}, nil, err
	}
	head, err := view.Get(headKey(uid))
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: its head is missing", ErrCorrupt)
	}
	if err != nil {
		return Session{}, nil, fmt.Errorf("session %q: %w", uid, err)
	}
	s.Head, s.Summary, err = decodeHead(uid, head)
	return s, segs, err
}

// Sessions walks all sessions of all projects, by uid, as they are when the walk
// begins. One that cannot be read comes with its uid alone and the error, and the
// walk goes on; an error without a uid is the last thing it yields.
func (j *Journal) Sessions() iter.Seq2[Session, error] {
	return j.sessions(kindMeta)
}

// sessions walks the sessions that have a key of this kind.
func (j *Journal) sessions(kind byte) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		view := j.view()
		defer view.Close()
		for e, err := range view.Scan([]byte{kind}, []byte{kind + 1}, false) {
			if err != nil {
				yield(Session{}, fmt.Errorf("walk sessions: %w", err))
				return
			}
			uid := abi.SessionID(e.Key[1:])
			s, _, err := session(view, uid)
			if err != nil {
				s = Session{UID: uid}
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// Deleted walks the deleted sessions of which something is left, as Sessions does.
func (j *Journal) Deleted() iter.Seq2[Session, error] {
	return j.sessions(kindDeleted)
}

// Heads is Sessions for who wants nothing but UID, Head and Summary, and of deleted
// sessions too: it reads one row of each.
func (j *Journal) Heads() iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		view := j.view()
		defer view.Close()
		for e, err := range view.Scan([]byte{kindHead}, []byte{kindHead + 1}, false) {
			if err != nil {
				yield(Session{}, fmt.Errorf("walk heads: %w", err))
				return
			}
			s := Session{UID: abi.SessionID(e.Key[1:])}
			if s.Head, s.Summary, err = decodeHead(s.UID, e.Value); err != nil {
				s = Session{UID: s.UID}
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// FindName gives the session with this name in the project. It wraps ErrNotFound.
func (j *Journal) FindName(project, name string) (abi.SessionID, error) {
	if name == "" || checkName("project", project) != nil || checkName("name", name) != nil {
		return "", fmt.Errorf("session named %q: %w", name, ErrNotFound)
	}
	uid, err := j.get(nameKey(project, name))
	if err != nil {
		return "", fmt.Errorf("session named %q in project %q: %w", name, project, err)
	}
	return abi.SessionID(uid), nil
}

// FindPrefix lists up to limit uids, of any project, that begin with prefix, in
// ascending order, but for those of deleted sessions.
func (j *Journal) FindPrefix(prefix string, limit int) ([]abi.SessionID, error) {
	view := j.view()
	defer view.Close()
	var uids []abi.SessionID
	from := metaKey(abi.SessionID(prefix))
	for e, err := range view.Scan(from, after(from), false) {
		if err != nil {
			return nil, fmt.Errorf("find sessions %q: %w", prefix, err)
		}
		if len(uids) >= limit {
			break
		}
		uid := abi.SessionID(e.Key[1:])
		switch _, err := view.Get(deletedKey(uid)); {
		case errors.Is(err, ErrNotFound):
			uids = append(uids, uid)
		case err != nil:
			return nil, fmt.Errorf("find sessions %q: %w", prefix, err)
		}
	}
	return uids, nil
}

// ErrToken reports a token that List did not give out.
var ErrToken = errors.New("not a page token")

// List gives up to limit sessions of a project, newest first. token is empty, or
// the Next of the page before: a session made meanwhile never moves others
// between pages. It wraps ErrToken.
func (j *Journal) List(project, token string, limit int) (ListPage, error) {
	page, err := j.list(project, token, limit)
	if err != nil {
		return ListPage{}, fmt.Errorf("list sessions of project %q: %w", project, err)
	}
	return page, nil
}

func (j *Journal) list(project, token string, limit int) (page ListPage, err error) {
	if limit < 1 {
		return page, fmt.Errorf("a page of %d sessions", limit)
	}
	if err := checkName("project", project); err != nil {
		return page, err
	}
	prefix := projectPrefix(kindCreated, project)
	last, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(last) > 0 && (len(last) <= 8 || len(last) > 8+maxUID) {
		return page, fmt.Errorf("%w: %.40q", ErrToken, token)
	}
	from := slices.Concat(prefix, last)
	if len(last) > 0 {
		from = append(from, 0) // right behind the last one
	}
	view := j.view()
	defer view.Close()
	var position []byte
	for e, err := range view.Scan(from, after(prefix), false) {
		if err != nil {
			return page, err
		}
		if len(page.Sessions) == limit {
			page.Next = base64.RawURLEncoding.EncodeToString(position)
			break
		}
		position = slices.Clone(e.Key[len(prefix):])
		if len(position) <= 8 {
			return page, fmt.Errorf("%w: an index key of %d bytes", ErrCorrupt, len(e.Key))
		}
		s, _, err := undeleted(view, abi.SessionID(position[8:])) // Delete takes it out of this index
		if err != nil {
			return page, err
		}
		page.Sessions = append(page.Sessions, s)
	}
	return page, nil
}

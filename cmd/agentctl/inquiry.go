package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/agentcell/agentcell/host"
)

// inquiry asks questions of whoever has the store: another agentctl through its
// door, or this one, which opens the store where nobody has it. So what one hears
// of sessions is true, and never that the store is in use.
type inquiry struct {
	app  *app
	dir  string
	held *held // once this process has the store
	// hasty: nobody is waited for.
	hasty bool
	// cut: a question was heard, and whoever heard it left without an answer.
	cut bool
}

// inquire does work that asks questions.
func (a *app) inquire(work func(*inquiry) error) error {
	dir, err := a.dataDirectory()
	if err != nil {
		return err
	}
	i := &inquiry{app: a, dir: dir}
	err = work(i)
	if i.held != nil {
		err = errors.Join(err, i.held.Close())
	}
	return err
}

// inquireSession is inquire about a session, which ref names.
func (a *app) inquireSession(ref string, work func(*inquiry) error) error {
	if dir, missing := a.noData(); missing {
		return fmt.Errorf("session %q: %w: there is no data in %q yet", ref, host.ErrNotFound, dir)
	}
	a.ref = ref
	err := a.inquire(work)
	if errors.Is(err, host.ErrNotFound) {
		a.ref = ""
		return &adviceError{err, a.inPlace("list") + " shows the sessions there; --project names another project"}
	}
	return err
}

// ask asks until somebody answers.
func (i *inquiry) ask(ctx context.Context, q question) (answer, error) {
	for p := i.app.waitFor(i.dir); ; {
		if i.held != nil {
			return reply(ctx, i.held.Host, q)
		}
		r, err := i.askOther(ctx, q)
		if !errors.Is(err, errNobody) {
			return r, err
		}
		options, err := i.app.options(ctx, "")
		if err != nil {
			return answer{}, err
		}
		if i.held, err = hold(i.dir, options); err == nil {
			continue
		}
		if !i.hasty {
			err = p.wait(ctx, err)
		}
		if err != nil {
			return answer{}, err
		}
	}
}

// askOther asks the process that has the store. errNobody says that there is none,
// or none that answers.
func (i *inquiry) askOther(ctx context.Context, q question) (answer, error) {
	c, err := knock(ctx, i.dir, q)
	if err != nil {
		return answer{}, err
	}
	defer c.close()
	// A process that was stopped neither answers nor leaves.
	_ = c.conn.SetReadDeadline(time.Now().Add(peerTime)) // or it is closed, as next says
	r, err := c.next()
	if err != nil || !r.Heard {
		return r, err
	}
	_ = c.conn.SetReadDeadline(time.Time{})
	r, err = c.next()
	i.cut = i.cut || errors.Is(err, errNobody)
	return r, err
}

// errNobody reports that no process answers at the door.
var errNobody = errors.New("nobody at the door")

// caller is a connection to the process that has the store.
type caller struct {
	ctx    context.Context
	conn   net.Conn
	lines  *json.Decoder
	detach func() bool
}

// knock asks the process that has the store in dir, without waiting for what it
// says.
func knock(ctx context.Context, dir string, q question) (*caller, error) {
	conn, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := &caller{ctx: ctx, conn: conn, lines: json.NewDecoder(conn)}
	c.detach = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		c.close()
		return nil, c.broken()
	}
	return c, nil
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	mark := doorMark(dir)
	if mark == "" {
		return nil, errNobody
	}
	var conn net.Conn
	err := atSocket(filepath.Join(dir, doorName), mark, func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, errNobody
}

// hasDoor reports whether the process that has the store in dir can be asked.
func hasDoor(dir string) bool {
	conn, err := dial(context.Background(), dir)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// next is the next answer. A fault is an error, and so is errNobody when no more
// can come.
func (c *caller) next() (answer, error) {
	var r answer
	if err := c.lines.Decode(&r); err != nil {
		return answer{}, c.broken()
	}
	if r.Fault != nil {
		return answer{}, r.Fault
	}
	return r, nil
}

// broken is why the connection is.
func (c *caller) broken() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return errNobody
}

func (c *caller) close() {
	c.detach()
	_ = c.conn.Close()
}

package host_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// remote is a model behind a TCP connection for each call, and the listener that
// counts them.
type remote struct {
	address  string
	accepted atomic.Int64
}

func listen(t *testing.T) *remote {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{address: l.Addr().String()}
	done := make(chan struct{})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = conn.Write([]byte("far: " + line))
			}
			_ = conn.Close()
		}
	}()
	return r
}

// Complete implements model.Provider.
func (r *remote) Complete(ctx context.Context, req model.Request, _ func(model.Delta)) (model.Result, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.address)
	if err != nil {
		return model.Result{}, err
	}
	defer conn.Close()
	messages := req.Call.Messages
	if _, err := conn.Write([]byte(messages[len(messages)-1].Text() + "\n")); err != nil {
		return model.Result{}, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return model.Result{Message: abi.Text(abi.RoleAssistant, strings.TrimSuffix(line, "\n"))}, err
}

// I1: whatever is done with a record, no connection is made for it; counted where
// connections arrive.
func TestI1_NothingReachesTheNetworkAgain(t *testing.T) {
	far := listen(t)
	r := newRig(t)
	r.models["echo"] = far
	r.open()
	s := r.createFrom(tally())
	for range 3 {
		r.exec(s.UID, "next")
	}
	if got := far.accepted.Load(); got != 3 {
		t.Fatalf("%d connections for three calls", got)
	}
	child := fork(t, r, host.ForkRequest{Session: s.UID})[0]
	// A turn that lost its host between its two calls is open, and stays so.
	asks := r.create("steps")
	calls := 0
	r.SetFault(func(point string) error {
		if point == "committed" {
			calls++
		}
		if calls == 2 {
			return errDropped
		}
		return nil
	})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: asks.UID, Inputs: say("model a; model b")}); !errors.Is(err, errDropped) {
		t.Fatal(err)
	}
	r.open()
	asked := far.accepted.Load()
	for _, uid := range []abi.SessionID{s.UID, child.UID, asks.UID} {
		r.transcript(uid)
		if v := r.verify(uid); v.Reexecuted+3*v.Prefix != 3 {
			t.Errorf("verified %+v", v)
		}
		if _, err := r.Get(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	if got := far.accepted.Load(); got != asked {
		t.Errorf("%d connections were made to replay and verify", got-asked)
	}
	// Recovery serves the first answer and asks for the second alone.
	if _, err := r.Resume(t.Context(), asks.UID, nil); err != nil {
		t.Fatal(err)
	}
	if got := far.accepted.Load(); got != asked+1 {
		t.Errorf("%d connections were made to recover one call", got-asked)
	}
}

// I4: what a cell is started with is this turn's input and no earlier one, also
// when its memory comes back from the store: each turn is given one message, and
// the state goes on from where it was.
func TestI4_RestoredMemoryIsNotFedItsHistory(t *testing.T) {
	r := newRig(t).open()
	starts := spy(r)
	s := r.createFrom(tally())
	var got []string
	for _, input := range []string{"one", "two", "three"} {
		r.open() // a new host each time: memory is restored
		got = append(got, r.exec(s.UID, input)...)
	}
	r.SetFault(func(point string) error {
		if point == "ending" {
			return errDropped
		}
		return nil
	})
	if _, err := r.Exec(t.Context(), host.ExecRequest{Session: s.UID, Inputs: say("four")}); err == nil {
		t.Fatal("the host was not dropped")
	}
	r.open()
	if _, err := r.Resume(t.Context(), s.UID, nil); err != nil {
		t.Fatal(err)
	}
	got = append(got, r.exec(s.UID, "five")...)
	if diff := cmp.Diff([]string{"echo:how much is it?", "0001", "echo:how much is it?", "0002", "echo:how much is it?", "0003", "echo:how much is it?", "0005"}, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "four", "four", "five"}, starts()); diff != "" {
		t.Errorf("inputs that cells were started with (-want +got):\n%s", diff)
	}
	r.verify(s.UID)
}

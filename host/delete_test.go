package host_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/sdk/abi"
)

// A deleted session is unknown to everything that takes a session, and its name is
// free; its forks and what was saved of it go on, proven like any other.
func TestDelete(t *testing.T) {
	r := newRig(t).open()
	ctx := t.Context()
	s, err := r.Create(ctx, host.CreateRequest{Name: "name", Harness: harness(t, "steps")})
	if err != nil {
		t.Fatal(err)
	}
	r.exec(s.UID, "output one")
	first := mustGet(t, r, s.UID).Head.Seq
	save(t, r, host.SaveRequest{Session: s.UID, Name: "saved"})
	r.exec(s.UID, "output two")
	child := fork(t, r, host.ForkRequest{Session: s.UID, At: first})[0]

	gone, err := r.Delete(ctx, s.UID, false)
	if err != nil {
		t.Fatal(err)
	}
	if gone.Compute != host.ComputeTerminated || gone.State != host.ExecCompleted {
		t.Errorf("deleted: %+v", gone)
	}
	for name, call := range map[string]func() error{
		"get":     func() error { _, err := r.Get(ctx, s.UID); return err },
		"resolve": func() error { _, err := r.Resolve(ctx, "", string(s.UID)); return err },
		"exec": func() error {
			_, err := r.Exec(ctx, host.ExecRequest{Session: s.UID, Inputs: say("output x")})
			return err
		},
		"resume":  func() error { _, err := r.Resume(ctx, s.UID, nil); return err },
		"cancel":  func() error { _, err := r.Cancel(ctx, s.UID); return err },
		"suspend": func() error { _, err := r.Suspend(ctx, s.UID); return err },
		"fork":    func() error { _, err := r.Fork(ctx, host.ForkRequest{Session: s.UID}); return err },
		"save":    func() error { _, err := r.Save(ctx, host.SaveRequest{Session: s.UID, Name: "late"}); return err },
		"verify":  func() error { _, err := r.Verify(ctx, host.VerifyRequest{Session: s.UID}); return err },
		"export":  func() error { _, err := r.Export(ctx, s.UID, io.Discard); return err },
		"delete":  func() error { _, err := r.Delete(ctx, s.UID, true); return err },
		"replay": func() error {
			for _, err := range r.Replay(ctx, s.UID, 1, 0) {
				return err
			}
			return nil
		},
	} {
		if err := call(); !errors.Is(err, host.ErrNotFound) || !strings.Contains(err.Error(), "was deleted") {
			t.Errorf("%s: %v, want ErrNotFound that says it was deleted", name, err)
		}
	}
	if _, err := r.Resolve(ctx, "", "name"); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("its name: %v", err)
	}
	if _, err := r.Resolve(ctx, "", string(s.UID[:len(s.UID)-1])); !errors.Is(err, host.ErrNotFound) {
		t.Errorf("a prefix of its uid: %v", err)
	}
	if all := list(t, r); len(all) != 1 || all[0].UID != child.UID {
		t.Errorf("listed: %+v", all)
	}
	if _, err := r.Create(ctx, host.CreateRequest{Name: "name", Harness: harness(t, "steps")}); err != nil {
		t.Errorf("another session with its name: %v", err)
	}

	for _, uid := range []abi.SessionID{child.UID, fromSnapshot(t, r, "saved").UID} {
		r.exec(uid, "output three")
		r.verify(uid)
	}
}

// What Delete does with a turn: it stands in the way, or is canceled first.
func TestDelete_Turns(t *testing.T) {
	g := newGate()
	r := newRig(t)
	r.models["echo"] = g
	r.open()
	ctx := t.Context()
	canceled := func(uid abi.SessionID) {
		t.Helper()
		if s, err := r.Delete(ctx, uid, true); err != nil || s.State != host.ExecCanceled || s.Compute != host.ComputeTerminated {
			t.Errorf("forced: %+v, %v", s, err)
		}
		if _, err := r.Get(ctx, uid); !errors.Is(err, host.ErrNotFound) {
			t.Errorf("it is still there: %v", err)
		}
	}

	running := r.create("steps")
	end := r.start(host.ExecRequest{Session: running.UID, Inputs: say("model x")})
	<-g.entered
	if _, err := r.Delete(ctx, running.UID, false); !errors.Is(err, host.ErrBusy) {
		t.Errorf("while a turn runs: %v, want ErrBusy", err)
	}
	canceled(running.UID)
	<-end

	parked := r.create("steps")
	if _, err := r.Exec(ctx, host.ExecRequest{Session: parked.UID, Inputs: say("wait go")}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Delete(ctx, parked.UID, false); !errors.Is(err, host.ErrOpenTurn) {
		t.Errorf("a parked turn: %v, want ErrOpenTurn", err)
	}
	canceled(parked.UID)

	interrupted := r.create("steps")
	r.drop(interrupted.UID, "output a; model y", "committed")
	if _, err := r.Delete(ctx, interrupted.UID, false); !errors.Is(err, host.ErrOpenTurn) {
		t.Errorf("an interrupted turn: %v, want ErrOpenTurn", err)
	}
	canceled(interrupted.UID)
}

// A deleted session comes back from a file that was exported before, if the file
// has what is kept.
func TestDelete_ImportAgain(t *testing.T) {
	r := newRig(t).open()
	ctx := t.Context()
	s := r.create("steps")
	r.exec(s.UID, "output one")
	older := r.export(s.UID)
	r.exec(s.UID, "output two")
	fork(t, r, host.ForkRequest{Session: s.UID})
	file := r.export(s.UID)
	want := r.transcript(s.UID)
	if _, err := r.Delete(ctx, s.UID, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.Import(ctx, bytes.NewReader(older), host.ImportRequest{})
	if !errors.Is(err, host.ErrConflict) {
		t.Errorf("an older file: %v, want ErrConflict", err)
	}
	p := r.load(file)
	if p.Present || p.Session.Compute == host.ComputeTerminated {
		t.Errorf("imported: %+v", p)
	}
	if got := r.transcript(s.UID); len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	r.exec(s.UID, "output three")
	r.verify(s.UID)
}

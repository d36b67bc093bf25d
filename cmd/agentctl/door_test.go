package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// demoHost is a host with a session "demo" that has run.
func demoHost(t *testing.T) (*edge.Host, abi.SessionID) {
	t.Helper()
	needHarnesses(t)
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	h, err := edge.OpenMemory(edge.Options{CacheDir: cache, Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	echo, err := edge.Bundled("echo")
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(t.Context(), host.CreateRequest{Name: "demo", Harness: echo})
	if err != nil {
		t.Fatal(err)
	}
	runTurn(t, h, s.UID)
	return h, s.UID
}

// doorOf is the door of the host in dir, which has to be.
func doorOf(t *testing.T, dir string, h *edge.Host) *door {
	t.Helper()
	d := openDoor(dir, h)
	if d == nil {
		t.Fatal("no door")
	}
	t.Cleanup(d.close)
	return d
}

func runTurn(t *testing.T, h *edge.Host, uid abi.SessionID) {
	t.Helper()
	if _, err := h.Exec(t.Context(), host.ExecRequest{Session: uid, Inputs: []abi.Message{abi.Text(abi.RoleUser, "hello")}}); err != nil {
		t.Fatal(err)
	}
}

// asked is what the door of dir says to a question.
func asked(t *testing.T, dir string, q question) (answer, error) {
	t.Helper()
	return (&inquiry{dir: dir}).askOther(t.Context(), q)
}

// Only its owner can come to the door.
func TestDoorIsPrivate(t *testing.T) {
	dir := t.TempDir()
	h, _ := demoHost(t)
	doorOf(t, dir, h)
	for path, want := range map[string]os.FileMode{
		doorName:                               os.ModeDir | 0o700,
		filepath.Join(doorName, doorMark(dir)): os.ModeSocket | 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

// Whatever comes through the door, the process goes on, answers others, and has
// nothing of it left when it leaves.
func TestDoorHostilePeers(t *testing.T) {
	dir := t.TempDir()
	h, uid := demoHost(t)
	before := goleak.IgnoreCurrent()
	d := doorOf(t, dir, h)

	watch := `{"op":"watch","all":true,"watch":{}}` + "\n"
	var open []net.Conn
	for _, peer := range []struct {
		says  string
		waits bool   // to be answered
		fault string // in the answer
	}{
		{"", false, ""},
		{"{", false, ""},
		{"\n", true, "not a question"},
		{"GET / HTTP/1.1\r\n\r\n", true, "not a question"},
		{`{"op":7}` + "\n", true, "not a question"},
		{strings.Repeat("[", 100_000) + "\n", true, "not a question"},
		{strings.Repeat("x", maxQuestion+1), true, "too long"},
		{`{"op":"fly"}` + "\n", true, "does not know the question"},
		{`{"op":"list"}` + "\n", true, "a list of what?"},
		{`{"op":"watch"}` + "\n", true, "watch what?"},
		{`{"op":"watch","watch":{"From":"x"}}` + "\n", true, "not a question"},
		{`{"op":"get","ref":"` + strings.Repeat("y", 1000) + `"}` + "\n", true, "not found"},
		{watch, false, ""},
		{watch + "and more", false, ""},
	} {
		conn, err := dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		// The door need not read all of it.
		_, _ = io.WriteString(conn, peer.says)
		if !peer.waits {
			open = append(open, conn) // and reads nothing
			continue
		}
		said, err := io.ReadAll(conn)
		if err != nil && len(said) == 0 {
			t.Errorf("%.40q: %v", peer.says, err)
		}
		if !strings.Contains(string(said), peer.fault) {
			t.Errorf("%.40q is told %.200q, want %q in it", peer.says, said, peer.fault)
		}
		_ = conn.Close()
	}
	// A turn is not held, however much is waiting to be taken.
	for range 20 {
		runTurn(t, h, uid)
	}
	if r, err := asked(t, dir, question{Op: opGet, Project: host.DefaultProject, Ref: "demo"}); err != nil || r.Session.Turns != 21 {
		t.Errorf("answered %+v, %v", r.Session, err)
	}
	d.close()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	if _, err := asked(t, dir, question{Op: opGet, Ref: "demo"}); !errors.Is(err, errNobody) {
		t.Errorf("behind the closed door there is %v", err)
	}
}

// More peers than there are places are sent away, and come in when there is one.
func TestDoorIsFull(t *testing.T) {
	dir := t.TempDir()
	h, _ := demoHost(t)
	doorOf(t, dir, h)
	var open []net.Conn
	for range maxPeers {
		conn, err := dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	q := question{Op: opGet, Project: host.DefaultProject, Ref: "demo"}
	if _, err := asked(t, dir, q); !errors.Is(err, errNobody) {
		t.Errorf("one too many is told %v", err)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	for end := time.Now().Add(time.Minute); ; {
		r, err := asked(t, dir, q)
		if err == nil && r.Session != nil {
			break
		}
		if !errors.Is(err, errNobody) || time.Now().After(end) {
			t.Fatalf("answered %+v, %v", r, err)
		}
	}
}

// A caller that leaves takes its watch with it.
func TestDoorCallerLeaves(t *testing.T) {
	dir := t.TempDir()
	h, _ := demoHost(t)
	d := doorOf(t, dir, h)
	before := goleak.IgnoreCurrent()
	c, err := knock(t.Context(), dir, question{Op: opWatch, All: true, Watch: &host.WatchRequest{}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if r.Record != nil {
			break
		}
	}
	c.close()
	if err := goleak.Find(before); err != nil { // which waits a while
		t.Error(err)
	}
	d.close()
}

// Ctrl-C ends a question that is not answered.
func TestDoorGivesUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, doorName), 0o700); err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("unix", filepath.Join(dir, doorName, "mute"))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		conn, err := mute.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}
		cancel(errInterrupted)
	}()
	if _, err := (&inquiry{dir: dir}).askOther(ctx, question{Op: opGet}); !errors.Is(err, errInterrupted) {
		t.Errorf("given up with %v", err)
	}
}

// A door has a name of its own each time, wherever the directory is. Where there
// can be none, its name is there all the same.
func TestDoorMark(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("l", maxSocketPath))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	h, _ := demoHost(t)
	marks := map[string]bool{"": true}
	fresh := func(dir string) {
		t.Helper()
		if mark := doorMark(dir); marks[mark] {
			t.Errorf("the mark %q again", mark)
		} else {
			marks[mark] = true
		}
	}
	for _, dir := range []string{t.TempDir(), long} {
		for range 2 { // the second finds what the first has left
			d := doorOf(t, dir, h)
			fresh(dir)
			if _, err := asked(t, dir, question{Op: opGet, Project: host.DefaultProject, Ref: "demo"}); err != nil {
				t.Error(err)
			}
			d.close()
			if hasDoor(dir) {
				t.Error("a closed door is open")
			}
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if d := openDoor(long, nil); d != nil {
		t.Error("a door where there can be none")
	}
	fresh(long)
	if hasDoor(long) {
		t.Error("what is no door is open")
	}
}

// What is told through the door is what the host says.
func TestAnswersSurvive(t *testing.T) {
	at := abi.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	digest := abi.DigestOf([]byte("x"))
	s := host.Session{
		UID: "sess-1", Project: "p", Name: "n", Harness: "h", Module: digest, Runtime: "r", HoldsMemory: true,
		Model: "m", Config: []byte(`{"a":1}`), Labels: map[string]string{"k": "v"}, Grants: []string{"files.*"}, Limits: abi.DefaultLimits(),
		Deadline: time.Second, CallTimeout: time.Minute, Retention: host.Retention{Last: 1, Every: 2},
		Created: at.Time, Updated: at.Time, Parent: "sess-0", ForkSeq: 1 << 60,
		State: host.ExecAwaiting, Compute: host.ComputeCold, Suspended: true, Reason: abi.ReasonCanceled,
		Execution: "exec-1", Turns: 3, Head: journal.Head{Seq: 4, Hash: digest, Fence: 5}, Closed: 6, Root: digest,
		Waiting: []host.Waiting{{CallID: "c", Tool: "t", Reason: "r", Until: at, Signal: "s", Settled: true, Approvers: 2, Approved: []string{"ann"}}},
	}
	for field, value := range reflect.ValueOf(s).Fields() {
		if value.IsZero() {
			t.Errorf("field %s is not tried", field.Name)
		}
	}
	call := abi.ToolCall{ID: "c", Tool: "t", Args: abi.Struct(`{"n":12345678901234567890123}`)}
	want := answer{
		Heard: true, Session: &s, Waits: []waitJSON{{s.Waiting[0], 7, call.Args, call.Args}}, Done: true,
		Page: &host.ListPage{Sessions: []host.Session{s}, Next: "token"},
		Approvals: []approval{
			{s, host.PendingCall{Session: "sess-1", Seq: 7, Call: call, Reason: "r", Since: at.Time}},
			{s, host.PendingCall{
				Session: "sess-1", Seq: 7, Call: call, Edited: true, Since: at.Time, Rule: "u", Until: at.Time, AsksAgain: true,
				Approvers: 2, Approvals: []abi.IdentityRef{{Principal: "ann"}}, Proposed: call.Args,
			}},
		},
		Canceled: &host.Execution{Session: s, ID: "exec-1", State: abi.StateCanceled, Reason: abi.ReasonCanceled},
		Decided:  &decidedThere{Before: 1 << 60, Records: []*watched{{Session: "sess-1", Seq: 7, Event: []byte(`{"kind":"k"}`)}}},
	}
	var line bytes.Buffer
	if err := encodeAnswer(&line, want); err != nil {
		t.Fatal(err)
	}
	var got answer
	if err := json.Unmarshal(line.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// I2: a record is shown through the door as the journal has it.
func TestI2_WatchedRecords(t *testing.T) {
	const number = `{"n":12345678901234567890123,"text":"<&>\u2028"}`
	want := host.Record{Session: "sess-1", LogRecord: abi.LogRecord{
		Seq: 7, Fence: 8, PrevHash: abi.DigestOf([]byte("a")), ContentHash: abi.DigestOf([]byte("b")),
		Event: &abi.Event{
			Kind: abi.EventOutput, Time: abi.NewTime(time.Unix(1, 0)),
			Message: &abi.Message{Role: abi.RoleAssistant, Parts: []abi.Part{{Data: &abi.DataPart{Data: []byte(number)}}}},
		},
	}}
	w, err := newWatched(want, "name")
	if err != nil {
		t.Fatal(err)
	}
	var line bytes.Buffer
	if err := encodeAnswer(&line, answer{Record: w}); err != nil {
		t.Fatal(err)
	}
	var got answer
	if err := json.Unmarshal(line.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	record, err := got.Record.record()
	if err != nil {
		t.Fatal(err)
	}
	shown := func(r host.Record) string {
		line, err := encodeLine(newRecordJSON(r))
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	if diff := cmp.Diff(shown(want), shown(record)); diff != "" || !strings.Contains(shown(record), "12345678901234567890123") {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An error means to who asks what it means here.
func TestFaults(t *testing.T) {
	for _, k := range faultKinds() {
		want := fmt.Errorf("session %q: %w", "x", k.err)
		b, err := json.Marshal(newFault(want))
		if err != nil {
			t.Fatal(err)
		}
		got := new(fault)
		if err := json.Unmarshal(b, got); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got, k.err) || got.Error() != want.Error() || exitCode(got) != exitCode(want) {
			t.Errorf("%v arrives as %v, exit code %d", want, got, exitCode(got))
		}
	}
	if exitCode(newFault(errors.New("anything"))) != exitFailure {
		t.Error("an unknown error is no plain failure")
	}
}

// hanging is a model that never answers.
type hanging struct{}

func (hanging) Complete(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Result, error) {
	<-ctx.Done()
	return model.Result{}, ctx.Err()
}

// A cancel whose process left before it could answer is told by what it has done.
func TestCancelAnswerLost(t *testing.T) {
	needHarnesses(t)
	cache, err := testCache()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h, err := edge.Open(dir, edge.Options{
		CacheDir: cache, Paused: true,
		Models: map[string]model.Provider{"hanging": hanging{}}, DefaultModel: "hanging",
	})
	if err != nil {
		t.Fatal(err)
	}
	echo, err := edge.Bundled("echo")
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(t.Context(), host.CreateRequest{Name: "demo", Harness: echo})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Exec(t.Context(), host.ExecRequest{
		Session: s.UID, Inputs: []abi.Message{abi.Text(abi.RoleUser, "hello")},
		Observe: func(u host.Update) {
			if u.Record != nil && u.Record.Event.Kind == abi.EventModelCall {
				if _, err := h.Cancel(t.Context(), s.UID); err != nil {
					t.Error(err)
				}
			}
		},
	})
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	canceled := func() (code int, stdout string) {
		var out, errs strings.Builder
		a := newApp(strings.NewReader(""), &out, &errs, func(string) string { return "" })
		code = a.run(t.Context(), []string{"cancel", "demo", "--data", dir})
		return code, out.String()
	}
	if code, _ := canceled(); code != exitUsage {
		t.Errorf("nothing to cancel: exit code %d", code)
	}

	leaving, err := listenAt(filepath.Join(dir, doorName))
	if err != nil {
		t.Fatal(err)
	}
	var leaves sync.WaitGroup
	leaves.Go(func() {
		conn, err := leaving.Accept()
		_ = leaving.Close()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Error(err)
		}
		if err := encodeAnswer(conn, answer{Heard: true}); err != nil {
			t.Error(err)
		}
	})
	code, stdout := canceled()
	leaves.Wait()
	if code != exitOK || !strings.HasSuffix(stdout, "  CANCELED\n") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

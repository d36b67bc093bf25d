package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/host/model/remote"
	"github.com/agentcell/agentcell/sdk/abi"
)

// parrot is an API whose answers are what their body says.
type parrot struct{}

func (parrot) Encode(model.Request) ([]byte, error) { return []byte("{}"), nil }

func (parrot) Answer(model.Request, *remote.Room) remote.Answer { return new(parrots) }

type parrots struct{ text string }

func (p *parrots) Event(_ string, data []byte) (string, bool, error) {
	p.text += string(data)
	return string(data), false, nil
}

func (p *parrots) Whole(body []byte) (string, error) {
	p.text = string(body)
	return p.text, nil
}

func (p *parrots) Result() (model.Result, error) {
	return model.Result{Message: abi.Text(abi.RoleAssistant, p.text)}, nil
}

func client(t *testing.T, e remote.Endpoint) *remote.Client {
	t.Helper()
	e.Name, e.URL = "fake", "http://fake.invalid/"
	c, err := remote.New(e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(ctx context.Context, c *remote.Client) (string, error) {
	r, err := c.Complete(ctx, parrot{}, model.Request{Call: abi.ModelCall{Model: "m"}}, nil)
	return r.Message.Text(), err
}

const answered = `{"ok":1}`

// The circuit opens after failures in a row, across calls; while it is open nothing
// leaves; after a pause one call tries, and decides.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, up := modeltest.Answer(503, ""), modeltest.Answer(200, answered)
		s := modeltest.Serve(t, down, modeltest.Answer(400, ""), down, down, down, down, up, down, up)
		c := client(t, remote.Endpoint{Transport: s, Attempts: 1, Failures: 3, Pause: 10 * time.Second})
		var got []string
		step := func(what string) {
			_, err := call(t.Context(), c)
			if err != nil {
				what += ": " + strings.TrimPrefix(err.Error(), `provider "fake": it `)
			}
			got = append(got, what)
		}
		for range 5 {
			step("call")
		}
		step("open")
		time.Sleep(4 * time.Second)
		step("open")
		time.Sleep(6 * time.Second)
		step("half open")
		step("open again")
		time.Sleep(10 * time.Second)
		step("half open")
		step("closed")
		step("closed")
		want := []string{
			"call: answered 503 Service Unavailable",
			"call: answered 400 Bad Request", // which tells that it is there
			"call: answered 503 Service Unavailable",
			"call: answered 503 Service Unavailable",
			"call: answered 503 Service Unavailable",
			"open: has failed 3 times in a row; it is tried again in 10s",
			"open: has failed 3 times in a row; it is tried again in 6s",
			"half open: answered 503 Service Unavailable",
			"open again: has failed 3 times in a row; it is tried again in 10s",
			"half open",
			"closed: answered 503 Service Unavailable",
			"closed",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if n := c.Attempts(); n != 9 {
			t.Errorf("%d attempts are counted, 9 were made", n)
		}
	})
}

// While one call tries a provider that was down, others do not; and one that is
// given up does not leave the circuit half open for ever.
func TestBreaker_OneTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modeltest.Serve(t, modeltest.Answer(503, ""), modeltest.Stall(""), modeltest.Answer(200, answered))
		c := client(t, remote.Endpoint{Transport: s, Attempts: 1, Failures: 1, Pause: time.Second})
		if _, err := call(t.Context(), c); err == nil {
			t.Fatal("no error")
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := call(ctx, c); !errors.Is(err, context.Canceled) {
				t.Errorf("the call that tries: %v", err)
			}
		})
		synctest.Wait()
		if _, err := call(t.Context(), c); err == nil || !strings.Contains(err.Error(), "in a row") {
			t.Errorf("a call beside it: %v", err)
		}
		cancel()
		wg.Wait()
		if text, err := call(t.Context(), c); text != answered {
			t.Errorf("the next: %q, %v", text, err)
		}
	})
}

func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		slow := func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			_, _ = io.WriteString(w, answered)
		}
		c := client(t, remote.Endpoint{Transport: modeltest.Serve(t, modeltest.Always(8, slow)...), Concurrent: 2})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := call(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != 2 {
			t.Errorf("%d calls were under way at once, want 2", most)
		}
	})
}

// Back-off grows from Delay to MaxDelay, each time with chance.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		s := modeltest.Serve(t, modeltest.Always(6, func(w http.ResponseWriter, _ *http.Request) {
			at = append(at, time.Now())
			w.WriteHeader(http.StatusServiceUnavailable)
		})...)
		c := client(t, remote.Endpoint{Transport: s, Attempts: 6, Failures: 10, Delay: time.Second, MaxDelay: 5 * time.Second})
		if _, err := call(t.Context(), c); err == nil {
			t.Fatal("no error")
		}
		for i, most := range []time.Duration{1, 2, 4, 5, 5} {
			if d := at[i+1].Sub(at[i]); d < most*time.Second/2 || d > most*time.Second {
				t.Errorf("pause %d is %s, want %s to %s", i, d, most*time.Second/2, most*time.Second)
			}
		}
	})
}

// A connection that cannot be made is tried again, too.
func TestNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("connection refused")
		}}
		_, err := call(t.Context(), client(t, remote.Endpoint{Transport: transport}))
		want := &model.Error{Code: abi.CodeUnavailable, Message: `provider "fake": the connection failed: connection refused (4 attempts)`, Free: true}
		var got *model.Error
		if !errors.As(err, &got) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || dials != 4 {
			t.Errorf("%d dials (-want +got):\n%s", dials, diff)
		}
	})
}

// A connection that is made, and then hangs before a request can be sent, is given up as
// soon as one that is not made.
func TestConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	c, err := remote.New(remote.Endpoint{
		Name: "fake", URL: "https://" + l.Addr().String(), Attempts: 1,
		Connect: 50 * time.Millisecond, FirstByte: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	var failure *model.Error
	if _, err := call(t.Context(), c); !errors.As(err, &failure) || failure.Code != abi.CodeUnavailable || !failure.Free || !strings.Contains(err.Error(), "TLS handshake timeout") {
		t.Errorf("%#v", err)
	}
}

// Before an attempt that follows one which may have been paid for, the caller is asked,
// and its word counts. What was refused, or never arrived, costs nothing.
func TestAgain(t *testing.T) {
	stop := errors.New("that was enough")
	unreachable := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("connection refused")
	}}
	for _, tt := range []struct {
		name    string
		replies []modeltest.Reply // none: nothing can be reached
		allowed int               // how often the caller says yes
		asked   int
		free    bool // the error says so
		stopped bool
	}{
		{"an answer", []modeltest.Reply{modeltest.Answer(200, answered)}, 0, 0, false, false},
		{"busy, and an answer", []modeltest.Reply{modeltest.Answer(429, ""), modeltest.Answer(503, ""), modeltest.Answer(200, answered)}, 0, 0, false, false},
		{"busy for ever", modeltest.Always(4, modeltest.Answer(503, "")), 0, 0, true, false},
		{"refused", []modeltest.Reply{modeltest.Answer(400, "")}, 0, 0, true, false},
		{"not reached", nil, 0, 0, true, false},
		{"a page", []modeltest.Reply{modeltest.Answer(200, "<title>x</title>")}, 0, 0, false, false},
		{"cut off before it answers", []modeltest.Reply{modeltest.Cut(""), modeltest.Answer(200, answered)}, 1, 1, false, false},
		{"a gateway that gives up", []modeltest.Reply{modeltest.Answer(504, ""), modeltest.Answer(200, answered)}, 1, 1, false, false},
		{"no answer in time", modeltest.Always(4, modeltest.Stall("")), 3, 3, false, false},
		{"cut off, and no more", modeltest.Always(4, modeltest.Cut(`{"ok`)), 1, 2, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var transport http.RoundTripper = unreachable
				if tt.replies != nil {
					transport = modeltest.Serve(t, tt.replies...)
				}
				asked := 0
				req := model.Request{Call: abi.ModelCall{Model: "m"}, Again: func() error {
					if asked++; asked > tt.allowed {
						return stop
					}
					return nil
				}}
				_, err := client(t, remote.Endpoint{Transport: transport}).Complete(t.Context(), parrot{}, req, nil)
				var failure *model.Error
				if free := errors.As(err, &failure) && failure.Free; free != tt.free || errors.Is(err, stop) != tt.stopped || asked != tt.asked {
					t.Errorf("asked %d times, free is %t: %v", asked, free, err)
				}
			})
		})
	}
}

// S4: a key is in the header that it is for, and not in logs or errors; one that
// cannot be had, or sent, makes no request.
func TestS4_Key(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		err       error
		want      string // of the header
		says      string
	}{
		{name: "a key", key: modeltest.Canary, want: "Bearer " + modeltest.Canary},
		{name: "with a line break", key: modeltest.Canary + "\n", want: "Bearer " + modeltest.Canary},
		{name: "none", says: `provider "fake": its key env:K is not set`},
		{name: "short", key: "canary", says: `provider "fake": its key env:K is shorter than 8 characters`},
		{name: "two lines", key: modeltest.Canary + "\nX: y", says: `provider "fake": its key env:K has a character that a header cannot have`},
		{name: "locked", err: errors.New("the store is locked"), says: `provider "fake": its key env:K: the store is locked`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := modeltest.Serve(t, modeltest.Answer(503, ""), modeltest.Answer(200, answered))
				var log bytes.Buffer
				c := client(t, remote.Endpoint{
					Transport: s, Auth: "Authorization", Scheme: "Bearer",
					Key: remote.Key{Name: "env:K", Get: func() (string, error) { return tt.key, tt.err }},
					Log: slog.New(slog.NewJSONHandler(&log, nil)),
				})
				_, err := call(t.Context(), c)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if got != tt.says {
					t.Errorf("the error is %q, want %q", got, tt.says)
				}
				for i, r := range s.Requests() {
					if h := r.Header.Get("Authorization"); h != tt.want {
						t.Errorf("request %d has the header %q, want %q", i, h, tt.want)
					}
				}
				if n := len(s.Requests()); (n == 0) != (tt.says != "") {
					t.Errorf("%d requests were made", n)
				}
				if strings.Contains(log.String()+got, "canary") {
					t.Errorf("the key is in %s or %q", log.String(), got)
				}
				if tt.says == "" && strings.Count(log.String(), `"msg":"model call `) != 2 {
					t.Errorf("the log does not have both attempts: %s", log.String())
				}
			})
		})
	}
}

func TestNew_URL(t *testing.T) {
	for _, url := range []string{"", "host/path", "ftp://host/", "http://", "https://user:canary@host/", "http://host/%zz-canary"} {
		_, err := remote.New(remote.Endpoint{Name: "fake", URL: url})
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("URL %q: %v", url, err)
		}
	}
}

// Names of tools are names that every API takes, stay apart, and find back.
func TestToolNames(t *testing.T) {
	taken := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z0-9._/ é-]{1,80}`), 1, 8, rapid.ID).Draw(t, "names")
		tools := make([]abi.ToolDefinition, len(names))
		for i, n := range names {
			tools[i].Name = n
		}
		known := remote.NewToolNames(tools)
		for _, n := range names {
			api := remote.APIName(n)
			if !taken.MatchString(api) {
				t.Fatalf("%q becomes %q", n, api)
			}
			if back := known.Ours(api); back != n {
				t.Fatalf("%q becomes %q and comes back as %q", n, api, back)
			}
		}
	})
	if got := remote.NewToolNames(nil).Ours("made_up"); got != "made_up" {
		t.Errorf("a name that was never offered becomes %q", got)
	}
}

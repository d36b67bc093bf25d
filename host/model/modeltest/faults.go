package modeltest

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Canary is the key that the provider of an API is made with. It must be seen in
// requests alone.
const Canary = "sk-canary-0123456789abcdef"

// API is what Faults has to know of an API. Each text is a whole body of an answer.
type API struct {
	// New makes a provider that calls through transport, with the key Canary, the
	// time-outs that Faults has as constants, and the defaults otherwise.
	New func(transport http.RoundTripper) model.Provider
	// AuthHeader has the key.
	AuthHeader string
	// Stream and Whole answer "hello world", as a stream in two pieces and in one.
	Stream, Whole string
	// Empty answers neither text nor tool calls, NoChoice not even that.
	Empty, NoChoice string
	// BadArgs calls a tool with arguments that are not JSON.
	BadArgs string
	// Overloaded begins an answer with "hel" and ends with the report of an error
	// that may pass, Rejected with one that does not.
	Overloaded, Rejected string
	// Head begins an answer, Piece adds some text to it.
	Head, Piece string
	// Says is an answer that has the given text, and Calls one that calls a tool with
	// it as an argument.
	Says, Calls func(text string) string
}

// The time-outs of an API's provider.
const (
	FirstByte = 3 * time.Minute
	Idle      = 2 * time.Minute
)

// prompt is the request of all of Faults.
func prompt() model.Request {
	return model.Request{Attempt: 1, Call: abi.ModelCall{Model: "m", Messages: []abi.Message{abi.Text(abi.RoleUser, "hi")}}}
}

type outcome struct {
	Text  string // of the answer
	Code  abi.ErrorCode
	Tries int
}

// Faults lets the provider of an API meet everything that can go wrong, in no time.
func Faults(t *testing.T, api API) {
	const page = "<!DOCTYPE html>\n<html><head><title>Bad gateway</title></head><body>nginx</body></html>"
	half := api.Stream[:len(api.Stream)/2]
	good := Answer(200, api.Stream, "Content-Type: text/event-stream")
	ok := func(tries int) outcome { return outcome{Text: "hello world", Tries: tries} }
	fails := func(code abi.ErrorCode, tries int) outcome { return outcome{Code: code, Tries: tries} }
	const most = 4 // attempts
	for _, tt := range []struct {
		name    string
		replies []Reply
		want    outcome
		says    string        // part of the error
		waits   time.Duration // at least
		less    time.Duration // and less than that
	}{
		{name: "a stream", replies: []Reply{good}, want: ok(1)},
		{name: "a stream under another content type", replies: []Reply{Answer(200, api.Stream, "Content-Type: text/plain")}, want: ok(1)},
		{name: "no stream", replies: []Reply{Answer(200, api.Whole, "Content-Type: application/json")}, want: ok(1)},
		{name: "a byte order mark", replies: []Reply{Answer(200, "\xef\xbb\xbf"+api.Stream)}, want: ok(1)},

		{name: "429 and then an answer", replies: []Reply{Answer(429, `{"error":{"message":"slow down"}}`), good}, want: ok(2), less: time.Second},
		{name: "Retry-After in seconds", replies: []Reply{Answer(429, "", "Retry-After: 7"), good}, want: ok(2), waits: 7 * time.Second, less: 8 * time.Second},
		{name: "Retry-After as a date", replies: []Reply{Answer(503, "", "Retry-After: Sat, 01 Jan 2000 00:00:20 GMT"), good}, want: ok(2), waits: 20 * time.Second, less: 21 * time.Second},
		{name: "Retry-After that is gone", replies: []Reply{Answer(503, "", "Retry-After: Fri, 31 Dec 1999 23:00:00 GMT"), good}, want: ok(2), less: time.Second},
		{name: "Retry-After that is none", replies: []Reply{Answer(503, "", "Retry-After: soon"), good}, want: ok(2), less: time.Second},
		{name: "Retry-After of a day", replies: []Reply{Answer(429, "", "Retry-After: 86400"), good}, want: fails(abi.CodeResourceExhausted, 1), says: "it wants to be asked again in 24h0m0s", less: time.Second},
		{name: "429 for ever", replies: Always(most, Answer(429, `{"error":{"message":"slow down"}}`)), want: fails(abi.CodeResourceExhausted, most), says: "429 Too Many Requests: slow down (4 attempts)", waits: time.Second, less: 5 * time.Second},
		{name: "no money left", replies: []Reply{Answer(429, `{"error":{"message":"pay","type":"insufficient_quota"}}`)}, want: fails(abi.CodeResourceExhausted, 1), says: "pay"},
		{name: "500 and then an answer", replies: []Reply{Answer(500, "boom"), Answer(529, ""), good}, want: ok(3)},
		{name: "an HTML error page", replies: Always(most, Answer(502, page)), want: fails(abi.CodeUnavailable, most), says: `502 Bad Gateway: a page titled "Bad gateway" (4 attempts)`},
		{name: "an HTML page as the answer", replies: []Reply{Answer(200, page)}, want: fails(abi.CodeInternal, 1), says: `a page titled "Bad gateway" where a completion is wanted; look at its base URL`},
		{name: "a page that is not text", replies: []Reply{Answer(200, "<\x8d\xff\x87><TITLE lang=x> \xa0x")}, want: fails(abi.CodeInternal, 1), says: `a page titled "�x" where a completion is wanted`},
		{name: "a redirect", replies: []Reply{Answer(307, "", "Location: http://elsewhere.invalid/")}, want: fails(abi.CodeInternal, 1), says: "307 Temporary Redirect"},
		{name: "no content", replies: []Reply{Answer(204, "")}, want: fails(abi.CodeInternal, 1), says: "204 No Content"},
		{name: "bad request", replies: []Reply{Answer(400, `{"error":{"message":"no such\nparameter"}}`)}, want: fails(abi.CodeInvalidArgument, 1), says: "400 Bad Request: no such parameter"},
		{name: "not found", replies: []Reply{Answer(404, `{"error":"model not found"}`)}, want: fails(abi.CodeNotFound, 1), says: "model not found"},
		{name: "an endless error", replies: []Reply{func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			Flood("", "no ", 1<<30)(w, r)
		}}, want: fails(abi.CodeInvalidArgument, 1), says: "400 Bad Request: no no no"},

		{name: "cut before the first byte", replies: []Reply{Cut(""), good}, want: ok(2)},
		{name: "cut in the middle", replies: []Reply{Cut(half), good}, want: ok(2)},
		{name: "cut in the middle for ever", replies: Always(most, Cut(half)), want: fails(abi.CodeUnavailable, most), says: "(4 attempts)"},
		{name: "ends in the middle", replies: []Reply{Answer(200, half), good}, want: ok(2)},
		{name: "ends in the middle of JSON", replies: []Reply{Answer(200, api.Whole[:len(api.Whole)/2])}, want: fails(abi.CodeInternal, 1), says: "cannot be read"},
		{name: "an empty body", replies: []Reply{Answer(200, ""), good}, want: ok(2)},
		{name: "never begins", replies: []Reply{Stall(""), good}, want: ok(2), waits: FirstByte},
		{name: "never begins, ever", replies: Always(most, Stall("")), want: fails(abi.CodeDeadlineExceeded, most), says: "no answer has begun within 3m0s", waits: most * FirstByte},
		{name: "stops in the middle", replies: []Reply{Stall(half), good}, want: ok(2), waits: Idle},
		{name: "stops in the middle, ever", replies: Always(most, Stall(half)), want: fails(abi.CodeDeadlineExceeded, most), says: "nothing came for 2m0s", waits: most * Idle},
		{name: "overloaded in the middle", replies: []Reply{Answer(200, api.Overloaded), good}, want: ok(2)},
		{name: "rejected in the middle", replies: []Reply{Answer(200, api.Rejected)}, want: fails(abi.CodeInvalidArgument, 1), says: "an error in the middle of the answer"},

		{name: "garbage", replies: []Reply{Answer(200, "\x00\x01garbage")}, want: fails(abi.CodeInternal, 1), says: "neither JSON nor a stream"},
		{name: "garbage in events", replies: []Reply{Answer(200, "data: {]\n\n")}, want: fails(abi.CodeInternal, 1), says: "its answer cannot be read"},
		{name: "an array", replies: []Reply{Answer(200, "[]")}, want: fails(abi.CodeInternal, 1), says: "cannot be read"},
		{name: "an empty answer", replies: []Reply{Answer(200, api.Empty)}, want: fails(abi.CodeInternal, 1), says: "its answer is empty: neither text nor a tool call"},
		{name: "no choice", replies: []Reply{Answer(200, api.NoChoice)}, want: fails(abi.CodeInternal, 1), says: "to take the answer from"},
		{name: "bad arguments", replies: []Reply{Answer(200, api.BadArgs)}, want: fails(abi.CodeInternal, 1), says: "with arguments that are not a JSON object"},
		{name: "200 MB of text", replies: []Reply{Flood(api.Head, api.Piece, 200<<20)}, want: fails(abi.CodeResourceExhausted, 1), says: "too large"},
		{name: "200 MB of one event", replies: []Reply{Flood("data: ", "x", 200<<20)}, want: fails(abi.CodeResourceExhausted, 1), says: "too large"},
		{name: "200 MB of JSON", replies: []Reply{Flood(`{"a":"`, "x", 200<<20)}, want: fails(abi.CodeResourceExhausted, 1), says: "too large"},
		{name: "200 MB of nothing", replies: []Reply{Flood("", ": ping\n\n", 200<<20)}, want: fails(abi.CodeResourceExhausted, 1), says: "too large"},

		{name: "S4: does not take the key", replies: []Reply{Echo(api.AuthHeader, func(key string) string { return key })}, want: fails(abi.CodeInternal, 1), says: "neither JSON"},
		{name: "S4: quotes the key in an error", replies: []Reply{echoError(400, api.AuthHeader)}, want: fails(abi.CodeInvalidArgument, 1), says: "[key]"},
		{name: "S4: quotes the key where the text is cut", replies: []Reply{Echo(api.AuthHeader, func(key string) string {
			return `data: {"type":"error","error":{"type":"invalid_request_error","message":"` + strings.Repeat("x", 378) + key + `"}}` + "\n\n"
		})}, want: fails(abi.CodeInvalidArgument, 1), says: "xxx"},
		{name: "S4: quotes a part of the key", replies: []Reply{Answer(401, `{"error":{"message":"wrong key sk-canary-*****cdef"}}`)}, want: fails(abi.CodeFailedPrecondition, 1), says: "it does not take the key (401 Unauthorized)"},
		{name: "S4: says the key", replies: []Reply{Echo(api.AuthHeader, api.Says)}, want: fails(abi.CodeInternal, 1), says: "holds the key"},
		{name: "S4: calls a tool with the key", replies: []Reply{Echo(api.AuthHeader, api.Calls)}, want: fails(abi.CodeInternal, 1), says: "holds the key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(tt.name, "200 MB") {
				t.Skip("short: the race detector makes large answers slow")
			}
			synctest.Test(t, func(t *testing.T) {
				s := Serve(t, tt.replies...)
				var got outcome
				var shown shown
				before := heap()
				begun := time.Now()
				r, err := api.New(s).Complete(t.Context(), prompt(), shown.delta)
				took := time.Since(begun)
				if grown := heap() - before; grown > 128<<20 {
					t.Errorf("it takes %d MiB of memory", grown>>20)
				}
				got.Text, got.Tries = r.Message.Text(), len(s.Requests())
				if err != nil {
					got.Code = codeOf(t, err)
					if !strings.Contains(err.Error(), tt.says) {
						t.Errorf("the error is %q; want %q in it", err, tt.says)
					}
					if strings.Contains(err.Error(), "canary") {
						t.Errorf("the error has the key: %q", err)
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("outcome (-want +got), with the error %v:\n%s", err, diff)
				}
				if took < tt.waits || tt.less != 0 && took >= tt.less {
					t.Errorf("it took %s; want %s to %s", took, tt.waits, tt.less)
				}
				shown.check(t, r, err, tt.want.Tries)
				if strings.Contains(shown.text.String(), Canary) {
					t.Error("the key is shown")
				}
			})
		})
	}
	t.Run("the turn's time ends", func(t *testing.T) { timeEnds(t, api, half) })
	t.Run("there is no time to wait", func(t *testing.T) { noTimeToWait(t, api) })
}

func echoError(status int, header string) Reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		Echo(header, func(key string) string { return `{"error":{"message":"you sent ` + key + `"}}` })(w, r)
	}
}

// timeEnds: a call ends with its context, wherever it is.
func timeEnds(t *testing.T, api API, half string) {
	for _, replies := range [][]Reply{{Stall("")}, {Stall(half)}, {Answer(503, "", "Retry-After: 30")}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, cancel)
			_, err := api.New(Serve(t, replies...)).Complete(ctx, prompt(), nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v; want one that wraps ctx.Err()", err)
			}
		})
	}
}

// noTimeToWait: what is left of the time is not spent waiting for nothing.
func noTimeToWait(t *testing.T, api API) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := api.New(Serve(t, Answer(429, "", "Retry-After: 30"))).Complete(ctx, prompt(), nil)
		if code := codeOf(t, err); code != abi.CodeResourceExhausted || time.Since(begun) > time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

func codeOf(t *testing.T, err error) abi.ErrorCode {
	t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) {
		t.Fatalf("the error is %v; want a *model.Error", err)
	}
	return failure.Code
}

// heap is how much memory lives.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// shown is what a watcher has seen of an answer.
type shown struct {
	text     strings.Builder
	done     bool
	attempts []int
}

func (s *shown) delta(d model.Delta) {
	if d.Reset {
		s.text.Reset()
	}
	s.text.WriteString(d.Text)
	s.done = d.Done
	s.attempts = append(s.attempts, d.Attempt)
}

// check: what was shown is the answer and no more, and is of the last attempt.
func (s *shown) check(t *testing.T, r model.Result, err error, tries int) {
	t.Helper()
	if s.done != (err == nil) {
		t.Errorf("done is %v, the error %v", s.done, err)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(r.Message.Text(), s.text.String()); diff != "" {
		t.Errorf("what is shown is not the answer (-answer +shown):\n%s", diff)
	}
	if got, want := s.attempts[len(s.attempts)-1], prompt().Attempt+tries-1; got != want {
		t.Errorf("the last delta is of attempt %d, want %d", got, want)
	}
}

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Failure is why an attempt failed, in words for people.
type Failure struct {
	Code abi.ErrorCode
	Text string
	// Retry: another attempt may do better.
	Retry bool

	free   bool          // it cost nothing: no model began to answer
	down   bool          // the endpoint itself is to blame: the breaker counts it
	status int           // of HTTP, 0 if there was none
	wait   time.Duration // that the provider has asked for
}

// Error is the text.
func (f *Failure) Error() string { return f.Text }

// after is the failure of a whole call.
func (f *Failure) after(tries int) *Failure {
	if tries > 1 {
		f.Text += fmt.Sprintf(" (%d attempts)", tries)
	}
	return f
}

// ErrCut reports an answer that ended before it was whole.
var ErrCut = errors.New("the answer broke off")

// Invalid is the failure of a call that cannot be written as a request.
func Invalid(format string, args ...any) error {
	return &Failure{Code: abi.CodeInvalidArgument, Text: fmt.Sprintf(format, args...), free: true}
}

// Garbage is the failure of an answer that is none. It is not asked for again: it
// may have been paid for, and the next is likely no better.
func Garbage(format string, args ...any) error {
	return &Failure{Code: abi.CodeInternal, Text: fmt.Sprintf(format, args...)}
}

// The causes of an attempt that took too long.
var (
	errFirstByte = errors.New("no answer has begun")
	errIdle      = errors.New("the answer stopped in the middle")
)

// broken is the failure of an attempt whose connection, or answer, broke.
func (c *Client) broken(ctx context.Context, err error) *Failure {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	if errors.Is(err, errEchoed) {
		return &Failure{Code: abi.CodeInternal, Text: err.Error()}
	}
	if errors.Is(err, errTooLarge) {
		return &Failure{Code: abi.CodeResourceExhausted, Text: err.Error()}
	}
	f := &Failure{Code: abi.CodeUnavailable, Retry: true, down: true}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFirstByte):
		f.Code, f.Text = abi.CodeDeadlineExceeded, fmt.Sprintf("%v within %s", cause, c.endpoint.FirstByte)
	case errors.Is(cause, errIdle):
		f.Code, f.Text = abi.CodeDeadlineExceeded, fmt.Sprintf("%v: nothing came for %s", cause, c.endpoint.Idle)
	case errors.Is(err, ErrCut):
		f.Text = err.Error()
	default:
		f.Text = fmt.Sprintf("the connection failed: %v", withoutURL(err))
	}
	return f
}

// withoutURL is an error of net/http without the URL, which may say more than
// people should read.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused is the failure of an attempt that was answered with an error.
func refused(resp *http.Response, body []byte) *Failure {
	p := problemOf(body)
	f := &Failure{status: resp.StatusCode, Text: p.text(resp.StatusCode), free: resp.StatusCode >= 300}
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized:
		// Of all errors this one is likely to quote the key, or a part of it.
		f.Code, f.Text = abi.CodeFailedPrecondition, "it does not take the key (401 Unauthorized)"
	case s == http.StatusForbidden:
		f.Code = abi.CodeFailedPrecondition
	case s == http.StatusNotFound:
		f.Code = abi.CodeNotFound
	case s == http.StatusTooManyRequests:
		f.Code, f.Retry = abi.CodeResourceExhausted, !p.is("insufficient_quota", "billing_hard_limit_reached")
	case s == http.StatusRequestTimeout || s == http.StatusGatewayTimeout:
		// Who says so may stand in front of the model, which goes on.
		f.Code, f.Retry, f.down, f.free = abi.CodeDeadlineExceeded, true, true, false
	case s >= 500:
		f.Code, f.Retry, f.down = abi.CodeUnavailable, true, true
	case s >= 400:
		f.Code = abi.CodeInvalidArgument
	default:
		f.Code = abi.CodeInternal
		f.Text = fmt.Sprintf("it answered %s where a completion is wanted; look at its base URL", statusText(s))
	}
	if f.Retry {
		f.wait = retryAfter(resp.Header)
	}
	return f
}

// InStream is the failure that a provider reports in the middle of an answer,
// where it has no status to send.
func InStream(report []byte) error {
	p := problemOf(report)
	f := &Failure{Code: abi.CodeUnavailable, Text: p.text(0)}
	switch {
	case p.is("insufficient_quota"):
		f.Code = abi.CodeResourceExhausted
	case p.is("rate_limit_error", "rate_limit_exceeded", "429"):
		f.Code, f.Retry = abi.CodeResourceExhausted, true
	case p.is("overloaded_error", "api_error", "timeout_error", "server_error", "internal_error", "internal_server_error", "500", "502", "503", "504", "529"):
		f.Retry, f.down = true, true
	case p.is("invalid_request_error", "400"):
		f.Code = abi.CodeInvalidArgument
	}
	return f
}

// problem is what providers say of an error, in one of the forms they have for
// that.
type problem struct {
	message string
	kinds   []string // its type and code
}

func problemOf(body []byte) problem {
	type details struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"` // a word or a number
	}
	var whole struct {
		details
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &whole) != nil {
		return problem{message: string(body)}
	}
	d := whole.details
	if len(whole.Error) > 0 && json.Unmarshal(whole.Error, &d) != nil && json.Unmarshal(whole.Error, &d.Message) != nil {
		d.Message = string(whole.Error)
	}
	p := problem{message: d.Message, kinds: []string{d.Type}}
	if d.Code != nil {
		p.kinds = append(p.kinds, fmt.Sprint(d.Code))
	}
	if p.message == "" {
		p.message = string(body)
	}
	return p
}

func (p problem) is(kinds ...string) bool {
	return slices.ContainsFunc(p.kinds, func(k string) bool { return slices.Contains(kinds, k) })
}

// maxProblem bounds what is shown of an error that a provider has sent.
const maxProblem = 400

// text says what a provider said, on one line. A page is not for reading: only its
// title is.
func (p problem) text(status int) string {
	message := strings.Join(strings.Fields(strings.ToValidUTF8(p.message, "\uFFFD")), " ")
	if isPage([]byte(message)) {
		message = pageText(message)
	}
	said := "it reports an error in the middle of the answer"
	if status != 0 {
		said = "it answered " + statusText(status)
	}
	if message == "" {
		return said
	}
	return said + ": " + Clip(message, maxProblem)
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// isPage reports whether text, without leading space, is HTML or XML.
func isPage(text []byte) bool { return len(text) > 0 && text[0] == '<' }

var pageTitle = regexp.MustCompile(`(?i)<title[^>]*>\s*([^<]*)`)

// pageText describes a page.
func pageText(page string) string {
	if found := pageTitle.FindStringSubmatch(page); found != nil {
		if title := strings.TrimSpace(strings.ToValidUTF8(found[1], "\uFFFD")); title != "" {
			return fmt.Sprintf("a page titled %q", Clip(title, 100))
		}
	}
	return "a page"
}

// Clip cuts a text that someone else made, for an error.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// retryAfter is how long a provider asks to wait: the header has seconds, or a
// date. There are no bounds on what it says.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return seconds(s)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

func seconds(s float64) time.Duration {
	const most = float64(24 * time.Hour / time.Second)
	if !(s > 0) { // not a number, too
		return 0
	}
	return time.Duration(min(s, most) * float64(time.Second))
}

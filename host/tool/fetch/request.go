package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/sdk/abi"
)

// request is what is asked for: by a harness, or by who sends its request elsewhere.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   string
	// strayed: it was sent on to another origin. From then on it has no header of the
	// operator's, wherever it is sent.
	strayed bool
}

// maxURL bounds a URL.
const maxURL = 8 << 10

// request reads the arguments of a call.
func (f *Fetcher) request(args abi.Struct) (*request, error) {
	var a arguments
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return nil, errors.New("the arguments are not an object with url, and perhaps method, headers and body")
	}
	if a.Method == "" {
		a.Method = http.MethodGet
	}
	r := &request{method: strings.ToUpper(a.Method), body: a.Body, header: http.Header{}}
	switch {
	case len(a.URL) > maxURL:
		return nil, fmt.Errorf("%w: a URL of more than %d bytes", ErrRefused, maxURL)
	case len(a.Body) > f.cfg.Limits.RequestBytes:
		return nil, fmt.Errorf("%w: a body of more than %d bytes", ErrRefused, f.cfg.Limits.RequestBytes)
	case a.Body != "" && (r.method == http.MethodGet || r.method == http.MethodHead):
		return nil, fmt.Errorf("%w: %s has no body", ErrRefused, r.method)
	}
	var err error
	if r.url, err = parseURL(a.URL); err != nil {
		return nil, err
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		value := a.Headers[name]
		name = textproto.CanonicalMIMEHeaderKey(name)
		size += len(name) + len(value)
		switch {
		case !f.may[name]:
			return nil, fmt.Errorf("%w: the header %.60q; those that are: %s", ErrRefused, name, strings.Join(slices.Sorted(maps.Keys(f.may)), ", "))
		case size > maxURL || !headerValue(value):
			return nil, fmt.Errorf("%w: the value of the header %.60q", ErrRefused, name)
		}
		r.header.Set(name, value)
	}
	return r, nil
}

// parseURL reads an absolute URL.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: want a URL that begins with https:// or http://", ErrRefused)
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the URL has no host")
	case u.User != nil:
		return nil, fmt.Errorf("%w: a URL with a user or password", ErrRefused)
	}
	if name, literal := hostOf(u); !literal && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		// What else there is, may turn into another host on its way.
		return nil, fmt.Errorf("%w: a host with other characters than letters, digits, -, _ and .; other alphabets are written xn--", ErrRefused)
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// headerValue reports whether a header can have the value.
func headerValue(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// hostOf is the host of a URL in the form in which rules have it: a name, or an address
// if it is one.
func hostOf(u *url.URL) (name string, literal bool) {
	name = strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().String(), true
	}
	return name, false
}

func portOf(u *url.URL) (int, error) {
	switch {
	case u.Port() != "":
		return strconv.Atoi(u.Port())
	case u.Scheme == "https":
		return 443, nil
	}
	return 80, nil
}

// origin is what the operator's headers are bound to.
func origin(u *url.URL) string {
	name, _ := hostOf(u)
	port, _ := portOf(u) // one that cannot be read is 0, and no rule allows it
	return fmt.Sprintf("%s://%s:%d", u.Scheme, name, port)
}

// rule is a rule and the transport of its requests.
type rule struct {
	config.FetchRule
	transport *http.Transport
}

// allows reports whether a request is one of the rule's.
func (r *rule) allows(method string, u *url.URL) bool {
	name, literal := hostOf(u)
	port, err := portOf(u)
	return err == nil && r.hasHost(name, literal) && r.hasPort(u.Scheme, port) &&
		slices.Contains(r.Methods, method) && slices.Contains(r.Schemes, u.Scheme)
}

func (r *rule) hasHost(name string, literal bool) bool {
	if name == r.Host {
		return true
	}
	below, pattern := strings.CutPrefix(r.Host, "*")
	return pattern && !literal && strings.HasSuffix(name, below) && name != below
}

func (r *rule) hasPort(scheme string, port int) bool {
	if len(r.Ports) == 0 {
		return port == map[string]int{"http": 80, "https": 443}[scheme]
	}
	return slices.Contains(r.Ports, port)
}

// send makes a request under the first rule that allows it, and adds to sent the
// secrets that it has.
func (f *Fetcher) send(ctx context.Context, r *request, sent *secrets) (*http.Response, error) {
	i := slices.IndexFunc(f.rules, func(one *rule) bool { return one.allows(r.method, r.url) })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s %.200s is not among what this host allows", ErrRefused, r.method, origin(r.url))
	}
	hr, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), strings.NewReader(r.body))
	if err != nil {
		return nil, errors.New("the request cannot be written")
	}
	if r.body == "" {
		hr.Body, hr.ContentLength = http.NoBody, 0
	}
	hr.Header = r.header.Clone()
	hr.Header.Set("User-Agent", "agentcell-fetch")
	if !r.strayed {
		if err := f.operatorHeaders(f.rules[i], hr.Header, sent); err != nil {
			return nil, err
		}
	}
	hr.Header.Set("Accept-Encoding", "gzip")
	resp, err := f.rules[i].transport.RoundTrip(hr)
	if err != nil {
		return nil, fmt.Errorf("%.200s: %w", origin(r.url), plain(err))
	}
	return resp, nil
}

// plain is why a request failed, without the addresses that it had, and without much of
// what a server said.
func plain(err error) error {
	if errors.Is(err, ErrRefused) {
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("%.300v", err)
}

// secrets are those that were sent with the requests of a call.
type secrets []string

// in reports whether one of them is in a text. Hosts lose the case of their letters.
func (s secrets) in(text string) bool {
	if len(s) == 0 {
		return false
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(s, func(one string) bool { return strings.Contains(text, strings.ToLower(one)) })
}

// minSecret is the length below which a secret is too likely a word of an answer to be
// looked for there.
const minSecret = 8

// operatorHeaders sets the headers that a rule has.
func (f *Fetcher) operatorHeaders(r *rule, h http.Header, sent *secrets) error {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		v := r.Headers[name]
		value := v.Text
		if v.Key != "" {
			secret, err := v.Key.Find(f.o.Getenv, f.o.Secret)
			if err != nil {
				return fmt.Errorf("the header %s: %w", name, err)
			}
			secret = strings.TrimSpace(secret)
			if len(secret) < minSecret {
				return fmt.Errorf("the header %s: %s is shorter than %d characters", name, v.Key, minSecret)
			}
			value += secret
			*sent = append(*sent, secret)
		}
		if !headerValue(value) {
			return fmt.Errorf("the header %s: its value has a character that a header cannot have", name)
		}
		h.Set(name, value)
	}
	return nil
}

// redirected is the request that an answer sends r on to, nil if it is an answer to r.
func (r *request) redirected(resp *http.Response) (*request, error) {
	next := *r
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if r.method != http.MethodGet && r.method != http.MethodHead && (resp.StatusCode == http.StatusSeeOther || r.method == http.MethodPost) {
			next.method, next.body, next.header = http.MethodGet, "", r.header.Clone()
			next.header.Del("Content-Type")
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	to, err := r.url.Parse(location)
	if err != nil || len(location) > maxURL {
		return nil, errors.New("it was sent on to a URL that cannot be read")
	}
	if next.url, err = parseURL(to.String()); err != nil {
		return nil, fmt.Errorf("it was sent on: %w", err)
	}
	next.strayed = r.strayed || origin(next.url) != origin(r.url)
	return &next, nil
}

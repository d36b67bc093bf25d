package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// Fetch is the tool that fetches what is at a URL: where it may go, and with what.
type Fetch struct {
	// Rules say what is allowed: the first one that has the host, port, scheme and
	// method of a request counts.
	Rules []FetchRule `yaml:"rules"`
	// Headers are names of headers that a model may set, beside the usual ones.
	Headers []string `yaml:"headers"`
	// Approval: a person decides on each call.
	Approval bool `yaml:"approval"`

	Timeouts struct {
		Connect Duration `yaml:"connect"`
		Total   Duration `yaml:"total"`
	} `yaml:"timeouts"`
	Limits struct {
		BodyBytes    int  `yaml:"body_bytes"`
		RequestBytes int  `yaml:"request_bytes"`
		Redirects    *int `yaml:"redirects"`
	} `yaml:"limits"`
}

// FetchRule allows some requests.
type FetchRule struct {
	// Host is a name, an address, "*.example.com" for the names below one, or "*" for
	// all names. No pattern stands for addresses.
	Host string `yaml:"host"`
	// Methods, Ports and Schemes are those that are allowed: GET and HEAD, the
	// scheme's own port and https, if there are none here.
	Methods []string `yaml:"methods"`
	Ports   []int    `yaml:"ports"`
	Schemes []string `yaml:"schemes"`
	// Private lets the host have an address that is not public.
	Private bool `yaml:"private"`
	// Headers are sent with each request that the rule allows.
	Headers map[string]Value `yaml:"headers"`
}

// MaxFetchBody is the most that body_bytes and request_bytes may be.
const MaxFetchBody = 4 << 20

// check finds what is wrong, and fills in the defaults of the rules.
func (f *Fetch) check() error {
	if len(f.Rules) == 0 {
		return errors.New("rules: nothing is allowed; want one at least, such as {host: example.com}")
	}
	for i := range f.Rules {
		if err := f.Rules[i].check(); err != nil {
			return at(fmt.Errorf("rules, at %d: %w", i, err), "rules", strconv.Itoa(i))
		}
	}
	for _, name := range f.Headers {
		if !headerRule.MatchString(name) || ReservedHeader(name) {
			return at(fmt.Errorf("headers: a model may not set %.40q", name), "headers")
		}
	}
	for _, n := range []int{f.Limits.BodyBytes, f.Limits.RequestBytes} {
		if n < 0 || n > MaxFetchBody {
			return at(fmt.Errorf("limits: want at most %d bytes", MaxFetchBody), "limits")
		}
	}
	if r := f.Limits.Redirects; r != nil && (*r < 0 || *r > 20) {
		return at(errors.New("limits: want 0 to 20 redirects"), "limits", "redirects")
	}
	return nil
}

func (r *FetchRule) check() error {
	if err := r.checkHost(); err != nil {
		return err
	}
	if len(r.Methods) == 0 {
		r.Methods = []string{"GET", "HEAD"}
	}
	for _, m := range r.Methods {
		if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, m) {
			return fmt.Errorf("methods: %.40q: want GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS", m)
		}
	}
	if len(r.Schemes) == 0 {
		r.Schemes = []string{"https"}
	}
	for _, s := range r.Schemes {
		if s != "https" && s != "http" {
			return fmt.Errorf("schemes: %.40q: want https or http", s)
		}
	}
	for _, p := range r.Ports {
		if p < 1 || p > 65535 {
			return fmt.Errorf("ports: %d: want 1 to 65535", p)
		}
	}
	for name, v := range r.Headers {
		switch {
		case !headerRule.MatchString(name) || connectionHeader(name):
			return fmt.Errorf("headers: %.40q cannot be set", name)
		case v.Key == "" && ReservedHeader(name):
			return fmt.Errorf("headers: %s has a secret; want where that is, env:NAME or secret:NAME, with a word before it where there is one, as in Bearer secret:NAME", name)
		case v.Key != "" && r.Host == "*":
			return fmt.Errorf("headers: %s would send %s to any host", name, v.Key)
		}
	}
	return nil
}

// checkHost brings the host into the form in which it is compared.
func (r *FetchRule) checkHost() error {
	if r.Host == "*" {
		return nil
	}
	r.Host = strings.ToLower(strings.TrimSuffix(r.Host, "."))
	if a, err := netip.ParseAddr(strings.Trim(r.Host, "[]")); err == nil && a.Zone() == "" {
		r.Host = a.Unmap().String()
		return nil
	}
	name := strings.TrimPrefix(r.Host, "*.")
	const chars = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	if name == "" || len(name) > 253 || strings.Trim(name, chars) != "" || strings.Contains(name, "..") || name[0] == '.' {
		return fmt.Errorf("host: %.40q: want a name such as example.com, *.example.com, * or an address; others than ASCII as xn--", r.Host)
	}
	return nil
}

// connectionHeader reports whether a header is that of the connection, which whoever
// makes the request has in hand, and nobody else.
func connectionHeader(name string) bool {
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Host", "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding", "Te", "Trailer",
		"Upgrade", "Expect", "Accept-Encoding", "Http2-Settings":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// ReservedHeader reports whether a header is one that no model may set: that of the
// connection, or one that says who asks.
func ReservedHeader(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "X-Auth-Token", "Forwarded", "X-Forwarded-For",
		"X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
		"Metadata-Flavor", "X-Aws-Ec2-Metadata-Token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds":
		return true
	}
	return secretNames.MatchString(name) || connectionHeader(name)
}

package extism

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"

	sdk "github.com/extism/go-sdk"

	"github.com/agentcell/agentcell/host/tool"
)

// MaxRedirects is how often one request may be sent on.
const MaxRedirects = 10

// request is what a plug-in asks for.
type request struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
}

// newClient makes a client whose requests, which are those of plug-ins, stay among the
// plug-in's hosts wherever an answer sends them on to.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dial,
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        100,
			IdleConnTimeout:     90 * time.Second,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= MaxRedirects {
				return fmt.Errorf("it was sent on more than %d times", MaxRedirects)
			}
			return allowed(caller(r.Context()).AllowedHosts, r.URL)
		},
	}
}

// errPrivate reports a name that turned out to stand for a private address.
var errPrivate = errors.New("it has a private address, which only a host that is named by its address may have")

// dial connects to a host. One that has a name may not turn out to be a private
// address: whoever says what its name stands for has no say in what is near us.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !near(host) {
		d.Control = refusePrivate
	}
	return d.DialContext(ctx, network, address)
}

// refusePrivate is asked of each address before a connection is made to it.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !tool.PublicAddress(to.Addr()) {
		return errPrivate
	}
	return nil
}

// near reports whether a host is named in a way that may stand for a private address.
func near(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// allowed reports whether hosts has the host of u. What is named by its address, and
// localhost, no pattern stands for.
func allowed(hosts []string, u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the scheme %.20q is not allowed", u.Scheme)
	}
	name := strings.ToLower(u.Hostname())
	for _, h := range hosts {
		h = strings.ToLower(strings.Trim(h, "[]"))
		if h == name {
			return nil
		}
		if match, err := path.Match(h, name); match && err == nil && !near(name) {
			return nil
		}
	}
	return fmt.Errorf("host %.100q is not allowed; those of --allow-host are", name)
}

// caller is the plug-in that calls: the SDK puts it there.
func caller(ctx context.Context) *sdk.Plugin {
	return ctx.Value(sdk.PluginCtxKey("plugin")).(*sdk.Plugin)
}

// httpFunction is the http_request of plug-ins. That of the SDK follows an answer to
// hosts that are not allowed, and to any address.
func httpFunction(client *http.Client) sdk.HostFunction {
	f := sdk.NewHostFunctionWithStack(httpRequest, func(ctx context.Context, p *sdk.CurrentPlugin, stack []uint64) {
		offset, err := send(ctx, client, p, stack[0], stack[1])
		if err != nil {
			// The way in which a function of the host fails: the engine makes it
			// the error of the call.
			panic(fmt.Errorf("http request: %w", err))
		}
		stack[0] = offset
	}, []sdk.ValueType{sdk.ValueTypeI64, sdk.ValueTypeI64}, []sdk.ValueType{sdk.ValueTypeI64})
	f.SetNamespace(hostModule)
	return f
}

// send makes one request and gives where its answer stands, 0 for an empty one.
func send(ctx context.Context, client *http.Client, p *sdk.CurrentPlugin, requestOffset, bodyOffset uint64) (uint64, error) {
	plugin := caller(ctx)
	plugin.LastStatusCode = 0
	clear(plugin.LastResponseHeaders)
	r, err := readRequest(ctx, p, requestOffset, bodyOffset)
	if err != nil {
		return 0, err
	}
	if err := allowed(plugin.AllowedHosts, r.URL); err != nil {
		return 0, err
	}
	response, err := client.Do(r)
	if err != nil {
		// Without the URL, in which a key may stand.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, plugin.MaxHttpResponseBytes+1))
	switch {
	case err != nil:
		return 0, err
	case int64(len(body)) > plugin.MaxHttpResponseBytes:
		return 0, fmt.Errorf("the answer has more than %d bytes", plugin.MaxHttpResponseBytes)
	}
	plugin.LastStatusCode = response.StatusCode
	for name, values := range response.Header {
		plugin.LastResponseHeaders[strings.ToLower(name)] = strings.Join(values, ",")
	}
	if len(body) == 0 {
		return 0, nil
	}
	return p.WriteBytes(body)
}

func readRequest(ctx context.Context, p *sdk.CurrentPlugin, requestOffset, bodyOffset uint64) (*http.Request, error) {
	text, err := p.ReadBytes(requestOffset)
	if err != nil {
		return nil, err
	}
	var wanted request
	if err := json.Unmarshal(text, &wanted); err != nil {
		return nil, errors.New("what is asked for is not JSON of a request")
	}
	body := io.Reader(http.NoBody)
	if bodyOffset != 0 {
		b, err := p.ReadBytes(bodyOffset)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	method := strings.ToUpper(wanted.Method)
	if method == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, wanted.URL, body)
	if err != nil {
		return nil, errors.New("the method or the URL is not one")
	}
	for name, value := range wanted.Headers {
		r.Header.Set(name, value)
	}
	return r, nil
}

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/tool"
)

const (
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
	// maxAddresses is how many addresses of a name are tried.
	maxAddresses = 8
)

// newRule makes a rule with its transport.
func (f *Fetcher) newRule(c config.FetchRule) *rule {
	return &rule{c, &http.Transport{
		Proxy: nil, // not that of the environment
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return f.dial(ctx, c, address)
		},
		TLSHandshakeTimeout:    f.connect,
		DisableKeepAlives:      true,
		DisableCompression:     true, // result bounds what it takes apart
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// dial connects to a host that a rule allows. It finds its addresses out once, and
// connects to one that it has looked at: who answers for a name cannot say one thing
// first and another one then. One address that the rule does not let it have is reason
// enough to go to none.
func (f *Fetcher) dial(ctx context.Context, r config.FetchRule, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.connect)
	defer cancel()
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	addresses, err := f.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if err := check(r, a); err != nil {
			return nil, err
		}
	}
	var failed error
	for i, a := range addresses {
		conn, err := f.try(ctx, r, netip.AddrPortFrom(a, uint16(number)), len(addresses)-i)
		if err == nil {
			return conn, nil
		}
		failed = err
	}
	return nil, failed
}

// resolve gives the addresses of a name, which may be one itself.
func (f *Fetcher) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	lookup := f.o.Resolve
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	found, err := lookup(ctx, name)
	if err != nil || len(found) == 0 {
		return nil, errors.New("its name cannot be resolved")
	}
	var addresses []netip.Addr
	for _, a := range found[:min(len(found), maxAddresses)] {
		addresses = append(addresses, a.Unmap())
	}
	return addresses, nil
}

// try connects to an address, in its share of the time that is left.
func (f *Fetcher) try(ctx context.Context, r config.FetchRule, to netip.AddrPort, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	if f.o.Dial != nil {
		return f.o.Dial(ctx, to)
	}
	return dialer(r).DialContext(ctx, "tcp", to.String())
}

// dialer looks at the address once more when the socket is there: the last moment, and
// the address that counts.
func dialer(r config.FetchRule) *net.Dialer {
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return check(r, to.Addr().Unmap())
	}}
}

// check refuses an address that a rule does not let its host have.
func check(r config.FetchRule, a netip.Addr) error {
	switch {
	case a.Zone() != "":
		return fmt.Errorf("%w: an address with a zone", ErrRefused)
	case a.String() == r.Host && r.Private:
		return nil // it is meant
	case tool.SpecialAddress(a):
		return fmt.Errorf("%w: its address is one of this machine's network or of its cloud's metadata; a rule for that very address, with private, would allow it", ErrRefused)
	case !r.Private && !tool.PublicAddress(a):
		return fmt.Errorf("%w: its address is not public; a rule with private would allow it", ErrRefused)
	}
	return nil
}

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
	case within(a, special()):
		return fmt.Errorf("%w: its address is one of this machine's network or of its cloud's metadata; a rule for that very address, with private, would allow it", ErrRefused)
	case !r.Private && !Public(a):
		return fmt.Errorf("%w: its address is not public; a rule with private would allow it", ErrRefused)
	}
	return nil
}

// Public reports whether an address is one of the internet's, which is for everybody.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		return Public(netip.AddrFrom4([4]byte(b[12:])))
	}
	if a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
		return false
	}
	return a.IsValid() && !within(a, special()) && !within(a, reserved())
}

func within(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// special are addresses that no name may stand for: links, groups, nothing, and where
// clouds tell a machine its secrets.
func special() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
		"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
		"::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32",
	)
}

// reserved are the rest of the addresses that are not public, as the registries of
// special-purpose addresses (RFC 6890) have them. Those that stand for another one are
// among them: Teredo, 6to4.
func reserved() []netip.Prefix {
	return prefixes(
		"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	)
}

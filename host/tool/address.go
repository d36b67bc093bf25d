package tool

import "net/netip"

// PublicAddress reports whether an address is one of the internet's, which is for everybody.
func PublicAddress(a netip.Addr) bool {
	a = embedded(a)
	if a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
		return false
	}
	return a.IsValid() && !within(a, special()) && !within(a, reserved())
}

// SpecialAddress reports whether an address is one that no name may stand for: links,
// groups, nothing, and where clouds tell a machine its secrets.
func SpecialAddress(a netip.Addr) bool { return within(embedded(a), special()) }

// embedded is the address of IPv4 that one of IPv6 leads to, or else a itself, without
// the zone, by which no prefix knows it.
func embedded(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
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

func special() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
		"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
		"::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128",
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

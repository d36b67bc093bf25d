package tool_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/host/tool"
)

func TestPublicAddress(t *testing.T) {
	private := "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.255 168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 " +
		"192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 " +
		":: ::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::7f00:1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:a00:1:: 3fff::1 " +
		"fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1"
	public := "1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.167.1.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::808:808 2606:4700::1111 2a00:1450::1"
	var got []string
	for text := range strings.FieldsSeq(private + " " + public) {
		if tool.PublicAddress(netip.MustParseAddr(text)) {
			got = append(got, text)
		}
	}
	if want := strings.Fields(public); !slices.Equal(want, got) {
		t.Errorf("public are %v, want %v", got, want)
	}
	if tool.PublicAddress(netip.Addr{}) || tool.SpecialAddress(netip.Addr{}) {
		t.Error("no address is public, or special")
	}
}

// What no name may stand for, in every form that leads there.
func TestSpecialAddress(t *testing.T) {
	special := "0.0.0.0 169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b::6464:64c8 fe80::1 fe80::1%eth0 ::ffff:169.254.1.1%eth0 ff02::1 :: 224.0.0.1 " +
		"168.63.129.16 100.100.100.200 fd00:ec2::254 fd20:ce::254"
	other := "10.0.0.1 127.0.0.1 ::1 93.184.216.34 64:ff9b::a00:1 fd00::1 fd20:ce::255 2606:4700::1111"
	var got []string
	for text := range strings.FieldsSeq(special + " " + other) {
		if tool.SpecialAddress(netip.MustParseAddr(text)) {
			got = append(got, text)
		}
	}
	if want := strings.Fields(special); !slices.Equal(want, got) {
		t.Errorf("special are %v, want %v", got, want)
	}
	if tool.PublicAddress(netip.MustParseAddr("fe80::1%eth0")) {
		t.Error("a link is public")
	}
}

package fetch

import (
	"errors"
	"net"
	"testing"

	"github.com/agentcell/agentcell/host/config"
)

// The socket itself connects to no address that the rule does not allow, whatever was
// looked at before.
func TestDialer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rule := config.FetchRule{Host: "site.example"}
	if c, err := dialer(rule).DialContext(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, ErrRefused) {
		t.Errorf("%v, %v", c, err)
	}
	rule.Private = true
	c, err := dialer(rule).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

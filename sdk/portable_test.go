package sdk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// carrier is portable as far as its functions go.
type carrier struct {
	sdk.Harness
	save func() ([]byte, error)
	load func([]byte) error
}

func (c carrier) Save() ([]byte, error)   { return c.save() }
func (c carrier) Load(state []byte) error { return c.load(state) }

func TestSaveAndLoadState(t *testing.T) {
	broken := errors.New("broken")
	var got string
	good := carrier{
		save: func() ([]byte, error) { return []byte("a state"), nil },
		load: func(state []byte) error { got = string(state); return nil },
	}
	host := new(sdktest.Host)
	if err := host.Upgrade(good, good); err != nil || got != "a state" {
		t.Errorf("loaded %q, %v", got, err)
	}
	if n := len(host.Records); n != 1 || host.Records[0].Event.Lifecycle.Kind != abi.LifecycleUpgrade {
		t.Errorf("records %+v", host.Records)
	}
	var unimplemented *abi.Error
	for name, test := range map[string]struct {
		old, fresh sdk.Harness
		is         func(error) bool
	}{
		"save fails":  {carrier{save: func() ([]byte, error) { return nil, broken }}, good, func(err error) bool { return errors.Is(err, broken) }},
		"save panics": {carrier{save: func() ([]byte, error) { panic("oops") }}, good, func(err error) bool { return strings.Contains(err.Error(), "panic: oops") }},
		"load fails":  {good, carrier{load: func([]byte) error { return broken }}, func(err error) bool { return errors.Is(err, broken) }},
		"load panics": {good, carrier{load: func([]byte) error { panic("oops") }}, func(err error) bool { return strings.Contains(err.Error(), "panic: oops") }},
		"no harness":  {nil, good, func(err error) bool { return errors.Is(err, sdk.ErrNoHarness) }},
		"not portable": {struct{ sdk.Harness }{}, good, func(err error) bool {
			return errors.As(err, &unimplemented) && unimplemented.Code == abi.CodeUnimplemented
		}},
		"too large": {carrier{save: func() ([]byte, error) { return make([]byte, abi.MaxStateBytes+1), nil }}, good, func(err error) bool {
			return strings.Contains(err.Error(), "67108865 bytes")
		}},
	} {
		host := new(sdktest.Host)
		if err := host.Upgrade(test.old, test.fresh); err == nil || !test.is(err) || len(host.Records) != 0 {
			t.Errorf("%s: %v, %d records", name, err, len(host.Records))
		}
	}
}

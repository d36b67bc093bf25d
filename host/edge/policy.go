package edge

import (
	"context"
	"sync"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// policyFile is where the policy of a host is. It is read and compiled once, when it is
// first wanted.
type policyFile struct {
	path string
	load func() (*policy.Policy, error)
}

// findPolicy is the file that o names, or else the configuration, or else the one in the
// data directory, if there is one.
func findPolicy(dir string, o Options, file config.File) policyFile {
	path, given := o.PolicyFile, true
	if path == "" {
		path, given = file.PolicyPath(dir, o.ConfigFile)
	}
	return policyFile{path, sync.OnceValues(func() (*policy.Policy, error) {
		text, ok, err := config.ReadPolicy(path, given)
		if err != nil || !ok {
			return nil, err
		}
		return policy.Parse(path, text)
	})}
}

// keeping is the policy for the turns of a host, whose text the store keeps before the
// first of them.
func (f policyFile) keeping(store *host.PolicyStore) func(turn.Subject) (turn.Policy, error) {
	kept := sync.OnceValues(func() (*policy.Policy, error) {
		p, err := f.load()
		if p == nil || err != nil {
			return nil, err
		}
		return p, store.Keep(context.Background(), p.Text())
	})
	return func(s turn.Subject) (turn.Policy, error) {
		p, err := kept()
		if p == nil || err != nil {
			return nil, err
		}
		return p.For(s), nil
	}
}

// keptPolicy is the policy with that digest, among those that the store keeps.
func keptPolicy(store *host.PolicyStore) func(abi.Digest, turn.Subject) (turn.Policy, error) {
	return func(digest abi.Digest, s turn.Subject) (turn.Policy, error) {
		text, err := store.Get(digest)
		if err != nil {
			return nil, err
		}
		p, err := policy.Parse(digest.String(), text)
		if err != nil {
			return nil, err
		}
		return p.For(s), nil
	}
}

// Policy is the policy of the directory dir or of o, and where it is; nil if there is
// none. It needs no store.
func Policy(dir string, o Options) (p *policy.Policy, path string, err error) {
	s, err := settle(dir, o)
	if err != nil {
		return nil, "", err
	}
	p, err = s.policy.load()
	return p, s.policy.path, err
}

// Policy is the policy under which the host's turns begin and go on, nil if there is none.
// While it is an error no turn does: who makes a session to run a turn in asks first.
func (h *Host) Policy() (*policy.Policy, error) { return h.policy.load() }

// PolicyStore keeps the policies under which turns have run.
func (h *Host) PolicyStore() *host.PolicyStore { return h.policies }

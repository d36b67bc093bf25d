package inproc_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/runtimes/runtimetest"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestConformance(t *testing.T) { runtimetest.Run(t, open) }

func BenchmarkRuntime(b *testing.B) { runtimetest.Benchmark(b, open) }

func open(testing.TB) runtimetest.Fixture {
	return runtimetest.Fixture{
		Runtime: inproc.New(map[string]func() sdk.Harness{
			"echo":    func() sdk.Harness { return echo{} },
			"counter": func() sdk.Harness { return new(counter) },
		}),
		Echo:    runtimes.Module{Name: "echo"},
		Counter: runtimes.Module{Name: "counter"},
		Bad:     runtimes.Module{Name: "bad"},
	}
}

// echo and counter do what the bundled harnesses of these names do with the
// suite's inputs; those are programs, which nothing can import.
type echo struct{}

func (echo) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "echo"} }

func (echo) Run(ctx context.Context, t *sdk.Turn) error {
	n := len(t.Inputs())
	if n == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "no input"}
	}
	_, err := t.Model(ctx, abi.ModelCall{Messages: t.Inputs()[n-1:]})
	return err
}

type counter struct{ total int }

func (*counter) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID: "counter", Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot},
	}
}

func (c *counter) Run(ctx context.Context, t *sdk.Turn) error {
	for _, input := range t.Inputs() {
		n, err := strconv.Atoi(input.Text())
		if err != nil {
			return err
		}
		c.total += n
		if err := t.OutputText(ctx, fmt.Sprintf("added %d, total %d", n, c.total)); err != nil {
			return err
		}
	}
	return nil
}

// Save and Load are those of an sdk.Portable.
func (c *counter) Save() ([]byte, error) { return fmt.Appendf(nil, "{%d}", c.total), nil }

func (c *counter) Load(state []byte) error {
	_, err := fmt.Sscanf(string(state), "{%d}", &c.total)
	return err
}

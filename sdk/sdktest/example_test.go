package sdktest_test

import (
	"context"
	"fmt"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// parrot says how many inputs the session has had, and asks no model.
type parrot struct{}

func (parrot) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "parrot"} }

func (parrot) Run(ctx context.Context, t *sdk.Turn) error {
	count := len(t.Inputs())
	for _, err := range t.History(ctx, sdk.HistoryQuery{Kinds: []abi.EventKind{abi.EventInput}}) {
		if err != nil {
			return err
		}
		count++
	}
	return t.OutputText(ctx, fmt.Sprintf("%d so far", count))
}

func ExampleHost() {
	host := new(sdktest.Host)
	for _, input := range []string{"one", "two"} {
		outputs, err := host.Run(context.Background(), parrot{}, input)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(outputs[0].Text())
	}
	for _, r := range host.Records {
		fmt.Println(r.Seq, r.Event.Kind)
	}
	// Output:
	// 1 so far
	// 2 so far
	// 1 EVENT_EXECUTION_START
	// 2 EVENT_INPUT
	// 3 EVENT_OUTPUT
	// 4 EVENT_END
	// 5 EVENT_EXECUTION_START
	// 6 EVENT_INPUT
	// 7 EVENT_OUTPUT
	// 8 EVENT_END
}

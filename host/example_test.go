package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/runtimes"
	"github.com/agentcell/agentcell/runtimes/inproc"
	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// A host is made of parts: a journal, runtimes, models. Package edge has the
// usual ones; here a harness runs in this process and the journal in memory.
func Example() {
	ctx := context.Background()
	store := journal.OpenMemory()
	defer store.Close()
	h, err := host.New(host.Config{
		Journal:      store,
		Runtimes:     []runtimes.Runtime{inproc.New(map[string]func() sdk.Harness{"native": func() sdk.Harness { return native{} }})},
		Models:       map[string]model.Provider{"echo": echo.Provider{}},
		DefaultModel: "echo",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()

	s, err := h.Create(ctx, host.CreateRequest{Harness: host.Harness{Name: "native", Code: []byte("version 1")}})
	if err != nil {
		log.Fatal(err)
	}
	turn, err := h.Exec(ctx, host.ExecRequest{
		Session: s.UID,
		Inputs:  []abi.Message{abi.Text(abi.RoleUser, "hello")},
		Observe: func(u host.Update) {
			if u.Record != nil {
				fmt.Println(u.Record.Seq, u.Record.Event.Kind)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(turn.State)
	// Output:
	// 1 EVENT_LIFECYCLE
	// 2 EVENT_EXECUTION_START
	// 3 EVENT_INPUT
	// 4 EVENT_MODEL_CALL
	// 5 EVENT_OUTPUT
	// 6 EVENT_END
	// COMPLETED
}

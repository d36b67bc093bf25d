package edge_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

// One durable session in a directory, with no server, no key and no config.
func Example() {
	h, err := edge.Open("/var/lib/myagent", edge.Options{CacheDir: "/var/cache/myagent"})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()

	counter, err := edge.Bundled("counter")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := h.Create(ctx, host.CreateRequest{Name: "sum", Harness: counter})
	if err != nil {
		log.Fatal(err)
	}
	for _, input := range []string{"3", "4", "total"} {
		turn, err := h.Exec(ctx, host.ExecRequest{
			Session: s.UID,
			Inputs:  []abi.Message{abi.Text(abi.RoleUser, input)},
			Observe: func(u host.Update) {
				if u.Record != nil && u.Record.Event.Kind == abi.EventOutput {
					fmt.Println(u.Record.Event.Message.Text())
				}
			},
		})
		if err != nil {
			log.Fatal(err) // the turn did not end: Resume goes on with it
		}
		if turn.State != abi.StateCompleted {
			fmt.Println(turn.Reason, turn.Err)
		}
	}
	// Proof: every turn run again on what was recorded, no provider asked.
	proof, err := h.Verify(ctx, host.VerifyRequest{Session: s.UID, Reexecute: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(proof.Reexecuted, "turns verified")
}

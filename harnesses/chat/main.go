// Chat is a conversation with a model: each turn sends what was said before and
// what is said now. It holds no memory of its own; what was said before is read from
// the session's record, so a prompt is a function of the record alone.
//
//	$ agentctl exec --harness chat --config '{"system":"Be brief."}' --input hi
//
// Configuration, all of it optional:
//
//	system        a message of role "system" that stands first in each prompt
//	max_messages  how many messages a prompt may have beside it (default 64)
//	max_bytes     how many bytes they may have, as JSON (default 131072)
//
// # What is sent
//
// The inputs of this turn are always sent, whatever the bounds. Before them
// stand the latest turns of the record that fit within both bounds together with
// these inputs. Turns are kept or dropped whole, so an answer never stands
// without its question: reading backwards from the newest, the first turn that does
// not fit is dropped, and so is everything before it.
//
// A turn's messages are its inputs and outputs, in the order of the record and
// verbatim, a provider's opaque reasoning included (I2). Turns that did not
// complete are left out, inputs and all: the person asks again, and would
// otherwise be heard twice. The same holds for a harness with memory, which a failed
// turn leaves untouched.
//
// A turn without input fails.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

type config struct {
	System      string `json:"system"`
	MaxMessages int    `json:"max_messages"`
	MaxBytes    int    `json:"max_bytes"`
}

type chat struct{}

func (chat) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:      "chat",
		Version: "1",
		Capabilities: &abi.Capabilities{
			Resumability: abi.StatelessReplay, ForkSafe: true, Streaming: true, ReasoningReplay: true,
		},
	}
}

func (chat) Run(ctx context.Context, t *sdk.Turn) error {
	c := config{MaxMessages: 64, MaxBytes: 128 << 10}
	if err := t.DecodeConfig(&c); err != nil {
		return err
	}
	if c.MaxMessages < 1 || c.MaxBytes < 1 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "config: max_messages and max_bytes must be positive"}
	}
	if len(t.Inputs()) == 0 {
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "chat: the turn has no input"}
	}
	messages, err := prompt(ctx, t, c)
	if err != nil {
		return err
	}
	_, err = t.Model(ctx, abi.ModelCall{Messages: messages})
	return err
}

// prompt is the list of messages to send.
func prompt(ctx context.Context, t *sdk.Turn, c config) ([]abi.Message, error) {
	left := room{messages: c.MaxMessages, bytes: c.MaxBytes}
	newestFirst := slices.Clone(t.Inputs())
	slices.Reverse(newestFirst)
	for _, m := range newestFirst {
		left.take(m)
	}
	newestFirst, err := earlier(ctx, t, left, newestFirst)
	if err != nil {
		return nil, err
	}
	if c.System != "" {
		newestFirst = append(newestFirst, abi.Text(abi.RoleSystem, c.System))
	}
	slices.Reverse(newestFirst)
	return newestFirst, nil
}

// earlier appends the messages of the turns before this one that fit into left.
func earlier(ctx context.Context, t *sdk.Turn, left room, newestFirst []abi.Message) ([]abi.Message, error) {
	whole := len(newestFirst) // where the messages of whole turns end
	completed := false        // whether the turn being read did
	kinds := []abi.EventKind{abi.EventInput, abi.EventOutput, abi.EventEnd}
	for record, err := range t.History(ctx, sdk.HistoryQuery{Kinds: kinds, NewestFirst: true}) {
		if err != nil {
			return nil, err
		}
		if record.Event.Kind == abi.EventEnd {
			whole = len(newestFirst)
			completed = record.Event.End != nil && record.Event.End.State == abi.StateCompleted
			continue
		}
		if !completed {
			continue
		}
		if record.Event.Message == nil {
			return nil, fmt.Errorf("chat: record %d, %s, has no message", record.Seq, record.Event.Kind)
		}
		if !left.take(*record.Event.Message) {
			return newestFirst[:whole], nil
		}
		newestFirst = append(newestFirst, *record.Event.Message)
	}
	return newestFirst, nil
}

// room is what a prompt may still hold.
type room struct{ messages, bytes int }

// take makes room for m and reports whether there was any.
func (r *room) take(m abi.Message) bool {
	size, err := json.Marshal(m)
	if err != nil {
		return false
	}
	r.messages--
	r.bytes -= len(size)
	return r.messages >= 0 && r.bytes >= 0
}

func init() { sdk.Register(chat{}) }

func main() {}

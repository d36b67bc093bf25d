// Package asks is a harness for tests that every runtime can hold: it keeps
// nothing, so that it runs natively and, as testdata/asks/cell, in a cell.
package asks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Harness does with each word of its input what the word says.
type Harness struct{}

// Describe implements sdk.Harness.
func (Harness) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{ID: "asks", Version: "1"}
}

// Run implements sdk.Harness.
func (Harness) Run(ctx context.Context, t *sdk.Turn) error {
	for _, in := range t.Inputs() {
		for word := range strings.FieldsSeq(in.Text()) {
			if err := do(ctx, t, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func do(ctx context.Context, t *sdk.Turn, word string) error {
	switch word {
	case "ask":
		_, err := t.Model(ctx, abi.ModelCall{Messages: t.Inputs()})
		if errors.Is(err, sdk.ErrFailed) {
			return t.OutputText(ctx, err.Error())
		}
		return err
	case "data":
		return t.Output(ctx, abi.Message{Parts: []abi.Part{{Data: &abi.DataPart{Data: abi.Struct(`{"n":9007199254740993}`)}}}})
	case "empty":
		err := t.Output(ctx, abi.Message{})
		return t.OutputText(ctx, fmt.Sprint(err))
	case "use":
		return t.Usage(ctx, abi.Usage{OutputTokens: 7})
	case "config":
		return t.OutputText(ctx, fmt.Sprintf("%q", t.Config()))
	case "history":
		for r, err := range t.History(ctx, sdk.HistoryQuery{}) {
			if err != nil {
				return err
			}
			if err := t.OutputText(ctx, fmt.Sprint(r.Seq, r.Event.Kind)); err != nil {
				return err
			}
		}
		return nil
	case "fail":
		return &abi.Error{Code: abi.CodeInvalidArgument, Description: "as told"}
	case "panic":
		panic("as told")
	}
	return t.OutputText(ctx, word)
}

package echo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/model"
	"github.com/agentcell/agentcell/host/model/echo"
	"github.com/agentcell/agentcell/host/model/modeltest"
	"github.com/agentcell/agentcell/sdk/abi"
)

func TestConformance(t *testing.T) {
	modeltest.Run(t, echo.Provider{},
		model.Request{Call: abi.ModelCall{Messages: []abi.Message{abi.Text(abi.RoleUser, "what is a cell?")}}},
		model.Request{Index: 7, Attempt: 3, Call: abi.ModelCall{Model: echo.Name}},
	)
}

func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name     string
		messages []abi.Message
		want     string
	}{
		{"no message", nil, "echo:"},
		{"no user", []abi.Message{abi.Text(abi.RoleSystem, "be brief")}, "echo:"},
		{"empty text", []abi.Message{abi.Text(abi.RoleUser, "")}, "echo:"},
		{"one", []abi.Message{abi.Text(abi.RoleUser, "hi")}, "echo:hi"},
		{"the last user's", []abi.Message{
			abi.Text(abi.RoleUser, "first"),
			abi.Text(abi.RoleUser, "second"),
			abi.Text(abi.RoleAssistant, "answer"),
		}, "echo:second"},
		{"several parts", []abi.Message{{Role: abi.RoleUser, Parts: []abi.Part{
			{Text: &abi.TextPart{Text: "a"}},
			{File: &abi.FilePart{Name: "f"}},
			{Text: &abi.TextPart{Text: "b"}},
		}}}, "echo:ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := echo.Provider{}.Complete(t.Context(), model.Request{Call: abi.ModelCall{Messages: tt.messages}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := model.Result{Message: abi.Text(abi.RoleAssistant, tt.want)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

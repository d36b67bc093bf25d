package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/sdk/sdktest"
)

// summing is a model that answers summaries with a text, counts them, and passes
// other calls on.
type summing struct {
	text     string
	asked    []string // the transcripts
	ordinary func(abi.ModelCall) (abi.ModelResult, error)
}

func (s *summing) model(call abi.ModelCall) (abi.ModelResult, error) {
	if call.Messages[0].Text() != summaryTask {
		return s.ordinary(call)
	}
	s.asked = append(s.asked, call.Messages[1].Text())
	return abi.ModelResult{Message: says(s.text)}, nil
}

// lines is the prompt of the last call, a line a message.
func lines(host *sdktest.Host) []string {
	var lines []string
	for _, m := range host.Calls[len(host.Calls)-1].Messages {
		lines = append(lines, m.Role+": "+strings.Join(partTexts(m.Parts), " "))
	}
	return lines
}

func TestCompaction(t *testing.T) {
	long := strings.Repeat("x", 1000)
	read := func(id, text string) abi.Message {
		return wants(abi.ToolCall{ID: id, Tool: "files.read", Args: abi.Struct(fmt.Sprintf(`{"t":%q}`, text))})
	}
	for _, tt := range []struct {
		name, config string
		answers      []abi.Message
		inputs       []string // a turn each
		want         []string // the last prompt
		summaries    int
	}{
		{
			"room enough", `{"compaction":{"max_bytes":4000}}`,
			[]abi.Message{says("1"), says("2")},
			[]string{long, long},
			[]string{"user: " + long, "assistant: 1", "user: " + long},
			0,
		},
		{
			"results first", `{"compaction":{"max_bytes":4000,"keep_messages":2,"tool_result_bytes":5}}`,
			[]abi.Message{read("a", "y"), wants(abi.ToolCall{ID: "b", Tool: "big"}), says("1"), says("2"), says("3")},
			[]string{"one", "two", "three"},
			[]string{
				"user: one",
				`assistant: [call a of files.read] {"t":"y"}`, `tool: [result of a] {"t":"y"}`,
				"assistant: [call b of big] ", "tool: [result of b] zzzzz\n[cut to save room: it had 4000 bytes]",
				"assistant: 1", "user: two", "assistant: 2", "user: three",
			},
			0,
		},
		{
			"a summary", `{"system":"S","compaction":{"max_bytes":4000,"keep_messages":3}}`,
			[]abi.Message{says("1"), says("2"), says("3"), says("4"), says("5")},
			[]string{long, long, long, long, "more"},
			[]string{
				"system: S", "user: " + summaryHead + "Summary so far: all.",
				"user: " + long, "assistant: 3", "user: " + long, "assistant: 4", "user: more",
			},
			1,
		},
		{
			"in the middle of a turn, and the task stays", `{"compaction":{"max_bytes":4000,"keep_messages":2}}`,
			[]abi.Message{says("1"), read("a", long), read("b", long), read("c", "y"), says("done")},
			[]string{"one", "the task"},
			[]string{
				"user: " + summaryHead + "Summary so far: all.", "user: the task",
				`assistant: [call b of files.read] {"t":"` + long + `"}`, `tool: [result of b] {"t":"` + long + `"}`,
				`assistant: [call c of files.read] {"t":"y"}`, `tool: [result of c] {"t":"y"}`,
			},
			1,
		},
		{
			"what is kept fills it by itself", `{"compaction":{"max_bytes":2000,"keep_messages":2}}`,
			[]abi.Message{says("1"), says(long + long), says("3")},
			[]string{"one", "two", "three"},
			[]string{"user: one", "assistant: 1", "user: two", "assistant: " + long + long, "user: three"},
			0,
		},
		{
			"by tokens, as the provider counts them", `{"compaction":{"max_tokens":1000,"keep_messages":1}}`,
			[]abi.Message{says("1"), says("1000 tokens and 1"), says("3")},
			[]string{strings.Repeat("x", 800), "two", "three"},
			[]string{"user: " + summaryHead + "Summary so far: all.", "user: three"},
			1,
		},
		{
			"by tokens that nobody counts", `{"compaction":{"max_tokens":1000,"keep_messages":1}}`,
			[]abi.Message{says("1"), says("2"), says("3")},
			[]string{long + long, long + long[:800], "three"},
			[]string{"user: " + summaryHead + "Summary so far: all.", "user: three"},
			1,
		},
	} {
		s := &summing{text: "Summary so far: all.", ordinary: answers(tt.answers...)}
		host := &sdktest.Host{Config: []byte(tt.config), Tools: workshop()}
		host.Tools["big"] = func(abi.ToolCall) (abi.ToolResult, error) {
			return abi.ToolResult{Content: []abi.Part{
				{Text: &abi.TextPart{Text: strings.Repeat("z", 3000)}},
				{File: &abi.FilePart{MIME: "image/png", Bytes: make([]byte, 1000)}},
			}}, nil
		}
		host.Model = func(call abi.ModelCall) (abi.ModelResult, error) {
			r, err := s.model(call)
			var output abi.Int64
			if _, scan := fmt.Sscanf(r.Message.Text(), "1000 tokens and %d", &output); scan == nil {
				r.Usage = &abi.Usage{InputTokens: 1000, OutputTokens: output}
			}
			return r, err
		}
		h := new(agent)
		for _, input := range tt.inputs {
			if _, err := host.Run(t.Context(), h, input); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		if diff := cmp.Diff(tt.want, lines(host)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if len(s.asked) != tt.summaries {
			t.Errorf("%s: %d summaries, want %d", tt.name, len(s.asked), tt.summaries)
		}
	}
}

// TestSummaryOfSummary: the next summary is made of the one before and what came
// after it; reasoning and files are not in what is summed up.
func TestSummaryOfSummary(t *testing.T) {
	first := wants(abi.ToolCall{ID: "a", Tool: "files.read", Args: abi.Struct(`{"n":9007199254740993}`)})
	first.Parts = append(first.Parts, abi.Part{Reasoning: &abi.ReasoningPart{OpaqueBytes: []byte("secret")}})
	s := &summing{text: "Summary so far: x.", ordinary: answers(first, says("1"), says(strings.Repeat("2", 500)), says("3"), says(strings.Repeat("4", 500)), says("5"))}
	host := &sdktest.Host{Config: []byte(`{"compaction":{"max_bytes":700,"keep_messages":1}}`), Tools: workshop(), Model: s.model}
	h := new(agent)
	for _, input := range []string{"a", "b", "c", "d", "e"} {
		if _, err := host.Run(t.Context(), h, input); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"user:\na\n\nassistant:\n[call a of files.read] {\"n\":9007199254740993}\n\ntool:\n[result of a] {\"n\":9007199254740993}\n\n" +
			"assistant:\n1\n\nuser:\nb\n\nassistant:\n" + strings.Repeat("2", 500) + "\n\n",
		summaryHead + "Summary so far: x.\n\nuser:\nc\n\nassistant:\n3\n\nuser:\nd\n\nassistant:\n" + strings.Repeat("4", 500) + "\n\n",
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Error(diff)
	}
}

// TestFitsRequest: what is kept is cut, too, where it would not fit into a request,
// the oldest results first.
func TestFitsRequest(t *testing.T) {
	look := func(id string) abi.Message { return wants(abi.ToolCall{ID: id, Tool: "look"}) }
	host := &sdktest.Host{
		Config: []byte(`{"compaction":{"max_tokens":100000}}`),
		Limits: &abi.Limits{RequestBytes: 8000},
		Model:  answers(look("a"), look("b"), look("c"), says("done")),
		Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
			"look": func(abi.ToolCall) (abi.ToolResult, error) {
				return abi.ToolResult{Content: []abi.Part{{File: &abi.FilePart{MIME: "image/png", Bytes: make([]byte, 2000)}}}}, nil
			},
		},
	}
	if _, err := host.Run(t.Context(), new(agent), "go"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"user: go",
		"assistant: [call a of look] ", "tool: [result of a] [file without a name, image/png, 2000 bytes]\n[cut to save room: it had 2000 bytes]",
		"assistant: [call b of look] ", "tool: [result of b] [file without a name, image/png, 2000 bytes]",
		"assistant: [call c of look] ", "tool: [result of c] [file without a name, image/png, 2000 bytes]",
	}
	if diff := cmp.Diff(want, lines(host)); diff != "" {
		t.Error(diff)
	}
	if file := host.Calls[3].Messages[4].Parts[0].ToolResult.Content[0].File; file == nil || len(file.Bytes) != 2000 {
		t.Errorf("result b is not as it was: %v", file)
	}
}

// TestNoSummary: a model that sums nothing up fails the turn, and what was said
// before it is still known.
func TestNoSummary(t *testing.T) {
	s := &summing{text: " \n", ordinary: answers(says(strings.Repeat("1", 500)), says("2"))}
	host := &sdktest.Host{Config: []byte(`{"compaction":{"max_bytes":300,"keep_messages":1}}`), Model: s.model}
	h := new(agent)
	if _, err := host.Run(t.Context(), h, "a"); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(h.talk.Said)
	if _, err := host.Run(t.Context(), h, "b"); err == nil || !strings.Contains(err.Error(), "the model gave no summary") {
		t.Errorf("got error %v", err)
	}
	if diff := cmp.Diff(before, h.talk.Said); diff != "" {
		t.Error(diff)
	}
}

// planned is a turn as it will go: lengths of what is said in it.
type planned struct {
	inputs []int
	steps  []plannedStep
	answer int
}

type plannedStep struct {
	answer  int
	results []int // of the tools that it calls
}

func drawTurn(t *rapid.T) planned {
	length := rapid.IntRange(1, 400)
	p := planned{inputs: rapid.SliceOfN(length, 1, 3).Draw(t, "inputs"), answer: length.Draw(t, "answer")}
	for range rapid.IntRange(0, 8).Draw(t, "steps") {
		p.steps = append(p.steps, plannedStep{length.Draw(t, "answer"), rapid.SliceOfN(length, 1, 3).Draw(t, "results")})
	}
	return p
}

func sized(length int) string { return strings.Repeat("é", length) }

// TestCompactionProperties: whatever was said, and whatever the bounds,
//
//   - a result of tools stands behind the answer that called them,
//   - the last messages, and what the turn was asked, are there as they were said,
//   - a prompt is longer than the bounds only where what must be kept is, or where
//     there is too little else.
func TestCompactionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(500, 5000).Draw(t, "max_bytes")
		keep := rapid.IntRange(1, 8).Draw(t, "keep_messages")
		var (
			said  []abi.Message // all of it, as it was said
			asked int           // where this turn begins in it
			turn  planned       // what is left of it
		)
		s := &summing{text: "Summary so far: é."}
		s.ordinary = func(call abi.ModelCall) (abi.ModelResult, error) {
			if err := checkPrompt(call.Messages, said, asked, keep, bound); err != nil {
				return abi.ModelResult{}, err
			}
			if len(turn.steps) == 0 {
				said = append(said, says(sized(turn.answer)))
				return abi.ModelResult{Message: said[len(said)-1]}, nil
			}
			step := turn.steps[0]
			turn.steps = turn.steps[1:]
			answer, results := says(sized(step.answer)), abi.Message{Role: abi.RoleTool}
			for i, length := range step.results {
				id := fmt.Sprint(len(said), ".", i)
				args := abi.Struct(fmt.Sprintf(`{"length":%d}`, length))
				answer.Parts = append(answer.Parts, abi.Part{ToolCall: &abi.ToolCall{ID: id, Tool: "make", Args: args}})
				results.Parts = append(results.Parts, abi.Part{ToolResult: &abi.ToolResult{ID: id, Error: sized(length)}})
			}
			said = append(said, answer, results)
			return abi.ModelResult{Message: answer}, nil
		}
		host := &sdktest.Host{
			Config: fmt.Appendf(nil, `{"compaction":{"max_bytes":%d,"keep_messages":%d,"tool_result_bytes":100}}`, bound, keep),
			Tools: map[string]func(abi.ToolCall) (abi.ToolResult, error){
				"make": func(c abi.ToolCall) (abi.ToolResult, error) {
					var args struct{ Length int }
					if err := json.Unmarshal(c.Args, &args); err != nil {
						return abi.ToolResult{}, err
					}
					return abi.ToolResult{Error: sized(args.Length)}, nil
				},
			},
			Model: s.model,
		}
		h := new(agent)
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			turn, asked = drawTurn(t), len(said)
			var inputs []abi.Message
			for _, length := range turn.inputs {
				inputs = append(inputs, abi.Text(abi.RoleUser, sized(length)))
			}
			said = append(said, inputs...)
			if _, err := host.RunMessages(t.Context(), h, inputs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func checkPrompt(prompt, said []abi.Message, asked, keep, bound int) error {
	for i, m := range prompt {
		if m.Role != abi.RoleTool {
			continue
		}
		calls := callsOf(prompt[i-1])
		for j, p := range m.Parts {
			if p.ToolResult.ID != calls[j].ID {
				return fmt.Errorf("message %d has the result of %q where that of %q belongs", i, p.ToolResult.ID, calls[j].ID)
			}
		}
		if len(calls) != len(m.Parts) {
			return fmt.Errorf("message %d: %d results of %d calls", i, len(m.Parts), len(calls))
		}
	}
	last := said[max(len(said)-keep, 0):]
	if diff := cmp.Diff(last, prompt[len(prompt)-len(last):]); diff != "" {
		return fmt.Errorf("the last %d messages: %s", keep, diff)
	}
	end := asked
	for end < len(said) && said[end].Role == abi.RoleUser {
		end++
	}
	inputs := said[asked:end]
	found := slices.ContainsFunc(slices.Collect(windows(prompt, len(inputs))), func(w []abi.Message) bool { return cmp.Equal(inputs, w) })
	if !found {
		return errors.New("what the turn was asked is not in the prompt")
	}
	// One more may be kept so that a result has its call.
	kept := sizeOf(said[max(len(said)-keep-1, 0):]...).bytes + sizeOf(inputs...).bytes
	if got := sizeOf(prompt...).bytes; got > bound && got > kept+bound/8+500 {
		return fmt.Errorf("a prompt of %d bytes; the bound is %d, and what must be kept has %d", got, bound, kept)
	}
	return nil
}

// windows are the runs of n messages.
func windows(messages []abi.Message, n int) func(func([]abi.Message) bool) {
	return func(yield func([]abi.Message) bool) {
		for i := 0; i+n <= len(messages) && yield(messages[i:i+n]); i++ {
		}
	}
}

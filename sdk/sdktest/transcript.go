package sdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
)

// UpdateVariable is the environment variable that makes Golden write its files.
const UpdateVariable = "SDKTEST_UPDATE"

// Golden compares the transcript of s with the file, and fails t where they
// differ. With SDKTEST_UPDATE set, as in
//
//	SDKTEST_UPDATE=1 go test .
//
// it writes the file instead, with its directory: look at what changed before it
// is committed. What a transcript has must not depend on the machine: let a harness
// under test take no time and no randomness but Turn.Rand's.
func (s *Host) Golden(t testing.TB, file string) {
	t.Helper()
	got := s.Transcript()
	if os.Getenv(UpdateVariable) != "" {
		if err := writeGolden(file, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("there is no %s; %s=1 go test writes it", file, UpdateVariable)
	case err != nil:
		t.Fatal(err)
	}
	// A checkout on Windows may have turned the ends of lines.
	if text := strings.ReplaceAll(string(want), "\r\n", "\n"); text != got {
		t.Errorf("the transcript is not that of %s: %s\n%s=1 go test writes it anew", file, difference(text, got), UpdateVariable)
	}
}

func writeGolden(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// difference shows the first line in which two texts differ.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	line := 0
	for line < min(len(wants), len(gots)) && wants[line] == gots[line] {
		line++
	}
	at := func(lines []string) string {
		if line >= len(lines) {
			return "(the end)"
		}
		return lines[line]
	}
	return fmt.Sprintf("line %d\nwant: %s\ngot:  %s", line+1, at(wants), at(gots))
}

// Transcript is the record of the session as a text to be read and compared: a
// line for each event, with its kind and what it says, and one more for each
// further line or message. Model calls are there with their whole prompts; what
// is not text is there as JSON. The same record always gives the same transcript.
func (s *Host) Transcript() string {
	var b strings.Builder
	for _, r := range s.Records {
		if r.Event == nil {
			continue
		}
		kind := string(r.Event.Kind)
		if r.Event.Kind == abi.EventExecutionStart && b.Len() > 0 {
			b.WriteByte('\n')
		}
		for line := range strings.SplitSeq(strings.Join(eventLines(r.Event), "\n"), "\n") {
			b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %s", len(abi.EventExecutionStart), kind, line), " ") + "\n")
			kind = ""
		}
	}
	return b.String()
}

func eventLines(e *abi.Event) []string {
	switch {
	case e.Message != nil:
		return []string{messageText(*e.Message)}
	case e.Model != nil:
		return callLines(*e.Model)
	case e.End != nil:
		return []string{strings.TrimSpace(string(e.End.State) + " " + errorText(e.End.Error))}
	case e.Error != nil:
		return []string{errorText(e.Error)}
	case e.Tool != nil:
		return []string{jsonText(e.Tool)}
	case e.Result != nil:
		return []string{jsonText(e.Result)}
	case e.Kind == abi.EventWait || e.Kind == abi.EventSignal:
		return []string{waitText(e)}
	case e.Usage != nil:
		return []string{jsonText(e.Usage)}
	case e.Kind == abi.EventExecutionStart:
		return nil
	}
	// What this host does not record, but a test may have put there.
	body := *e
	body.Kind, body.ExecutionID, body.Time, body.SchemaVersion = "", "", abi.Time{}, 0
	return []string{jsonText(body)}
}

// callLines are what a call asks for beside its prompt, and the prompt.
func callLines(call abi.ModelCall) []string {
	var lines []string
	messages := call.Messages
	call.Messages = nil
	if text := jsonText(call); text != "{}" {
		lines = append(lines, text)
	}
	for _, m := range messages {
		lines = append(lines, messageText(m))
	}
	return lines
}

func messageText(m abi.Message) string {
	parts := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		if p.Text != nil {
			parts[i] = p.Text.Text
		} else {
			parts[i] = jsonText(p)
		}
	}
	return m.Role + ": " + strings.Join(parts, "\n")
}

// waitText is what a wait is for, or what ended it: a time, a signal, or both.
func waitText(e *abi.Event) string {
	var words []string
	if e.Cell != nil && !e.Cell.Until.IsZero() {
		words = append(words, "until="+e.Cell.Until.String())
	}
	if e.Cell != nil && e.Cell.Signal != "" {
		words = append(words, "signal="+e.Cell.Signal)
	}
	return strings.Join(words, " ")
}

func errorText(e *abi.Error) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("code=%d %s", e.Code, e.Description)
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error() // it came as JSON, so it goes as JSON
	}
	return string(b)
}

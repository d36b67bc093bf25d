package lineedit

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// read gives the lines that are read from keys, and what stands on the screen in
// the end.
func read(t *testing.T, s *screen, cfg Config, keys string, history ...string) (lines []string, end error) {
	t.Helper()
	cfg.Keys, cfg.Screen, cfg.Size = strings.NewReader(keys), s, s.size
	terminal := New(cfg)
	for _, line := range history {
		terminal.Remember(line)
	}
	for {
		line, err := terminal.ReadLine(t.Context(), "> ")
		switch {
		case errors.Is(err, ErrInterrupt):
			line += "^C"
		case err != nil:
			return lines, err
		}
		lines = append(lines, line)
	}
}

func TestReadLine(t *testing.T) {
	history := []string{"first", "second\nof two rows"}
	tests := []struct {
		name, keys string
		want       []string
	}{
		{"a line", "hello\r", []string{"hello"}},
		{"lines", "a\rb\nc\r", []string{"a", "b", "c"}},
		{"the last line is not ended", "a\rb", []string{"a"}},
		{"backspace", "helo\x7f\x08llo\r", []string{"hello"}},
		{"arrows", "hllo\x1b[D\x1b[D\x1b[De\x1b[C\x1b[Cl\x1bOF!\r", []string{"helllo!"}},
		{"home and end", "b\x01a\x05c\x1b[Hx\x1b[Fy\x1b[1~_\x1b[4~.\r", []string{"_xabcy."}},
		{"delete", "abc\x01\x1b[3~\x04\r", []string{"c"}},
		{"words", "one two three\x1bb\x1bbX\x1bfY\r", []string{"one XtwoY three"}},
		{"words by control and arrows", "one two\x1b[1;5D-\x1b[1;5C!\r", []string{"one -two!"}},
		{"kill a word", "one two-three\x17x\x1b\x7fy\r", []string{"one y"}},
		{"kill a word to the right", "one two\x01\x1bd\r", []string{" two"}},
		{"kill and yank", "one two\x1bb\x0b-\x01\x19\r", []string{"twoone -"}},
		{"kill to the left", "one\x15two\x19\r", []string{"twoone"}},
		{"history", "\x1b[A\x1b[A\r", []string{"second\nof two rows"}},
		{"history to its end", "\x10\x10\x10\x10\r", []string{"first"}},
		{"history and back", "draft\x10\x10\x0e\x0e!\r", []string{"draft!"}},
		{"history is not changed", "\x10x\r\x10\r", []string{"second\nof two rowsx", "second\nof two rows"}},
		{"up and down in rows", "\x10\x1b[AX\x1b[BY\r", []string{"secondX\nof two Yrows"}},
		{"a line break", "a\x1b\rb\r", []string{"a\nb"}},
		{"paste", "a\x1b[200~b\r\nc\rd\x03\x1b[31m\te\x1b[201~f\r", []string{"ab\nc\nd[31m\tef"}},
		{"an empty paste", "\x1b[200~\x1b[201~\r", []string{""}},
		{"Ctrl-C", "abc\x03d\r", []string{"abc^C", "d"}},
		{"Ctrl-C behind an ESC", "a\x1b\x03", []string{"a^C"}},
		{"Ctrl-C in a sequence", "a\x1b[12\x03", []string{"a^C"}},
		{"Ctrl-D in an empty line", "a\r\x04b\r", []string{"a"}},
		{"Ctrl-D in another", "a\x01\x04\r", []string{""}},
		{"characters of several runes", "e\u0301👨\u200d👩x\x7f\x7f\x02_\r", []string{"_e\u0301"}},
		{"not UTF-8", "a\xffb\xc3(\r", []string{"ab("}},
		{"unknown keys", "a\x1b[24~\x1bz\x1b[1;2R\x00\x1c\x1b\x1b[Ab\r", []string{"second\nof two rowsb"}},
		{"a sequence without end", "\x1b[" + strings.Repeat("1", 100) + "\r", []string{strings.Repeat("1", 100+2-maxSequence)}},
		{"complete", "/f\t\r/q\t\rx/f\t\r/\t\r", []string{"/for", "/quit", "x/f", "/"}},
		{"clear", "a\x0cb\r", []string{"ab"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(40, 10)
			cfg := Config{Words: []string{"/fork", "/forget", "/quit"}}
			got, err := read(t, s, cfg, test.keys, history...)
			if !errors.Is(err, io.EOF) {
				t.Errorf("it ends with %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if len(s.unknown) > 0 {
				t.Errorf("it sent %q", s.unknown)
			}
		})
	}
}

// What is on the screen is what was typed, whatever was done to it on the way.
func TestScreen(t *testing.T) {
	tests := []struct {
		name, keys, want string
	}{
		{"lines", "a\rbc\r", "> a\n> bc\n>"},
		{"wrapped", "0123456789\r", "> 01234567\n  89\n>"},
		{"just full", "01234567\r", "> 01234567\n\n>"},
		{"wide", "1日本語日本\r", "> 1日本語\n  日本\n>"},
		{"edited in the middle", "0123456789\x02\x02\x02\x02X\x7f\x7fY\r", "> 01234Y67\n  89\n>"},
		{"shorter again", "0123456789abcdefgh\x15x\r", "> x\n>"},
		{"rows", "a\x1b\rb\x1b[A\x1b[A\x1b[Bc\r", "> a\n  bc\n>"},
		{"higher than the screen", "1\x1b\r2\x1b\r3\x1b\r4\x1b\r5\x1b\r6\x01\x7f\r", "> 1\n  2\n  3\n  4\n  56\n>"},
		{"a tab", "\x1b[200~a\tb\x1b[201~\r", "> a    b\n>"},
		{"cleared", "a\rb\x0cc\r", "> bc\n>"},
		{"given up", "abc\x02\x03", "> abc^C\n>"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(10, 5)
			if _, err := read(t, s, Config{}, test.keys); !errors.Is(err, io.EOF) {
				t.Errorf("it ends with %v", err)
			}
			if diff := cmp.Diff(test.want, s.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A record may have been written by anybody: what is in it does not drive the
// terminal when it is in the history.
func TestHistoryDoesNotDriveTheTerminal(t *testing.T) {
	s := newScreen(40, 5)
	evil := "a\x1b]0;owned\x07\x1b[2J\u202eb\u009b31m"
	got, _ := read(t, s, Config{}, "\x10\r", evil)
	if diff := cmp.Diff([]string{evil}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "> a\ufffd]0;owned\ufffd\ufffd[2J\ufffdb\ufffd31m\n>"; s.String() != want || len(s.unknown) > 0 {
		t.Errorf("the screen has %q, unknown %q; want %q", s.String(), s.unknown, want)
	}
}

// Whatever is typed, in whatever pieces, on a screen of whatever size: the screen
// shows the line, wrapped, and nothing else.
func TestAnyKeys(t *testing.T) {
	pieces := []string{
		"a", "b ", "日", "e\u0301", "👨\u200d👩", "\x1b\r", "\x1b[200~x\r\ny\x1b[201~", "\t", "word ", "0123456789",
		"\x7f", "\x01", "\x05", "\x02", "\x06", "\x1b[A", "\x1b[B", "\x1bb", "\x1bf", "\x17", "\x0b", "\x15", "\x19", "\x1b[3~",
		"\x10", "\x0e", "\xff", "\x1b[", "\x0c",
	}
	rapid.Check(t, func(rt *rapid.T) {
		columns, rows := rapid.IntRange(4, 30).Draw(rt, "columns"), rapid.IntRange(1, 12).Draw(rt, "rows")
		keys := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 40).Draw(rt, "keys"), "") + "\r"
		s := newScreen(columns, rows)
		terminal := New(Config{
			Keys:   iotest.OneByteReader(strings.NewReader(keys)),
			Screen: s, Size: s.size, Style: "\x1b[1m", Reset: "\x1b[0m",
		})
		terminal.Remember("something that was said before\nin two rows")
		line, err := terminal.ReadLine(context.Background(), "> ")
		if err != nil {
			rt.Fatal(err)
		}
		clean := newScreen(columns, rows)
		l := layOut("> ", []rune(line), len([]rune(line)), columns)
		if _, err := io.WriteString(clean, strings.Join(l.rows, "\r\n")); err != nil {
			rt.Fatal(err)
		}
		// What was scrolled up while it was typed cannot be taken back.
		want := strings.TrimRight(clean.String(), " \n")
		got := s.String()
		if !strings.HasSuffix(got, want) || len(l.rows) < rows && got != want {
			rt.Fatalf("screen of %d×%d:\n%s\nwant:\n%s", columns, rows, got, want)
		}
		if len(s.unknown) > 0 {
			rt.Fatalf("it sent %q", s.unknown)
		}
	})
}

// A keyboard is one that the test types on. Each write is there before it returns.
type typist struct {
	t *testing.T
	w *io.PipeWriter
}

func (k typist) types(keys string) {
	k.t.Helper()
	// A pipe hands over what is written when it is read, and the reader has used
	// it when it reads again.
	for _, b := range [][]byte{[]byte(keys), nil} {
		if _, err := k.w.Write(b); err != nil {
			k.t.Error(err)
		}
	}
}

func live(t *testing.T, columns, rows int) (*Terminal, *screen, typist) {
	s := newScreen(columns, rows)
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return New(Config{Keys: r, Screen: s, Size: s.size}), s, typist{t, w}
}

// reading begins to read a line and gives what comes of it.
func reading(read func() (string, error)) <-chan string {
	done := make(chan string, 1)
	go func() {
		line, err := read()
		if err != nil {
			line += " " + err.Error()
		}
		done <- line
	}()
	return done
}

// shows waits until the screen has want.
func shows(t *testing.T, s *screen, want string) {
	t.Helper()
	for s.String() != want {
		if t.Context().Err() != nil {
			t.Fatalf("the screen has %q, want %q", s.String(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// Output that comes while a line is edited stands above it.
func TestWriteWhileEditing(t *testing.T) {
	terminal, s, keys := live(t, 10, 8)
	line := reading(func() (string, error) { return terminal.ReadLine(t.Context(), "> ") })
	keys.types("0123456789")
	shows(t, s, "> 01234567\n  89")
	for _, text := range []string{"late\n", "later", " on\n"} {
		if _, err := terminal.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	shows(t, s, "late\nlater\n on\n> 01234567\n  89")
	keys.types("!\r")
	if got := <-line; got != "0123456789!" {
		t.Errorf("the line is %q", got)
	}
	shows(t, s, "late\nlater\n on\n> 01234567\n  89!")
	if _, err := terminal.Write([]byte("open")); err != nil {
		t.Fatal(err)
	}
	line = reading(func() (string, error) { return terminal.ReadLine(t.Context(), "> ") })
	shows(t, s, "late\nlater\n on\n> 01234567\n  89!\nopen\n>")
	keys.types("\r")
	<-line
}

func TestResize(t *testing.T) {
	terminal, s, keys := live(t, 20, 8)
	line := reading(func() (string, error) { return terminal.ReadLine(t.Context(), "> ") })
	keys.types("0123456789abcdefghijkl")
	shows(t, s, "> 0123456789abcdefgh\n  ijkl")
	s.resize(11)
	keys.types("m")
	shows(t, s, "> 012345678\n  9abcdefgh\n  ijklm")
	s.resize(30)
	keys.types("n")
	shows(t, s, "> 0123456789abcdefghijklmn")
	keys.types("\r")
	if got := <-line; got != "0123456789abcdefghijklmn" {
		t.Errorf("the line is %q", got)
	}
}

// What is typed while no line is read is there for the next one, but never
// answers a question that did not stand there yet; and Ctrl-C acts at once.
func TestTypedAhead(t *testing.T) {
	terminal, s, keys := live(t, 20, 8)
	interrupts := make(chan bool, 1)
	terminal.OnInterrupt(func() { interrupts <- true })
	keys.types("gone\r\x03ahead\rmore")
	if !<-interrupts {
		t.Error("no interrupt")
	}
	terminal.OnInterrupt(nil)
	if line, err := terminal.ReadLine(t.Context(), "> "); line != "ahead" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
	keys.types("\ry\r")
	answer := reading(func() (string, error) { return terminal.Ask(t.Context(), "sure? ") })
	shows(t, s, "> ahead\nsure?")
	keys.types("no\r")
	if got := <-answer; got != "no" {
		t.Errorf("the answer is %q", got)
	}
	keys.types("\x10\x10\r")
	if line, err := terminal.ReadLine(t.Context(), "> "); line != "" || err != nil {
		t.Errorf("the history has %q, %v", line, err)
	}
}

// A line that is left for something else goes on where it was.
func TestLeaveAndGoOn(t *testing.T) {
	terminal, s, keys := live(t, 20, 8)
	ctx, cancel := context.WithCancelCause(t.Context())
	line := reading(func() (string, error) { return terminal.ReadLine(ctx, "> ") })
	keys.types("begun")
	shows(t, s, "> begun")
	cancel(errors.New("something else"))
	if got := <-line; got != " something else" {
		t.Errorf("it gives %q", got)
	}
	shows(t, s, "")
	keys.types(" before\r")
	if line, err := terminal.ReadLine(t.Context(), "> "); line != "begun before" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
}

func TestBrokenKeyboard(t *testing.T) {
	broken := errors.New("unplugged")
	s := newScreen(20, 5)
	terminal := New(Config{Keys: iotest.ErrReader(broken), Screen: s, Size: s.size})
	if _, err := terminal.ReadLine(t.Context(), "> "); !errors.Is(err, broken) {
		t.Errorf("it gives %v", err)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("a\x1b[1;5D\x1b[200~x\x1b[201~\xff日"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, pieces decoder
		want := whole.feed(b)
		cut = max(0, min(cut, len(b)))
		got := append(pieces.feed(b[:cut]), pieces.feed(b[cut:])...)
		join := func(keys []key) (text string) {
			for _, k := range keys {
				text += string(rune('A'+int(k.action))) + k.text
			}
			return strings.ReplaceAll(text, "A", "") // a text may come in two
		}
		if diff := cmp.Diff(join(want), join(got)); diff != "" {
			t.Errorf("cut at %d (-whole +pieces):\n%s", cut, diff)
		}
	})
}

// Notebook is a harness that holds memory, and as much of it as it is asked to:
// it keeps notes, and can fill itself with tens of megabytes of them. It asks no
// model. What a large memory costs, in a turn, a fork or a recovery, shows in it.
//
//	$ agentctl exec --harness notebook --name notes --input 'note buy milk'
//	$ agentctl exec --session notes --input 'fill 32'
//	$ agentctl exec --session notes --input 'find milk'
//
// Each input is one of
//
//	note TEXT     keeps TEXT as the next note
//	edit N TEXT   puts TEXT in the place of note N
//	read N        note N; the first is note 1
//	find TEXT     how many notes have TEXT in them, and the first of them
//	fill N        keeps N MiB of made-up notes of 1 KiB each
//	sum           the CRC-32 of all notes, one after another: it reads them all
//	size          how many notes there are, and their bytes
//	forget        drops all notes
//
// A made-up note is a function of its number, so all notebooks that were told the
// same hold the same. Notes of more than 128 MiB together are refused: a
// heap needs room beside what it holds, and a cell has 256 MiB unless told
// otherwise.
package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

const (
	// maxBytes bounds all notes together.
	maxBytes = 128 << 20
	// madeUp is the length of a note that fill makes.
	madeUp = 1 << 10
	// usage is what an input can be.
	usage = "note TEXT, edit N TEXT, read N, find TEXT, fill N, sum, size or forget"
)

// notebook is all that a session remembers.
type notebook struct {
	notes []string
	bytes int
}

func (*notebook) Describe() abi.HarnessDescriptor {
	return abi.HarnessDescriptor{
		ID:           "notebook",
		Version:      "1",
		Capabilities: &abi.Capabilities{Resumability: abi.RequiresMemorySnapshot, ForkSafe: true},
	}
}

func (n *notebook) Run(ctx context.Context, t *sdk.Turn) error {
	for _, input := range t.Inputs() {
		answer, err := n.answer(input.Text())
		if err != nil {
			return &abi.Error{Code: abi.CodeInvalidArgument, Description: "notebook: " + err.Error()}
		}
		if err := t.OutputText(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// answer does what one input says.
func (n *notebook) answer(input string) (string, error) {
	command, rest, _ := strings.Cut(strings.TrimSpace(input), " ")
	rest = strings.TrimSpace(rest)
	if alone := command == "sum" || command == "size" || command == "forget"; alone != (rest == "") {
		return "", fmt.Errorf("%.40q; want %s", input, usage)
	}
	switch command {
	case "note":
		return n.keep(rest)
	case "edit":
		return n.edit(rest)
	case "read":
		i, err := n.index(rest)
		if err != nil {
			return "", err
		}
		return n.notes[i], nil
	case "find":
		return n.find(rest), nil
	case "fill":
		return n.fill(rest)
	case "sum":
		return fmt.Sprintf("%08x", n.sum()), nil
	case "size":
		return n.size(), nil
	case "forget":
		*n = notebook{}
		return n.size(), nil
	}
	return "", fmt.Errorf("%.40q; want %s", input, usage)
}

func (n *notebook) size() string { return fmt.Sprintf("%d notes, %d bytes", len(n.notes), n.bytes) }

// room refuses to grow by more bytes than there is room for.
func (n *notebook) room(bytes int) error {
	if bytes > maxBytes-n.bytes {
		return fmt.Errorf("%d bytes and %d more are over the bound of %d MiB", n.bytes, bytes, maxBytes>>20)
	}
	return nil
}

func (n *notebook) keep(text string) (string, error) {
	if err := n.room(len(text)); err != nil {
		return "", err
	}
	n.notes = append(n.notes, text)
	n.bytes += len(text)
	return fmt.Sprintf("note %d", len(n.notes)), nil
}

func (n *notebook) edit(rest string) (string, error) {
	number, text, _ := strings.Cut(rest, " ")
	i, err := n.index(number)
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return "", fmt.Errorf("edit %s has no text; want %s", number, usage)
	}
	grows := len(text) - len(n.notes[i])
	if err := n.room(grows); err != nil {
		return "", err
	}
	n.notes[i] = text
	n.bytes += grows
	return "note " + number, nil
}

// index finds the note of that number.
func (n *notebook) index(number string) (int, error) {
	i, err := strconv.Atoi(number)
	if err != nil || i < 1 || i > len(n.notes) {
		return 0, fmt.Errorf("there is no note %.40q; there are %d", number, len(n.notes))
	}
	return i - 1, nil
}

func (n *notebook) find(text string) string {
	count, first := 0, 0
	for i, note := range n.notes {
		if !strings.Contains(note, text) {
			continue
		}
		if count++; count == 1 {
			first = i + 1
		}
	}
	switch count {
	case 0:
		return "in no note"
	case 1:
		return fmt.Sprintf("in note %d", first)
	}
	return fmt.Sprintf("in %d notes, the first is note %d", count, first)
}

func (n *notebook) fill(amount string) (string, error) {
	mib, err := strconv.Atoi(amount)
	if err != nil || mib < 1 || mib > maxBytes>>20 {
		return "", fmt.Errorf("fill %.40q; want 1 to %d, in MiB", amount, maxBytes>>20)
	}
	if err := n.room(mib << 20); err != nil {
		return "", err
	}
	for range (mib << 20) / madeUp {
		n.notes = append(n.notes, makeUp(len(n.notes)+1))
	}
	n.bytes += mib << 20
	return n.size(), nil
}

// makeUp is the made-up note of that number: words of seven letters.
func makeUp(number int) string {
	var text [madeUp]byte
	random := rand.NewPCG(uint64(number), 0)
	for word := 0; word < len(text); word += 8 {
		bits := random.Uint64()
		for i := range 7 {
			text[word+i] = 'a' + byte(bits&0xff)%26
			bits >>= 8
		}
		text[word+7] = ' '
	}
	text[len(text)-1] = '.'
	return string(text[:])
}

func (n *notebook) sum() uint32 {
	sum := crc32.NewIEEE()
	for _, note := range n.notes {
		// A hash takes all it is given.
		_, _ = sum.Write([]byte(note))
	}
	return sum.Sum32()
}

func init() { sdk.Register(new(notebook)) }

func main() {}

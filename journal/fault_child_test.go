package journal

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ack is a line that a child writes after the journal has said that something is
// durable.
type ack struct {
	// Ready: the journal is open. Nothing else is set.
	Ready bool `json:",omitempty"`
	// Begin: append N is about to be made. Nothing else is set.
	Begin bool `json:",omitempty"`
	// N counts a child's appends.
	N       int
	Session abi.SessionID
	Seq     abi.Seq
	Hash    abi.Digest
	// Children: the session was forked, too.
	Children []abi.SessionID `json:",omitempty"`
	// Error is how an append was refused; it does not end the child.
	Error string `json:",omitempty"`
}

// note is the event of the records that children append: enough to tell from the
// journal alone whether a batch is whole and what it should have stored. Its
// fields stand in canonical order.
type note struct {
	Blob abi.Digest `json:"blob,omitzero"`
	I    int        `json:"i"` // the record is I of Of in the batch
	N    int        `json:"n"`
	Of   int        `json:"of"`
	Root abi.Digest `json:"root,omitzero"`
	Run  string     `json:"run"`
}

// child appends to the journal in dir and says so.
type child struct {
	j   *Journal
	run string

	mu sync.Mutex // for out and n
	n  int
}

// faultChild is the main function of a child process: mode says what it does,
// args are the directory, a number that its project and randomness come from,
// and that of an earlier child whose sessions it continues.
func faultChild(mode string, args []string) error {
	j, err := Open(args[0], Options{FreeReserve: -1, LockWait: 10 * time.Second})
	if err != nil {
		return err
	}
	c := &child{j: j, run: args[1]}
	c.say(ack{Ready: true})
	switch mode {
	case "concurrent":
		return c.concurrent(args[2])
	case "serial":
		return c.serial(args[2], math.MaxInt)
	case "forty":
		return errors.Join(c.serial("", 40), j.Close())
	case "collect":
		return c.collecting()
	case "commands":
		return c.commands(args[2])
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// say writes a in one write, which a pipe takes whole or not at all.
func (c *child) say(a ack) {
	line, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

func (c *child) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// concurrent has several sessions appended to and forked at once, until the
// process is killed.
func (c *child) concurrent(earlier string) error {
	sessions, err := c.sessions(4, earlier)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i, s := range sessions {
		go func() {
			for k := 0; ; k++ {
				a, err := s.append(c.next())
				if err == nil && (k+i)%7 == 3 {
					a.Children, err = s.fork()
				}
				if err != nil {
					failed <- err
					return
				}
				c.say(a)
			}
		}()
	}
	return <-failed
}

// serial appends to several sessions in turn and announces each append, so that
// appends have an order.
func (c *child) serial(earlier string, count int) error {
	sessions, err := c.sessions(3, earlier)
	if err != nil {
		return err
	}
	for range count {
		s := sessions[c.n%len(sessions)]
		n := c.next()
		c.say(ack{Begin: true, N: n})
		a, err := s.append(n)
		if err != nil {
			return err
		}
		c.say(a)
	}
	return nil
}

// commands does what the lines of its standard input say: "append N" a batch with
// an image of N new pages, "fill N" that until the journal is full, "read" all
// there is. It goes on after ErrFull.
func (c *child) commands(earlier string) error {
	sessions, err := c.sessions(1, earlier)
	if err != nil {
		return err
	}
	s := sessions[0]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var word string
		if _, err := fmt.Sscan(lines.Text(), &word, &s.pages); err != nil {
			return err
		}
		for again := true; again; {
			a, err := ack{}, error(nil)
			if word == "read" {
				err = s.read()
			} else {
				a, err = s.append(c.next())
			}
			if errors.Is(err, ErrFull) {
				a.Error = err.Error()
			} else if err != nil {
				return err
			}
			c.say(a)
			again = word == "fill" && err == nil
		}
	}
	return c.j.Close()
}

// read reads the session's records and its image.
func (s *childSession) read() error {
	if _, _, err := s.c.j.Verify(context.Background(), s.uid, VerifyOptions{}); err != nil {
		return err
	}
	return readAll(s.c.j, s.image.Root())
}

// sessions makes count sessions in the child's project, or continues those of
// an earlier child.
func (c *child) sessions(count int, earlier string) ([]*childSession, error) {
	var sessions []*childSession
	seed := sha256.Sum256([]byte(c.run))
	if earlier != "" {
		page, err := c.j.List(earlier, "", max(count/2, 1))
		if err != nil {
			return nil, err
		}
		for _, known := range page.Sessions {
			s := &childSession{c: c, uid: known.UID, head: known.Head}
			if len(known.Summary) > 0 {
				if s.image, err = c.j.LoadImage(abi.Digest(known.Summary)); err != nil {
					return nil, err
				}
			}
			sessions = append(sessions, s)
		}
	}
	for len(sessions) < count {
		uid := abi.SessionID(fmt.Sprintf("sess-%s-%d", c.run, len(sessions)))
		if _, err := c.j.Create(context.Background(), Session{UID: uid, Project: c.run, Created: time.Now()}); err != nil {
			return nil, err
		}
		sessions = append(sessions, &childSession{c: c, uid: uid})
	}
	for i, s := range sessions {
		s.forkUID = fmt.Sprintf("sess-%s-%d-fork", c.run, i)
		seed[0] = byte(i)
		s.random = rand.New(rand.NewChaCha8(seed))
	}
	return sessions, nil
}

type childSession struct {
	c      *child
	uid    abi.SessionID
	head   Head
	image  *Image
	random *rand.Rand
	pages  uint32 // to write in the next append; 0 for a few

	forkUID string
	forks   int
}

// append adds a batch: some records, an image with some new pages, blobs now
// and then.
func (s *childSession) append(n int) (ack, error) {
	image, err := s.nextImage()
	if err != nil {
		return ack{}, err
	}
	root := image.Root()
	a := Append{Head: s.head, Image: image, Summary: root[:]}
	notes := make([]note, 1+s.random.IntN(4))
	for i := range notes {
		notes[i] = note{I: i + 1, N: n, Of: len(notes), Run: s.c.run}
		if s.random.IntN(4) == 0 {
			times := 1 + s.random.IntN(500)
			if s.random.IntN(20) == 0 {
				times += blobChunk / 4 // more than one chunk
			}
			blob := bytes.Repeat([]byte(fmt.Sprintf("%s %d %d ", s.c.run, n, i)), times)
			a.Blobs = append(a.Blobs, blob)
			notes[i].Blob = abi.DigestOf(blob)
		}
	}
	notes[len(notes)-1].Root = root
	for _, note := range notes {
		event, err := json.Marshal(note)
		if err != nil {
			return ack{}, err
		}
		a.Events = append(a.Events, event)
	}
	records, err := s.c.j.Append(context.Background(), s.uid, a)
	if err != nil {
		return ack{}, err
	}
	last := records[len(records)-1]
	s.image, s.head = image, Head{Seq: last.Seq, Hash: last.Hash}
	return ack{N: n, Session: s.uid, Seq: last.Seq, Hash: last.Hash}, nil
}

func (s *childSession) nextImage() (*Image, error) {
	size, count := uint32(64), 1+s.random.Uint32N(8)
	switch {
	case s.pages > 0:
		count = s.pages
	case s.random.IntN(60) == 0:
		count = uint32(s.c.j.store.Limits().Ahead/abi.PageSize) + 100 // more than one batch
	}
	size = max(size, count)
	if s.image != nil {
		size = max(size, s.image.tree.pages)
	}
	first := s.random.Uint32N(size - count + 1)
	spec := ImageSpec{Size: uint64(size) * abi.PageSize, Clock: s.random.Int64()}
	for page := first; page < first+count; page++ {
		spec.Changed = append(spec.Changed, page)
	}
	spec.Read = func(_ uint32, dst []byte) error {
		step := 64
		if s.pages > 0 {
			step = 8 // such a page is not packed: it takes the room that it is made for
		}
		for i := 0; i < len(dst); i += step {
			binary.LittleEndian.PutUint64(dst[i:], s.random.Uint64())
		}
		return nil
	}
	return s.c.j.NewImage(s.image, spec)
}

func (s *childSession) fork() ([]abi.SessionID, error) {
	s.forks++
	children := make([]ForkChild, 3)
	var uids []abi.SessionID
	for i := range children {
		uid := abi.SessionID(fmt.Sprintf("%s-%d.%d", s.forkUID, s.forks, i))
		event, err := json.Marshal(note{I: 1, Of: 1, Run: s.c.run})
		if err != nil {
			return nil, err
		}
		uids = append(uids, uid)
		root := s.image.Root()
		children[i] = ForkChild{UID: uid, Event: event, Summary: root[:]}
	}
	_, err := s.c.j.Fork(context.Background(), s.uid, s.head.Seq, time.Now(), children)
	return uids, err
}

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentcell/agentcell/host/edge"
)

// One process at a time has a store. While an agentctl has it, it listens at a
// door in the data directory: there others ask what they cannot read themselves,
// and follow or cancel what runs. A question is a line of JSON on a connection of
// its own; what comes back are lines of JSON, of which each question.go has one
// kind.
//
// The door is a unix socket below doorName, a directory that only its owner may
// enter. It has a new name each time, and stays, closed, until the next process
// has the store: so its name also tells who looks now and then whether anybody
// has had the store meanwhile.

// doorName is the directory of the door in the data directory.
const doorName = "agentctl.door"

// What a peer is given, so that a broken one takes nothing from the process whose
// door it is.
const (
	maxPeers    = 64
	maxQuestion = 16 << 20 // with how far a watch has come in each of many sessions
	// peerTime is how long a peer may take for its question, and to take an answer
	// that is no watch.
	peerTime = 10 * time.Second
	// leaveTime is how long answers under way are waited for at the end.
	leaveTime = 2 * time.Second
)

// door lets other processes ask a host. A nil one is a door that could not be.
type door struct {
	host     *edge.Host
	listener net.Listener
	peerTime time.Duration

	// open ends when the process wants to leave: nobody new is let in, and no
	// watch goes on. staying ends a little later, for answers that are under way.
	open, staying context.Context
	shut, leave   context.CancelFunc
	peers         sync.WaitGroup
	places        chan struct{}
}

// openDoor makes the door of the store in dir, which this process has open. Where
// there can be no socket, as on some file systems, there is none: that is told
// to who asks for the store, as ever.
func openDoor(dir string, h *edge.Host) *door {
	listener, err := listenAt(filepath.Join(dir, doorName))
	if err != nil {
		return nil
	}
	d := &door{host: h, listener: listener, peerTime: peerTime, places: make(chan struct{}, maxPeers)}
	d.open, d.shut = context.WithCancel(context.Background())
	d.staying, d.leave = context.WithCancel(context.Background())
	d.peers.Go(d.listen)
	return d
}

// listenAt makes a socket in dir, which it makes anew, or at least leaves its name
// there.
func listenAt(dir string) (net.Listener, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // which never fails
	name := hex.EncodeToString(id[:])
	var listener *net.UnixListener
	err := atSocket(dir, name, func(path string) (err error) {
		if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		return os.Chmod(path, 0o600)
	})
	if err == nil {
		return listener, nil
	}
	if listener != nil {
		_ = listener.Close()
	}
	return nil, errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
}

// maxSocketPath is a little less than what every system takes for the path of a
// socket.
const maxSocketPath = 100

// atSocket gives f a path of a socket that is short enough: where its own is too
// long, it is reached through a link that lasts as long as f.
func atSocket(dir, name string, f func(path string) error) error {
	if path := filepath.Join(dir, name); len(path) <= maxSocketPath {
		return f(path)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	short, err := os.MkdirTemp("", "agentctl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(short)
	link := filepath.Join(short, "d")
	if err := os.Symlink(dir, link); err != nil {
		return err
	}
	return f(filepath.Join(link, name))
}

// doorMark is what the door of dir is called, empty if there is none: another
// mark than before means that a process has had the store meanwhile.
func doorMark(dir string) string {
	entries, err := os.ReadDir(filepath.Join(dir, doorName))
	if err != nil || len(entries) != 1 {
		return ""
	}
	return entries[0].Name()
}

// close lets nobody in any more and returns when all are gone: watches at once,
// others with their answers unless these take long.
func (d *door) close() {
	if d == nil {
		return
	}
	d.shut()
	_ = d.listener.Close()
	defer time.AfterFunc(leaveTime, d.leave).Stop()
	d.peers.Wait()
	d.leave()
}

func (d *door) listen() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		select {
		case d.places <- struct{}{}:
			d.peers.Go(func() {
				defer func() { <-d.places }()
				d.serve(conn)
			})
		default:
			_ = conn.Close() // as if nobody were there: it asks again
		}
	}
}

// serve answers one peer.
func (d *door) serve(conn net.Conn) {
	defer conn.Close()
	stay := context.AfterFunc(d.open, func() { _ = conn.Close() })
	q, err := d.question(conn)
	if err != nil {
		_ = d.say(conn, answer{Fault: newFault(err)})
		return
	}
	if !stay() {
		return // it asked too late
	}
	ctx, gone := context.WithCancel(d.staying)
	if q.Op == opWatch {
		ctx, gone = context.WithCancel(d.open)
	}
	defer gone()
	// It says nothing more: what can be read is that it has left.
	d.peers.Go(func() {
		_, _ = conn.Read(make([]byte, 1))
		gone()
	})
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if d.say(conn, answer{Heard: true}) != nil {
		return
	}
	d.reply(ctx, conn, q)
}

// question reads what a peer asks.
func (d *door) question(conn net.Conn) (question, error) {
	if err := conn.SetReadDeadline(time.Now().Add(d.peerTime)); err != nil {
		return question{}, err
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxQuestion)
	if !lines.Scan() {
		return question{}, errors.Join(errors.New("no question"), lines.Err())
	}
	var q question
	if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
		return question{}, fmt.Errorf("not a question: %w", err)
	}
	return q, conn.SetReadDeadline(time.Time{})
}

// reply answers a question. Whatever goes wrong there is the peer's alone.
func (d *door) reply(ctx context.Context, conn net.Conn, q question) {
	defer func() {
		if p := recover(); p != nil {
			_ = d.say(conn, answer{Fault: newFault(fmt.Errorf("panic: %v", p))})
		}
	}()
	var err error
	if q.Op == opWatch {
		err = follow(ctx, d.host, q, func(r answer) error { return encodeAnswer(conn, r) })
	} else {
		var r answer
		if r, err = reply(ctx, d.host, q); err == nil {
			err = d.say(conn, r)
		}
	}
	if err != nil && ctx.Err() == nil {
		_ = d.say(conn, answer{Fault: newFault(err)})
	}
}

// say writes an answer to a peer that is to take it now.
func (d *door) say(conn net.Conn, r answer) error {
	if err := conn.SetWriteDeadline(time.Now().Add(d.peerTime)); err != nil {
		return err
	}
	defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	return encodeAnswer(conn, r)
}

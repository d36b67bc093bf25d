package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal/portable"
	"github.com/agentcell/agentcell/sdk/abi"
)

// portableSuffix is what names of portable files end with, if their owner asks.
const portableSuffix = ".agentcell"

// isPortable reports whether an argument that may be a session is a portable
// file: - for stdin, something that only a file's name can be, or a file that
// begins like one.
func isPortable(arg string) bool {
	if arg == "-" || strings.ContainsRune(arg, filepath.Separator) || strings.HasSuffix(arg, portableSuffix) {
		return true
	}
	begins, err := beginsPortable(arg)
	return err == nil && begins
}

func beginsPortable(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, len(portable.Magic))
	n, err := io.ReadFull(f, start)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return string(start[:n]) == portable.Magic, err
}

// exportFile writes a session to a file, which is there whole or not at all, or
// to stdout.
func (a *app) exportFile(ctx context.Context, h *edge.Host, uid abi.SessionID, file string) error {
	if file == "-" {
		if a.outTerminal {
			return usagef("a portable file is no text for a terminal; send stdout to a file or a pipe")
		}
		p, err := h.Export(ctx, uid, exportWriter{a.output})
		if err == nil {
			a.note("%s", exportedLine(p))
		}
		return err
	}
	// What is overwritten should be an export too, and not what a slip named.
	begins, err := beginsPortable(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !begins:
		return usagef("%q is there and is no portable session; name another file", file)
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("export to %q: %w", file, causeOf(err))
	}
	defer os.Remove(f.Name()) // what was renamed is not there
	p, err := h.Export(ctx, uid, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return fmt.Errorf("export to %q: %w", file, err)
	}
	if a.json {
		a.object(exportJSON{
			Session: uid, File: file, Records: p.Records, Blobs: p.Blobs, Pages: p.Pages,
			Seq: int64(p.Session.Head.Seq), Head: p.Session.Head.Hash, Digest: p.Digest,
		})
		return nil
	}
	a.line(exportedLine(p))
	return nil
}

func exportedLine(p host.Portable) string {
	return fmt.Sprintf("exported %s: %d records, head %s", p.Session.UID, p.Records, orNone(p.Session.Head.Hash))
}

// exportWriter is the output as a writer that fails when nobody reads it.
type exportWriter struct{ o *output }

func (w exportWriter) Write(b []byte) (int, error) {
	w.o.data(b)
	return len(b), w.o.failed()
}

// openPortable opens a portable file, or stdin for "-".
func (a *app) openPortable(ctx context.Context, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(waitReader{ctx, a.stdin}), nil
	}
	f, err := wait(ctx, func() (*os.File, error) { return os.Open(file) })
	if err != nil {
		return nil, fmt.Errorf("%q: %w", file, causeOf(err))
	}
	return struct {
		io.Reader
		io.Closer
	}{waitReader{ctx, f}, f}, nil
}

// waitReader reads until ctx ends.
type waitReader struct {
	ctx context.Context
	r   io.Reader
}

func (w waitReader) Read(b []byte) (int, error) {
	part, err := wait(w.ctx, func() ([]byte, error) {
		part := make([]byte, len(b))
		n, err := w.r.Read(part)
		return part[:n], err
	})
	return copy(b, part), err
}

// withFile does work on the session in a portable file, which it loads into
// memory: no store is opened, and none is made.
func (a *app) withFile(ctx context.Context, file string, work func(*edge.Host, host.Session) error) error {
	f, err := a.openPortable(ctx, file)
	if err != nil {
		return err
	}
	defer f.Close()
	options, err := a.options(ctx, "")
	if err != nil {
		return err
	}
	h, err := edge.OpenMemory(options)
	if err != nil {
		return err
	}
	p, err := h.Import(ctx, f, host.ImportRequest{})
	if err == nil {
		err = work(h, p.Session)
	} else {
		err = portableError(file, err)
	}
	return errors.Join(err, h.Close())
}

// portableError is an error of reading a portable file, with what to do about it.
func portableError(file string, err error) error {
	err = fmt.Errorf("%q: %w", file, err)
	switch {
	case errors.Is(err, portable.ErrFormat):
		return usagef("%w; agentctl export --session S FILE makes one", err)
	case errors.Is(err, portable.ErrCut):
		return &adviceError{err, "fetch it again, or export it anew"}
	case errors.Is(err, portable.ErrEdited), errors.Is(err, portable.ErrMixed), errors.Is(err, portable.ErrTrailing):
		return &adviceError{err, "do not trust it; export it anew where the session is"}
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/sdk/abi"
)

type importOptions struct {
	file string
	name string
	// here: --project was given, and not only has its default.
	here bool
}

func newImportCommand(a *app) *cobra.Command {
	var opts importOptions
	cmd := &cobra.Command{
		Use:   "import FILE [--name N] [--project P]",
		Short: "Take up a session that export wrote to a file",
		Long: `import stores the session that is in FILE (- is stdin). It keeps its uid, and its
project and name unless told otherwise; a forked session comes with its ancestors'
records as its own. Everything is checked first, and a file that was cut, edited or
mixed with another is refused whole. A session that is here already as it is in the
file is left as it is; one that has another head is refused.

import runs nothing: agentctl verify --reexecute proves the turns. A turn that was
open is open here, and agentctl resume goes on with it.`,
		Example: `  agentctl import demo.agentcell
  agentctl import demo.agentcell --name copy --project lab
  agentctl export demo - | agentctl import - --data elsewhere`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("%s takes one file that agentctl export made; see %s --help", called(cmd), cmd.CommandPath())
			}
			opts.file = args[0]
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.here = cmd.Flags().Changed("project")
			return runImport(cmd.Context(), a, opts)
		},
	}
	cmd.Flags().Var(text(&opts.name, ""), "name", "call it `N` here")
	return cmd
}

func runImport(ctx context.Context, a *app, opts importOptions) error {
	file, err := a.openPortable(ctx, opts.file)
	if err != nil {
		return err
	}
	defer file.Close()
	req := host.ImportRequest{Name: opts.name}
	if opts.here {
		req.Project = a.project
	}
	a.adds = true
	return a.with(ctx, "", func(h *edge.Host) error {
		p, err := h.Import(ctx, file, req)
		if errors.Is(err, host.ErrExists) {
			err = &adviceError{err, "give it another name with --name"}
		}
		if errors.Is(err, host.ErrConflict) {
			err = &adviceError{err, "what is here stays as it is; --data DIR imports into another store"}
		}
		if err != nil {
			return portableError(opts.file, err)
		}
		a.imported(p)
		if p.Present && (opts.name != "" && opts.name != p.Session.Name || opts.here && a.project != p.Session.Project) {
			a.note("it keeps the project and the name it has here; --name and --project are for a session that comes")
		}
		return nil
	})
}

// imported tells of a session that was imported.
func (a *app) imported(p host.Portable) {
	s := p.Session
	if a.json {
		a.object(importJSON{newSessionJSON(s), !p.Present, p.Records})
	} else {
		what := "imported"
		if p.Present {
			what = "already here:"
		}
		line := fmt.Sprintf("%s %s seq=%d head=%s", what, s.UID, s.Head.Seq, orNone(s.Head.Hash))
		if s.Project != defaultProject {
			line += " project=" + s.Project
		}
		if s.Name != "" {
			line += " name=" + s.Name
		}
		a.line(line)
	}
	if s.State == host.ExecInterrupted {
		a.note("its turn is open; agentctl resume --session %s goes on with it", s.UID)
	}
}

type importJSON struct {
	sessionJSON
	Imported bool  `json:"imported"`
	Records  int64 `json:"records"`
}

type exportJSON struct {
	Session abi.SessionID `json:"session"`
	File    string        `json:"file"`
	Records int64         `json:"records"`
	Blobs   int64         `json:"blobs"`
	Pages   int64         `json:"pages"`
	Seq     int64         `json:"seq"`
	Head    abi.Digest    `json:"head"`
	Digest  abi.Digest    `json:"digest"`
}

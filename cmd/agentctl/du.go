package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/edge"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

type duOptions struct{ session string }

func newDUCommand(a *app) *cobra.Command {
	var opts duOptions
	cmd := &cobra.Command{
		Use:   "du [S]",
		Short: "Show what sessions and snapshots take, and what holds what",
		Long: `du shows what a project's sessions and snapshots take, most of their own first: records,
blobs (harnesses, prompts, large messages), pages of memory of 4 KiB, and bytes. TOTAL is
all that one needs, OWN what nobody else does: deleting it, and agentctl gc then, gives so
much back. A deleted session stands there with what is kept of it, and for whom.

The last lines tell, of all projects, what the store's files take, what gc would give back
at least, and what it did the last time, whoever began it. Sizes are those of what is stored;
files take a little more.`,
		Example: `  agentctl du
  agentctl du demo
  agentctl du --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && opts.session == "":
				opts.session = args[0]
			case len(args) > 0:
				return usagef("du takes one session, not also %q; see %s --help", args[len(args)-1], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runDU(cmd.Context(), a, opts) },
	}
	cmd.Flags().Var(text(&opts.session, ""), "session", "only the session `S`: its uid, a unique prefix of it, or its name")
	return cmd
}

// amountJSON is an amount under --json.
type amountJSON struct {
	Records int64 `json:"records"`
	Blobs   int64 `json:"blobs"`
	Images  int64 `json:"images"`
	Pages   int64 `json:"pages"`
	Bytes   int64 `json:"bytes"`
}

func newAmountJSON(a journal.Amount) *amountJSON {
	return &amountJSON{Records: a.Records, Blobs: a.Blobs, Images: a.Images, Pages: a.Pages, Bytes: a.Bytes()}
}

// usageJSON is a session, a snapshot or, with what is kept of it, a deleted session.
type usageJSON struct {
	Session  abi.SessionID `json:"session"`
	Name     string        `json:"name,omitempty"`
	Snapshot string        `json:"snapshot,omitempty"`
	Project  string        `json:"project"`
	Total    *amountJSON   `json:"total,omitempty"`
	Own      *amountJSON   `json:"own,omitempty"`
	Kept     *amountJSON   `json:"kept,omitempty"`
	KeptFor  []string      `json:"kept_for,omitempty"`
}

// storeJSON is the last line.
type storeJSON struct {
	Disk      int64           `json:"disk"`
	Garbage   *amountJSON     `json:"garbage"`
	Collected *collectionJSON `json:"collected,omitempty"`
}

// collectionJSON is the last collection, whoever began it.
type collectionJSON struct {
	Begun time.Time `json:"begun"`
	Took  float64   `json:"seconds"`
	journal.Collected
}

// collection reads about the last one; nil if there was none.
func collection(j *journal.Journal) (*collectionJSON, error) {
	c, ok, err := host.LastCollection(j)
	if !ok || err != nil {
		return nil, err
	}
	return &collectionJSON{c.Begun, c.Took.Seconds(), c.Collected}, nil
}

// text says when it was, and what it took away.
func (c *collectionJSON) text(now time.Time) string {
	if c == nil {
		return "it was never collected"
	}
	what := strings.TrimPrefix(collectedText(c.Collected), "collected ")
	return fmt.Sprintf("the last collection, %s ago: %s", age(now.Sub(c.Begun)), what)
}

func runDU(ctx context.Context, a *app, opts duOptions) error {
	if opts.session != "" {
		return a.withSession(ctx, "", opts.session, func(h *edge.Host, s host.Session) error {
			u, err := h.Usage(ctx)
			damage, err := a.damage(err)
			if err == nil {
				err = a.duSession(u, s.UID)
			}
			return cmp.Or(err, damage)
		})
	}
	if dir, missing := a.noData(); missing {
		if !a.json {
			a.note("nothing is stored: there is no data in %q yet", dir)
		}
		return nil
	}
	return a.with(ctx, "", func(h *edge.Host) error {
		u, err := h.Usage(ctx)
		damage, err := a.damage(err)
		if err != nil {
			return err
		}
		last, err := collection(h.Journal())
		if err == nil {
			a.du(u, last)
		}
		return cmp.Or(err, damage)
	})
}

// damage tells an error that leaves something to show from any other.
func (a *app) damage(err error) (damage, other error) {
	var u *journal.Unreadable
	if errors.As(err, &u) {
		return &adviceError{err, "what it takes is not all counted; " + a.withDamage(u)}, nil
	}
	return nil, err
}

// du writes what everything of the project takes.
func (a *app) du(u host.Usage, last *collectionJSON) {
	slices.SortStableFunc(u.Keepers, func(x, y host.Keeper) int {
		return cmp.Or(cmp.Compare(y.Own.Bytes(), x.Own.Bytes()), cmp.Compare(y.Total.Bytes(), x.Total.Bytes()))
	})
	t := table{most: a.columns, elastic: []int{1, 7}} // NAME, KEPT FOR
	var rows [][]string
	row := func(uid abi.SessionID, name string, total journal.Amount, own, keptFor string) {
		rows = append(rows, []string{
			string(uid), name, fmt.Sprint(total.Records), fmt.Sprint(total.Blobs), fmt.Sprint(total.Pages),
			bytesText(total.Bytes()), own, keptFor,
		})
	}
	for _, k := range u.Keepers {
		switch {
		case k.Project != a.project:
		case a.json:
			a.object(newUsageJSON(k))
		case k.Snapshot != "":
			row(k.Session.UID, "snapshot "+oneLine(k.Snapshot), k.Total, bytesText(k.Own.Bytes()), "")
		default:
			row(k.Session.UID, oneLine(k.Session.Name), k.Total, bytesText(k.Own.Bytes()), "")
		}
	}
	for _, r := range u.Deleted {
		s := r.Session
		switch {
		case s.Project != a.project:
		case a.json:
			a.object(usageJSON{
				Session: s.UID, Name: s.Name, Project: s.Project, Kept: newAmountJSON(r.Kept), KeptFor: keeperNames(r.For),
			})
		default:
			row(s.UID, strings.TrimSpace("deleted "+oneLine(s.Name)), r.Kept, "", strings.Join(keeperNames(r.For), ", "))
		}
	}
	if a.json {
		a.object(storeJSON{u.Disk, newAmountJSON(u.Garbage), last})
		return
	}
	if len(rows) > 0 {
		a.data([]byte(t.format([]string{"SESSION", "NAME", "RECORDS", "BLOBS", "PAGES", "TOTAL", "OWN", "KEPT FOR"}, rows)))
	}
	a.line(fmt.Sprintf("the store takes %s; gc gives %s back", bytesText(u.Disk), bytesText(u.Garbage.Bytes())))
	a.line(last.text(a.now()))
}

// keptText says which images of past turns are kept.
func keptText(k host.Keeper) string {
	if !k.Session.HoldsMemory {
		return ""
	}
	r := k.Session.Retention.OrDefault()
	if r.Every == 1 {
		return fmt.Sprintf("the images of all %d turns", k.Session.Turns)
	}
	kept := fmt.Sprintf("the last %d", max(r.Last, 1))
	if r.Every > 0 {
		kept += fmt.Sprintf(" and one in %d", r.Every)
	}
	return fmt.Sprintf("%s of the images of %d turns", kept, k.Session.Turns)
}

func newUsageJSON(k host.Keeper) usageJSON {
	return usageJSON{
		Session: k.Session.UID, Name: k.Session.Name, Snapshot: k.Snapshot, Project: k.Project,
		Total: newAmountJSON(k.Total), Own: newAmountJSON(k.Own),
	}
}

// keeperNames are the names, or else the uids, of those who need something.
func keeperNames(all []host.Keeper) []string {
	names := make([]string, len(all))
	for i, k := range all {
		switch {
		case k.Snapshot != "":
			names[i] = "snapshot " + k.Snapshot
		case k.Session.Name != "":
			names[i] = k.Session.Name
		default:
			names[i] = string(k.Session.UID)
		}
	}
	return names
}

// duSession writes what one session takes.
func (a *app) duSession(u host.Usage, uid abi.SessionID) error {
	i := slices.IndexFunc(u.Keepers, func(k host.Keeper) bool { return k.Snapshot == "" && k.Session.UID == uid })
	if i < 0 {
		return fmt.Errorf("session %s: %w", uid, host.ErrNotFound) // deleted meanwhile
	}
	k := u.Keepers[i]
	if a.json {
		a.object(newUsageJSON(k))
		return nil
	}
	t := k.Total
	a.facts([]fact{
		{"session", string(uid)},
		{"name", k.Session.Name},
		{"records", fmt.Sprintf("%d, %s", t.Records, bytesText(t.RecordBytes))},
		{"blobs", fmt.Sprintf("%d, %s", t.Blobs, bytesText(t.BlobBytes))},
		{"memory", fmt.Sprintf("%d images of %d pages, %s", t.Images, t.Pages, bytesText(t.PageBytes))},
		{"kept", keptText(k)},
		{"total", bytesText(t.Bytes())},
		{"own", bytesText(k.Own.Bytes()) + ", which deleting it and gc give back"},
		{"shared", bytesText(t.Bytes()-k.Own.Bytes()) + ", which others need too"},
	})
	return nil
}

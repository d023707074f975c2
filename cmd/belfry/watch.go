package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	watchLive  = time.Second       // between looks, on a terminal
	watchPlain = 5 * time.Second   // elsewhere
	watchMost  = 100               // jobs, without ids
	watchBlind = statementDeadline // how long the database may not answer
)

func newJobsWatchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID...]",
		Short: "Watch jobs run and their messages go, until all is sent",
		Long: `Watch jobs: how far the walk and the delivery are, how fast, how long the rest takes,
and why nothing goes on where nothing does. Without ids every job that runs or is being
delivered, also those that begin meanwhile. The command ends with exit code 0 when the
jobs are at rest: aborted, failed or expired, or PROCESSED with every message sent, dead
or cancelled. A signal ends it before, with exit code 0 too; the jobs go on.

On a terminal the screen is redrawn every --interval, one second by default; elsewhere a
line for each job that changed is printed, every five seconds. With --json each look
prints a JSON document a line for each job.`,
		Example: `  belfry jobs watch
  belfry jobs watch 17 18 --interval 10s
  belfry jobs watch 17 --json | jq .messages.sent`,
	}
	interval := flagOf(cmd.Flags(), "interval", "DURATION", "between looks, 100ms to 1h (default 1s on a terminal, 5s elsewhere)", parseInterval)
	asJSON := cmd.Flags().Bool("json", false, "print JSON documents, one a line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(args)
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			w := watch{app: a, settings: s, db: db, ids: ids, board: newBoard(), every: watchPlain}
			if *asJSON {
				w.show = w.documents
			} else if fd, ok := terminal(a.stdout, a.environ); ok {
				w.show, w.every = w.screen(fd), watchLive
			} else {
				w.show = w.lines
			}
			w.every = interval.or(w.every)
			return w.run(ctx)
		})
	}
	return cmd
}

// parseInterval parses how often something is looked at.
func parseInterval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return 0, errors.New("allowed values: durations from 100ms to 1h, as 2s")
	}
	return d, nil
}

// watch is one `belfry jobs watch`.
type watch struct {
	*app

	settings settings.Settings
	db       *database
	ids      []int64 // empty: whatever is under way
	board    *board
	every    time.Duration
	show     func() error
	drawn    int // lines on the terminal
}

// run looks until the jobs are at rest or a signal comes.
func (w *watch) run(ctx context.Context) error {
	again := time.NewTicker(w.every)
	defer again.Stop()
	answered := w.now()
	for {
		err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return w.leave()
		case err == nil:
			answered = w.now()
			if err := w.show(); err != nil {
				return err
			}
			if w.board.atRest() {
				return w.emptyBoard()
			}
		case !unreachable(err) || len(w.board.jobs) == 0 || w.now().Sub(answered) > watchBlind:
			return notFound(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return w.leave()
		}
	}
}

// leave ends the line that a terminal shows a Ctrl-C in.
func (w *watch) leave() error {
	if w.drawn > 0 {
		w.printf("\n")
	}
	return nil
}

// emptyBoard says why there is nothing on it.
func (w *watch) emptyBoard() error {
	if len(w.board.jobs) == 0 {
		w.remark("no job runs or is being delivered; `belfry jobs list` shows all")
	}
	return nil
}

// look brings the board up to date.
func (w *watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	ids := slices.Clone(w.ids)
	if len(ids) == 0 {
		rows, err := w.db.Pool.Query(ctx, queries.jobsUnderWay, pgx.StrictNamedArgs{"limit": watchMost})
		if err != nil {
			return fmt.Errorf("look for jobs under way: %w", err)
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return fmt.Errorf("look for jobs under way: %w", err)
		}
		ids = append(ids, w.board.watched()...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	store := job.NewStore(w.db.Pool)
	jobs := make([]job.Job, 0, len(ids))
	for _, id := range ids {
		j, err := store.Get(ctx, id)
		switch {
		case err == nil:
			jobs = append(jobs, j)
		case !errors.Is(err, job.ErrNotFound) || slices.Contains(w.ids, id): // otherwise pruned meanwhile
			return err
		}
	}
	states, err := admin.JobStates(ctx, w.db.Pool, jobs)
	if err != nil {
		return err
	}
	c, err := admin.CarriersOf(ctx, w.env(w.settings, w.db))
	if err != nil {
		return err
	}
	unsent, err := outbox.UnsentJobs(ctx, w.db.Pool, ids, max(len(ids), 1))
	if err != nil {
		return err
	}
	now := w.now()
	why := make(map[int64]admin.Standstill, len(unsent))
	for _, u := range unsent {
		why[u.JobID] = c.Standstill(u, now)
	}
	w.board.look(now, states, why)
	return nil
}

// documents prints the board as JSON, a document a line.
func (w *watch) documents() error {
	for _, one := range w.board.jobs {
		text, err := json.Marshal(one.document(w.board.at))
		if err != nil {
			return err
		}
		w.printf("%s\n", text)
	}
	return nil
}

// lines prints a line for each job that changed.
func (w *watch) lines() error {
	for _, one := range w.board.jobs {
		if line := one.line(); line != one.said {
			w.printf("%s\n", line)
			one.said = line
		}
	}
	return nil
}

// screen returns what redraws the board in place, on the terminal fd.
func (w *watch) screen(fd int) func() error {
	return func() error {
		width, height, err := term.GetSize(fd)
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		lines := w.board.lines(max(width-1, 20), max(height-1, 4))
		var b strings.Builder
		if w.drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", min(w.drawn, height-1))
		}
		for _, line := range lines {
			b.WriteString("\r" + line + "\x1b[K\n")
		}
		b.WriteString("\x1b[J")
		w.drawn = len(lines)
		_, err = io.WriteString(w.stdout, b.String())
		return err
	}
}

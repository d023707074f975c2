package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node"
)

// Bounds of --watch, and its value if none is given.
const (
	watchLeast, watchMost = time.Second, time.Hour
	watchDefault          = "2s"
)

// watched are the verbs of operations with --watch.
var watched = []string{"list", "show", "status"}

// addWatch adds --watch to the command of an operation that only reads. It returns nil for other operations.
func addWatch(cmd *cobra.Command, o operation.Operation) *parsed[time.Duration] {
	if o.Changes || o.Item() != nil || !slices.Contains(watched, o.Verb()) {
		return nil
	}
	every := flagOf(cmd.Flags(), "watch", "INTERVAL", "repeat it every INTERVAL, 1s to 1h (default "+watchDefault+"), until Ctrl-C",
		durationBetween(watchLeast, watchMost, "from 1s to 1h, such as 5s"))
	cmd.Flags().Lookup("watch").NoOptDefVal = watchDefault
	return every
}

// watchOperation runs the operation repeatedly until ctx ends, which is not an error. After the first
// result an outage is reported once and the watch continues.
func watchOperation(ctx context.Context, o operationOptions, run func(context.Context, operation.Operation, any) (any, error),
	every time.Duration) error {
	next := time.NewTicker(every)
	defer next.Stop()
	s := &screen{operationOptions: o, page: o.pageOf(o.out), rows: newRows(o.streams, o.out)}
	shown, down := false, false
	for {
		out, err := run(ctx, o.operation, o.input)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if down {
				down = false
				s.report("it answers again")
			}
			if err := s.show(out); err != nil {
				return err
			}
			if err := o.written(); err != nil {
				return err
			}
			shown = true
		case !shown || !node.Unreachable(err):
			return err
		case !down:
			down = true
			first, _, _ := strings.Cut(explain(ctx, err), "\n")
			s.report(fmt.Sprintf("%s; trying again every %s", text.OneLine(first, 200), text.Short(every)))
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// screen shows snapshots: on a terminal each in place of the last one, elsewhere one after the other.
type screen struct {
	operationOptions

	page  *text.Terminal
	rows  *csvRows
	shown bool
	lines []string // of the last snapshot, on a terminal
}

func (s *screen) live() bool { return s.page.Columns > 0 && s.out.forPeople() }

// show shows a snapshot.
func (s *screen) show(out any) error {
	before := s.shown
	s.shown = true
	switch {
	case s.out.json():
		return s.printLines(out)
	case s.out.format == asCSV:
		if err := s.rows.add(s.operation.Listed(out)); err != nil {
			return err
		}
		return s.rows.into.Flush()
	case s.live():
		fresh := s.pageOf(s.out) // the size of the terminal may have changed
		s.page.Columns, s.page.Rows = fresh.Columns, fresh.Rows
		var shown bytes.Buffer
		page := *s.page
		page.Output, page.Notes = &shown, &shown
		page.Show(func(d *text.Doc) { s.operation.Text(d, s.input, out) })
		s.lines = strings.Split(strings.TrimSuffix(shown.String(), "\n"), "\n")
		s.draw("")
		return nil
	case before:
		s.printf("\n")
	}
	s.page.Show(func(d *text.Doc) { s.operation.Text(d, s.input, out) })
	return nil
}

// report shows a message: below the last snapshot on a terminal, as a remark elsewhere.
func (s *screen) report(message string) {
	if s.live() {
		s.draw("belfry: " + message)
		return
	}
	s.remark("belfry: %s", message)
}

// draw draws the last snapshot, and a line below it.
func (s *screen) draw(below string) {
	lines := slices.Clone(s.lines)
	room := max(s.page.Rows-1, 4)
	if below != "" {
		room--
	}
	if len(lines) > room {
		lines = append(lines[:room-1], "and more; a taller terminal shows it")
	}
	if below != "" {
		lines = append(lines, below)
	}
	for i, line := range lines {
		lines[i] = text.Cut(line, max(s.page.Columns-1, 20))
	}
	s.page.Redraw(lines)
}

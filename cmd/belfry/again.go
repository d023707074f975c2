package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/node"
)

// Bounds of --watch, and what it is without a value.
const (
	watchLeast, watchMost = time.Second, time.Hour
	watchDefault          = "2s"
)

// watched are the verbs of what may be looked at again and again.
var watched = []string{"list", "show", "status"}

// addWatch adds --watch to the command of an operation that shows what there is; nil: it does not.
func addWatch(cmd *cobra.Command, o admin.Operation) *parsed[time.Duration] {
	if o.Changes || o.Item() != nil || !slices.Contains(watched, o.Verb()) {
		return nil
	}
	every := flagOf(cmd.Flags(), "watch", "INTERVAL", "look again every INTERVAL, 1s to 1h ("+watchDefault+" where none is given), until Ctrl-C", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < watchLeast || d > watchMost {
			return 0, fmt.Errorf("allowed values: durations from 1s to 1h, as 5s")
		}
		return d, nil
	})
	cmd.Flags().Lookup("watch").NoOptDefVal = watchDefault
	return every
}

// lookAgain runs an operation again and again, until ctx ends, which is no error. Once something
// was seen, an outage is said once, and is no end.
func (a *app) lookAgain(ctx context.Context, run func(context.Context, admin.Operation, any) (any, error), o admin.Operation, in any, form *output, every time.Duration) error {
	next := time.NewTicker(every)
	defer next.Stop()
	s := &screen{app: a, page: a.pageOf(form), rows: a.newRows(form), form: form}
	seen, away := false, false
	for {
		out, err := run(ctx, o, in)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if away {
				away = false
				s.say("it answers again")
			}
			if err := s.show(o, in, out); err != nil {
				return err
			}
			if err := a.written(); err != nil {
				return err
			}
			seen = true
		case !seen || !node.Unreachable(err):
			return err
		case !away:
			away = true
			first, _, _ := strings.Cut(explain(ctx, err), "\n")
			s.say(fmt.Sprintf("%s; looking again every %s", printer.OneLine(first, 200), printer.Short(every)))
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// screen is where looks are shown: each in place of the last on a terminal, one after the other
// elsewhere.
type screen struct {
	app   *app
	page  *printer.Page
	rows  *csvRows
	form  *output
	shown bool
	lines []string // of the last look, on a terminal
}

func (s *screen) live() bool { return s.page.Columns > 0 && s.form.forPeople() }

// show shows a look.
func (s *screen) show(o admin.Operation, in, out any) error {
	before := s.shown
	s.shown = true
	switch {
	case s.form.json():
		return s.app.printLines([]any{out})
	case s.form.form == asCSV:
		if err := s.rows.add(o.Listed(out)); err != nil {
			return err
		}
		return s.rows.into.Flush()
	case s.live():
		fresh := s.app.pageOf(s.form) // it may have another size now
		s.page.Columns, s.page.Rows = fresh.Columns, fresh.Rows
		var text bytes.Buffer
		o.Text(&printer.Page{Output: &text, Notes: &text, Columns: s.page.Columns, Rows: s.page.Rows, Bare: s.page.Bare, Colors: s.page.Colors, Times: s.page.Times}, in, out)
		s.lines = strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		s.draw("")
		return nil
	case before:
		s.app.printf("\n")
	}
	o.Text(s.page, in, out)
	return nil
}

// say tells what is the matter: below the last look on a terminal, as a remark elsewhere.
func (s *screen) say(what string) {
	if s.live() {
		s.draw("belfry: " + what)
		return
	}
	s.app.remark("belfry: %s", what)
}

// draw draws the last look, and a line below it.
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
		lines[i] = printer.Cut(line, max(s.page.Columns-1, 20))
	}
	s.page.Redraw(lines)
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/node"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
)

func newChannelsCommand(a *app) *cobra.Command {
	return a.nounCommand("channels",
		newChannelsImportCommand(a), newChannelsGenerateCommand(a),
		newChannelsCheckCommand(a), newSegmentCommand(a),
		newChannelsAttachCommand(a), newChannelsDetachCommand(a), newChannelsVerifyCommand(a))
}

func newChannelsCheckCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check channels.relation against the contract",
		Long: `Check the table or view of channels.relation against the contract: which columns
of which types, unique, indexed. Every fault is named with its remedy. Exit code 1
when a job could not walk the relation; warnings do not count.

What the database knows of a relation that can be walked is brought in step: by it
belfry.send_external finds channels, and a radius is refused where there is no location.`,
		Args: noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings.Settings, db *database) error {
			store, err := channels.New(s.Channels)
			if err != nil {
				return err
			}
			faults, err := store.Check(ctx, db.Pool)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(faults, func(f channels.Fault) bool { return f.Fatal }) {
				if err := node.RecordRecipients(ctx, db.Pool, s.Channels, a.logger(s, a.stderr)); err != nil {
					return err
				}
			}
			if err := a.reportFaults(store.Relation(), faults, *asJSON); err != nil || *asJSON || store.Relation() != channels.DefaultRelation {
				return err
			}
			attached, err := store.Attached(ctx, db.Pool)
			if err == nil && attached != nil && attached.FilledAt != nil {
				a.remark("%s", attachedSince(*attached))
			}
			return err
		})
	}
	return cmd
}

func (a *app) reportFaults(relation string, faults []channels.Fault, asJSON bool) error {
	var fatal int64
	for _, f := range faults {
		if f.Fatal {
			fatal++
		}
	}
	if asJSON {
		if err := a.printJSON(emptyList(faults)); err != nil {
			return err
		}
	} else {
		for _, f := range faults {
			status := healthWarning
			if f.Fatal {
				status = healthFailed
			}
			a.printf("%-8s %s\n", status, faultText(relation, f))
			if f.Remedy != "" {
				a.printf("%-8s -> %s\n", "", f.Remedy)
			}
		}
	}
	if fatal > 0 {
		return fmt.Errorf("%s does not keep the contract: %s", relation, printer.Counted(fatal, "fault"))
	}
	if !asJSON {
		a.printf("%s keeps the contract\n", relation)
	}
	return nil
}

// ticker limits how often a long command says where it is.
type ticker struct {
	app   *app
	live  *progress
	began time.Time
	last  time.Time
}

func (a *app) newTicker() *ticker {
	now := a.now()
	return &ticker{app: a, live: a.newProgress(), began: now, last: now}
}

// tell shows one line on the terminal, or now and then elsewhere.
func (t *ticker) tell(format string, args ...any) {
	every := plainEvery
	if t.live.width != nil {
		every = redrawEvery
	}
	now := t.app.now()
	if now.Sub(t.last) < every {
		return
	}
	t.last = now
	t.live.line(fmt.Sprintf(format, args...))
}

// perSecond is the rate since the beginning.
func (t *ticker) perSecond(n int64) string {
	took := t.app.now().Sub(t.began)
	if took <= 0 {
		return ""
	}
	return fmt.Sprintf("%s/s", printer.Grouped(int64(float64(n)/took.Seconds())))
}

// pace is the rate since the beginning, and how long the rest takes at that.
func (t *ticker) pace(n, total int64) string {
	text := t.perSecond(n)
	if n > 0 && n < total {
		text += ", " + printer.Short(time.Duration(float64(t.app.now().Sub(t.began))*float64(total-n)/float64(n))) + " left"
	}
	return text
}

// end removes the live line and returns how long it took.
func (t *ticker) end() string {
	t.live.end()
	return printer.Short(t.app.now().Sub(t.began))
}

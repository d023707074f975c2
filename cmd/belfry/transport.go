package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// transportReport is the JSON of `belfry transport status`.
type transportReport struct {
	Transport string              `json:"transport"` // configured here
	Server    string              `json:"server"`    // of the carrier, without user and password; "": there is none
	Error     string              `json:"error"`     // why the carrier does not tell what is inside; "": it does
	Queues    []transportQueue    `json:"queues"`
	Relays    []outbox.RelayState `json:"relays"` // by their last heartbeat
}

// transportQueue is one queue, as the database and as the carrier know it.
type transportQueue struct {
	outbox.QueueState

	Carrier *carrierQueue `json:"carrier"` // null: no carrier is configured, or it does not answer
}

// carrierQueue is what is inside of a queue of the carrier.
type carrierQueue struct {
	InStep  bool            `json:"in_step"` // its memory is that of the present epoch
	Ready   int64           `json:"ready"`
	Later   int64           `json:"later"`
	Taken   int64           `json:"taken"`
	Dead    int64           `json:"dead"`
	Full    bool            `json:"full"`
	Workers []carrierWorker `json:"workers"`
}

// carrierWorker is a relay that takes from a queue.
type carrierWorker struct {
	Name  string     `json:"name"`
	Taken int64      `json:"taken"`
	Seen  *time.Time `json:"seen"` // null: it does not live, and has left something
}

func newTransportCommand(a *app) *cobra.Command {
	return newGroup("transport", "Show, rebuild or empty the carrier that relays take messages from",
		newTransportStatusCommand(a), newTransportRebuildCommand(a), newTransportDrainCommand(a))
}

func newTransportStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is in the carrier, who works on it, and what is QUEUED",
		Long: `Show where relays of this configuration get their messages from, and for each of a
carrier's two queues what is inside: READY to be taken, LATER, TAKEN by workers, ids of
DEAD letters that are kept for a look; and what the database says: how many messages are
QUEUED, for how long at most, who pushes, and since when the epoch is. An epoch begins
when a carrier has lost its memory, or is rebuilt. Then its workers, and the relays.

Exit code 69 when the carrier does not answer; what the database knows is shown.`,
		Args: noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) error {
			report, err := a.transportStatus(ctx, s, db)
			if report == nil {
				return err
			}
			if *asJSON {
				return errors.Join(a.printJSON(report), err)
			}
			return errors.Join(a.showTransport(report), err)
		})
	}
	return cmd
}

// transportStatus asks the database and the carrier. With a report an error is the carrier's.
func (a *app) transportStatus(ctx context.Context, s settings, db *database) (*transportReport, error) {
	states, err := outbox.QueueStates(ctx, db.Pool)
	if err != nil {
		return nil, err
	}
	_, relays, err := outbox.SenderStates(ctx, db.Pool, admin.RelayAlive)
	if err != nil {
		return nil, err
	}
	report := &transportReport{Transport: s.Delivery.Carrier.Transport, Relays: emptyList(relays)}
	for _, q := range states {
		report.Queues = append(report.Queues, transportQueue{QueueState: q})
	}
	broker, err := s.openBroker(a.briefLogger(s))
	if err != nil || broker == nil {
		return report, err
	}
	kind, _ := s.Delivery.Carrier.kind()
	report.Server = kind.at(s.Delivery.Carrier)
	inside, err := broker.Queues(ctx)
	if err = errors.Join(err, broker.Close()); err != nil {
		report.Error = err.Error()
		return report, &exitError{codeUnavailable, fmt.Errorf("the carrier at %s: %w", report.Server, err)}
	}
	for _, in := range inside {
		for i := range report.Queues {
			if q := &report.Queues[i]; q.Name == string(in.Queue) {
				q.Carrier = insideOf(q.QueueState, in)
			}
		}
	}
	return report, nil
}

func insideOf(q outbox.QueueState, in relay.QueueStatus) *carrierQueue {
	c := &carrierQueue{
		InStep: in.Epoch == q.Epoch && in.Last <= q.LastPush || q.LastPush == 0 && in.Epoch == "",
		Ready:  in.Ready, Later: in.Later, Taken: in.Taken, Dead: in.Dead, Full: in.Full, Workers: []carrierWorker{},
	}
	for _, w := range in.Workers {
		worker := carrierWorker{Name: w.Name, Taken: w.Taken}
		if !w.Seen.IsZero() {
			worker.Seen = &w.Seen
		}
		c.Workers = append(c.Workers, worker)
	}
	return c
}

// showTransport renders the report for people.
func (a *app) showTransport(r *transportReport) error {
	if r.Server == "" {
		a.printf("transport %s: relays claim from the database, and there is no carrier\n\n", r.Transport)
	} else {
		a.printf("transport %s at %s\n\n", r.Transport, r.Server)
	}
	t := printer.NewTable("QUEUE", ">READY", ">LATER", ">TAKEN", ">DEAD", ">QUEUED", ">OLDEST", "PUSHED BY", "EPOCH SINCE", "STATE")
	workers := printer.NewTable("WORKER", "QUEUE", ">TAKEN", "SEEN")
	for _, q := range r.Queues {
		cells := []string{q.Name, "", "", "", ""}
		if c := q.Carrier; c != nil {
			cells = []string{q.Name, printer.Grouped(c.Ready), printer.Grouped(c.Later), printer.Grouped(c.Taken), printer.Grouped(c.Dead)}
			for _, w := range c.Workers {
				workers.Add(printer.OneLine(w.Name, 80), q.Name, printer.Grouped(w.Taken), printer.ClockOr(w.Seen, "not alive"))
			}
		}
		oldest, by := "", "nobody"
		if q.Oldest != nil {
			oldest = printer.Short(*q.Oldest)
		}
		if q.LeadsUntil != nil {
			by = printer.OneLine(q.Dispatcher, 60)
		}
		t.Add(append(cells, printer.Grouped(q.Queued), oldest, by, printer.ClockOr(q.EpochAt, "never"), queueState(r, q))...)
	}
	if r.Server == "" {
		for _, heading := range []string{"READY", "LATER", "TAKEN", "DEAD"} {
			t.Drop(heading)
		}
	}
	if err := t.Write(a.stdout); err != nil {
		return err
	}
	if !workers.Empty() {
		a.printf("\n")
		if err := workers.Write(a.stdout); err != nil {
			return err
		}
	}
	if len(r.Relays) == 0 {
		return nil
	}
	a.printf("\n")
	relays := printer.NewTable("RELAY", "STATE", "TRANSPORT", ">IN FLIGHT", "HEARTBEAT")
	for _, one := range r.Relays {
		state := "live"
		if !one.Live {
			state = "dead"
		}
		relays.Add(printer.OneLine(one.Name, 80), state, one.Transport, printer.Grouped(int64(one.InFlight)), printer.Clock(one.HeartbeatAt))
	}
	return relays.Write(a.stdout)
}

// queueState is in a word or two what is particular about a queue.
func queueState(r *transportReport, q transportQueue) string {
	var parts []string
	if q.LeadsUntil != nil && r.Transport != q.Transport {
		parts = append(parts, "pushed to "+q.Transport)
	}
	if q.LeadsUntil == nil && q.Queued > 0 {
		parts = append(parts, "nobody pushes")
	}
	if c := q.Carrier; c != nil {
		if c.Full {
			parts = append(parts, "full")
		}
		if !c.InStep && q.Queued > 0 { // else there is nothing that it was to remember
			parts = append(parts, "memory lost")
		}
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

// errNothingChanged is what an act ends with that nobody has agreed to.
func errNothingChanged(what string) error {
	return usagef("nothing was changed; say --yes if %s", what)
}

// agreedTo asks unless the answer is known.
func (a *app) agreedTo(ctx context.Context, yes bool, question, otherwise string) error {
	if yes {
		return nil
	}
	agreed, err := a.agreed(ctx, question)
	if err == nil && !agreed {
		err = errNothingChanged(otherwise)
	}
	return err
}

// transportDone is the JSON of a rebuild or a drain.
type transportDone struct {
	Messages int64  `json:"messages"` // pushed again soon, or taken back
	By       string `json:"by"`       // the relay that pushes; "": none now
	Emptied  bool   `json:"emptied"`  // the carrier
}

func newTransportRebuildCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Have all that is QUEUED handed to the carrier again",
		Long: `Have all that is QUEUED handed to the carrier again, in bounded pushes, while work goes
on: for a carrier that has lost something which nobody noticed. One that has lost its
memory, or pushes, is rebuilt without this command, and a copy that is lost alone is
pushed again after delivery.requeue_after. The relay that pushes begins within ten
seconds. What the carrier still has may come up twice; each message is claimed once.

It asks on a terminal; elsewhere say --yes.`,
		Example: `  belfry transport rebuild
  belfry transport rebuild --yes --reason "restored from a snapshot"`,
		Args: noArgs,
	}
	yes := cmd.Flags().Bool("yes", false, "do it without asking")
	who := addActFlags(a, cmd, "belfry.events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.agreedTo(cmd.Context(), *yes, "Push all that is queued again?", "all that is queued is to be pushed again"); err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			n, err := outbox.RebuildQueues(ctx, db.Pool, who())
			if err != nil {
				return err
			}
			done := transportDone{Messages: n}
			states, err := outbox.QueueStates(ctx, db.Pool)
			if err != nil {
				return err
			}
			for _, q := range states {
				if q.LeadsUntil != nil {
					done.By = q.Dispatcher
				}
			}
			if *asJSON {
				return a.printJSON(done)
			}
			if done.By == "" {
				a.printf("%s to be pushed again, by the next relay that works on a carrier\n", printer.Counted(n, "message"))
				return nil
			}
			a.printf("%s to be pushed again, by %s within ten seconds\n", printer.Counted(n, "message"), done.By)
			return nil
		})
	}
	return cmd
}

func newTransportDrainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Take everything back from a carrier that no relay works on, and empty it",
		Long: `Take everything back from a carrier that no relay works on: what is QUEUED becomes
PENDING, in bounded steps, and the configured carrier is emptied. It is how a carrier is
given up at once; relays without one do the same by themselves within a minute or so,
but for the emptying. Interrupted, it leaves what it did done, and repeating it goes on.

While relays work on a carrier it names them, does nothing, and ends with exit code 75;
with 69 when all was taken back and the carrier does not answer to be emptied. It asks on
a terminal; elsewhere say --yes.`,
		Example: `  belfry transport drain
  belfry transport drain --yes --reason "moving to another server"`,
		Args: noArgs,
	}
	yes := cmd.Flags().Bool("yes", false, "do it without asking")
	who := addActFlags(a, cmd, "belfry.events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings, db *database) error {
			if err := carrierFree(ctx, db); err != nil {
				return err
			}
			if err := a.agreedTo(ctx, *yes, "Take back all that is queued?", "all that is queued is to be taken back and the carrier emptied"); err != nil {
				return err
			}
			done, err := a.drainTransport(ctx, s, db, who())
			if *asJSON {
				return errors.Join(a.printJSON(done), err)
			}
			a.printf("%s taken back%s\n", printer.Counted(done.Messages, "message"), map[bool]string{true: "; the carrier is empty", false: ""}[done.Emptied])
			return err
		})
	}
	return cmd
}

// drainTransport takes everything back and empties the carrier.
func (a *app) drainTransport(ctx context.Context, s settings, db *database, who job.Act) (done transportDone, err error) {
	show := a.newProgress()
	defer show.end()
	done.Messages, err = outbox.TakeBackQueued(ctx, db.Pool, who, func(taken int64) {
		if show.width != nil {
			show.line("taken back so far: " + printer.Counted(taken, "message"))
		}
	})
	if err != nil {
		return done, err
	}
	if err := carrierFree(ctx, db); err != nil { // one has started meanwhile, and pushes
		return done, err
	}
	states, err := outbox.QueueStates(ctx, db.Pool)
	if err != nil {
		return done, err
	}
	for _, q := range states {
		if q.Queued > 0 {
			return done, fmt.Errorf("%s of the queue %s are locked by somebody and left; repeat `belfry transport drain`", printer.Counted(q.Queued, "message"), q.Name)
		}
	}
	broker, err := s.openBroker(a.briefLogger(s))
	if err != nil || broker == nil {
		return done, err
	}
	if err := errors.Join(broker.Empty(ctx), broker.Close()); err != nil {
		return done, &exitError{codeUnavailable, fmt.Errorf("the carrier is not emptied, which loses nothing: %w", err)}
	}
	done.Emptied = true
	return done, nil
}

// carrierFree refuses while relays work on a carrier, or one that died may still be taken to push.
func carrierFree(ctx context.Context, db *database) error {
	_, relays, err := outbox.SenderStates(ctx, db.Pool, admin.RelayAlive)
	if err != nil {
		return err
	}
	states, err := outbox.QueueStates(ctx, db.Pool)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range relays {
		if r.Live && r.Transport != noCarrier {
			names = append(names, r.Name+" ("+r.Transport+")")
		}
	}
	for _, q := range states {
		if q.LeadsUntil != nil && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, q.Dispatcher+" (") }) {
			names = append(names, fmt.Sprintf("%s (%s, until %s unless it lives)", q.Dispatcher, q.Transport, printer.Clock(*q.LeadsUntil)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &exitError{codeHeld, fmt.Errorf("relays work on a carrier: %s; stop them first, or start them with delivery.transport: %s", strings.Join(names, ", "), noCarrier)}
}

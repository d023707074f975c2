package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// Transport is the result of `transport status`.
type Transport struct {
	Transport string           `json:"transport"` // configured here
	Server    string           `json:"server"`    // of the carrier, without user and password; "" without a carrier
	Error     string           `json:"error"`     // the error of the query of the carrier; "" means none
	Queues    []TransportQueue `json:"queues"`
	Relays    []RelayState     `json:"relays"` // live ones first, then by name
}

// TransportQueue is one queue in the database and in the carrier.
type TransportQueue struct {
	QueueState

	Carrier *CarrierQueue `json:"carrier"` // null without a carrier or its answer
}

// CarrierQueue is the contents of a queue of the carrier.
type CarrierQueue struct {
	InStep  bool            `json:"in_step"` // its content belongs to the current epoch
	Ready   int64           `json:"ready"`
	Later   int64           `json:"later"`
	Taken   int64           `json:"taken"`
	Most    int64           `json:"most"` // the maximum of taken and later together; 0 means no limit
	Dead    int64           `json:"dead"`
	Full    bool            `json:"full"`
	Workers []CarrierWorker `json:"workers"`
}

// CarrierWorker is a relay that takes ids from a queue.
type CarrierWorker struct {
	Name  string     `json:"name"`
	Taken int64      `json:"taken"`
	Seen  *time.Time `json:"seen"` // null for a dead relay with remaining ids
}

// TransportDone is the result of a rebuild or a drain.
type TransportDone struct {
	Plan     *operation.Plan `json:"plan,omitempty"` // set if nothing was changed
	Messages int64           `json:"messages"`       // pushed again soon, or taken back
	By       string          `json:"by"`             // the relay that pushes; "" without one
	Emptied  bool            `json:"emptied"`        // the carrier
}

// Affected returns the number of messages.
func (d *TransportDone) Affected(string) operation.Affected {
	return operation.Affected{N: d.Messages, Noun: "message", Plan: d.Plan}
}

// transportAct is the input of acts on all QUEUED messages.
type transportAct struct {
	operation.PlanFlags
	operation.Act
}

const drained, pushedAgain = "taken back", "pushed again"

func transportOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "transport status", Short: "Show the messages in the carrier, its workers, and QUEUED messages", Role: operation.Viewer,
			Rows: "queues",
			Long: `Show where relays of this configuration get their messages from, and for each of a
carrier's two queues what is inside: READY to be taken, LATER, TAKEN by workers, where
that is bounded how many may be taken and later AT MOST, and ids of DEAD letters that
are kept for a look; and what the database says: how many messages are QUEUED, counted
to 10,000, for how long at most, who pushes, and since when the epoch is. An epoch begins
when a carrier has lost its memory, or is rebuilt. Then its workers, and the relays.

Exit code 69 when the carrier does not answer; what the database knows is shown.`,
		}, transportStatus, transportText),
		operation.Define(operation.Operation{
			Name: "transport rebuild", Short: "Have all that is QUEUED handed to the carrier again",
			Long: `Have all that is QUEUED handed to the carrier again, in bounded pushes, while work goes
on: for a carrier that has lost something which nobody noticed. One that has lost its
memory, or pushes, is rebuilt without this command, and a copy that is lost alone is
pushed again after delivery.requeue_after. The relay that pushes begins within ten
seconds. What the carrier still has may come up twice; each message is claimed once.

--dry-run counts it, by queue, and --plan refuses another number. It asks on a terminal;
elsewhere say --yes.`,
			Example: `  belfry transport rebuild --dry-run
  belfry transport rebuild --yes --reason "restored from a snapshot"`,
			Role: operation.Operator, Changes: true, Events: "the transport's events",
			Confirm: operation.Confirming(func(_ context.Context, _ *operation.Env, in transportAct) (operation.Question, error) {
				if in.DryRun {
					return operation.Question{}, nil
				}
				return operation.Question{Text: "Push all that is queued again?", If: "all that is queued is to be pushed again"}, nil
			}),
		}, rebuildTransport, rebuiltText),
		drainOperation(),
		operation.Timeline{
			Noun: "transport", Subject: SubjectTransport, Label: "TRANSPORT",
			Short:   "Show when carriers were rebuilt, drained and emptied, newest first",
			Example: "  belfry transport events\n  belfry transport events redislist --json", None: "no carrier was ever rebuilt or drained",
		}.Events(),
	}
}

func drainOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "transport drain", Short: "Take everything back from a carrier that no relay works on, and empty it",
		Long: `Take everything back from a carrier that no relay works on: what is QUEUED becomes
PENDING, in bounded steps, and the configured carrier is emptied. It is how a carrier is
given up at once; relays without one do the same by themselves within a minute or so,
but for the emptying. Interrupted, it leaves what it did done, and repeating it goes on.

While relays work on a carrier it names them, does nothing, and ends with exit code 75;
with 69 when all was taken back and the carrier does not answer to be emptied. --dry-run
counts, by queue, also what is inside the carrier, and --plan refuses another number of
messages. It asks on a terminal; elsewhere say --yes.`,
		Example: `  belfry transport drain --dry-run
  belfry transport drain --yes --reason "moving to another server"`,
		Role: operation.Operator, Changes: true, Events: "the transport's events", Deadline: -1,
		Confirm: operation.Confirming(func(ctx context.Context, env *operation.Env, in transportAct) (operation.Question, error) {
			if in.DryRun {
				return operation.Question{}, nil
			}
			return operation.Question{Text: "Take back all that is queued?",
				If: "all that is queued is to be taken back and the carrier emptied"}, carrierFree(ctx, env)
		}),
	}, drainTransport, func(p *text.Doc, _ transportAct, done *TransportDone) {
		if done.Plan != nil {
			done.Plan.Text(p, "message", drained)
			return
		}
		p.Line("%s taken back%s", text.Counted(done.Messages, "message"),
			map[bool]string{true: "; the carrier is empty", false: ""}[done.Emptied])
	})
}

// transportStatus queries the database and the carrier. An error with a result is an error of the carrier.
func transportStatus(ctx context.Context, env *operation.Env, _ operation.None) (*Transport, error) {
	states, err := QueueStates(ctx, env.DB)
	if err != nil {
		return nil, err
	}
	_, relays, err := SenderStates(ctx, env.DB, RelayAlive)
	if err != nil {
		return nil, err
	}
	out := &Transport{Transport: env.Carrier.Transport, Relays: relays}
	for _, q := range states {
		out.Queues = append(out.Queues, TransportQueue{QueueState: q})
	}
	if env.Carrier.Open == nil {
		return out, nil
	}
	out.Server = env.Carrier.Server
	broker, err := env.Carrier.Open()
	if err != nil {
		return out, err
	}
	inside, err := insideCarrier(ctx, broker)
	if err != nil {
		out.Error = err.Error()
		return out, &operation.UnavailableError{Err: fmt.Errorf("the carrier at %s: %w", out.Server, err)}
	}
	for _, in := range inside {
		for i := range out.Queues {
			if q := &out.Queues[i]; q.Name == string(in.Queue) {
				q.Carrier = insideOf(q.QueueState, in)
			}
		}
	}
	return out, nil
}

// insideCarrier queries the queues of the carrier once, and closes it.
func insideCarrier(ctx context.Context, broker outbox.Broker) ([]outbox.QueueStatus, error) {
	inside, err := broker.Queues(ctx)
	return inside, errors.Join(err, broker.Close())
}

func insideOf(q QueueState, in outbox.QueueStatus) *CarrierQueue {
	c := &CarrierQueue{
		InStep: in.Epoch == q.Epoch && in.Last <= q.LastPush || q.LastPush == 0 && in.Epoch == "",
		Ready:  in.Ready, Later: in.Later, Taken: in.Taken, Most: in.Most, Dead: in.Dead, Full: in.Full, Workers: []CarrierWorker{},
	}
	for _, w := range in.Workers {
		worker := CarrierWorker{Name: w.Name, Taken: w.Taken}
		if !w.Seen.IsZero() {
			worker.Seen = &w.Seen
		}
		c.Workers = append(c.Workers, worker)
	}
	return c
}

func transportText(p *text.Doc, _ operation.None, out *Transport) {
	if out.Server == "" {
		p.Line("transport %s: relays claim from the database, and there is no carrier", out.Transport)
	} else {
		p.Line("transport %s at %s", out.Transport, out.Server)
	}
	p.Heading("queues")
	t := text.NewTable("QUEUE", ">READY", ">LATER", ">TAKEN", ">AT MOST", ">DEAD", ">QUEUED", ">OLDEST", "PUSHED BY", "EPOCH SINCE", "STATE")
	workers := text.NewTable("WORKER", "QUEUE", ">TAKEN", "SEEN")
	bounded := false
	for _, q := range out.Queues {
		cells := []any{q.Name, "", "", "", "", ""}
		if c := q.Carrier; c != nil {
			most := text.CellOf("")
			if c.Most > 0 {
				most, bounded = text.Count(c.Most), true
			}
			cells = []any{q.Name, c.Ready, c.Later, c.Taken, most, c.Dead}
			for _, w := range c.Workers {
				workers.Add(text.OneLine(w.Name, 80), q.Name, w.Taken, text.Or(w.Seen, "not alive"))
			}
		}
		oldest, by := text.CellOf(""), "no relay"
		if q.Oldest != nil {
			oldest = text.Duration(*q.Oldest)
		}
		if q.LeadsUntil != nil {
			by = text.OneLine(q.Dispatcher, 60)
		}
		t.Add(append(cells, text.Bounded(q.Queued, QueueCounts), oldest, by, text.Or(q.EpochAt, "never"), text.Status(queueText(out, q)))...)
	}
	if out.Server == "" {
		for _, heading := range []string{"READY", "LATER", "TAKEN", "DEAD"} {
			t.Drop(heading)
		}
	}
	if !bounded {
		t.Drop("AT MOST")
	}
	p.Table(t)
	if !workers.Empty() {
		p.Heading("workers")
		p.Table(workers)
	}
	if len(out.Relays) == 0 {
		return
	}
	p.Heading("relays")
	relays := text.NewTable("RELAY", "STATE", "TRANSPORT", ">IN FLIGHT", "HEARTBEAT")
	for _, r := range out.Relays {
		state := "live"
		if !r.Live {
			state = "dead"
		}
		relays.Add(text.OneLine(r.Name, 80), text.Status(state), r.Transport, r.InFlight, r.HeartbeatAt)
	}
	p.Table(relays)
}

// queueText summarizes the state of a queue.
func queueText(out *Transport, q TransportQueue) string {
	var parts []string
	if q.LeadsUntil != nil && out.Transport != q.Transport {
		parts = append(parts, "pushed to "+q.Transport)
	}
	if q.LeadsUntil == nil && q.Queued > 0 {
		parts = append(parts, "not pushed")
	}
	if c := q.Carrier; c != nil {
		if c.Full {
			parts = append(parts, "full")
		}
		if c.Most > 0 && c.Taken+c.Later >= c.Most {
			parts = append(parts, "no more may be taken")
		}
		if !c.InStep && q.Queued > 0 { // an empty queue loses nothing
			parts = append(parts, "memory lost")
		}
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

// carrierFree returns an error while relays use a carrier, or a dead relay still holds the right to push.
func carrierFree(ctx context.Context, env *operation.Env) error {
	_, relays, err := SenderStates(ctx, env.DB, RelayAlive)
	if err != nil {
		return err
	}
	states, err := QueueStates(ctx, env.DB)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range relays {
		if r.Live && r.Transport != outbox.NoCarrier {
			names = append(names, r.Name+" ("+r.Transport+")")
		}
	}
	for _, q := range states {
		if q.LeadsUntil != nil && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, q.Dispatcher+" (") }) {
			names = append(names, fmt.Sprintf("%s (%s, until %s unless it lives)", q.Dispatcher, q.Transport, text.LocalClock(*q.LeadsUntil)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &operation.HeldError{Err: fmt.Errorf(
		"relays work on a carrier: %s; stop them first, or start them with delivery.transport: %s", strings.Join(names, ", "), outbox.NoCarrier)}
}

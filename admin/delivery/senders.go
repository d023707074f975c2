package delivery

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// RelayAlive is the maximum age of a live relay's last heartbeat. Relays send one about every second, and
// judge each other by the same limit with the default lease.
const RelayAlive = 10 * time.Second

// Senders is the result of `senders list`.
type Senders struct {
	Senders []SenderState `json:"senders"`
	Relays  []RelayState  `json:"relays"`
}

// Sender is a sender after an act on it.
type Sender struct {
	SenderState

	// Note warns of a possible typing error: neither a live relay nor the configuration has a sender
	// with this name.
	Note string `json:"note,omitempty"`
}

// senderRef names a sender.
type senderRef struct {
	Sender string `arg:"SENDER" values:"senders list"`
}

func (r senderRef) Resource() operation.Resource {
	return operation.Resource{Subject: SubjectSender, Name: r.Sender, Show: text.Command("senders list")}
}

type senderActInput struct {
	senderRef
	operation.VersionFlag
	operation.Act
}

type senderChange struct {
	senderRef
	Rate        operation.Change[operation.Rate] `change:"rate_per_second" help:"messages per second of all relays together, above 0 to 1000000" reset:"default,none" allowed:"above 0 to 1000000, or default"`
	Concurrency operation.Change[int]            `change:"concurrency" help:"calls at once of each relay, 1 to 10000" min:"1" max:"10000" reset:"default,none" allowed:"1 to 10000, or default"`
	operation.VersionFlag
	operation.Act
}

func senderOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "senders list", Suggests: "name pause_reason", Short: "List senders, their limits, and relays", Role: operation.Viewer,
			Rows: "senders",
			Long: `List the senders of live relays and of this configuration, and senders that an operator has
changed: their state (ready, no relay, paused, or blocked by a circuit breaker), accepted
and rejected messages per second over the last seconds, messages that wait in relays, and
the limits of the live relays. (set) marks limits set by an operator. Limits of a sender
without a live relay are "as configured". At most 1,000 senders are listed, first those with
settings. A second table lists the relays, by their last heartbeat, with their messages in
flight.`,
		}, listSenders, sendersText),
		operation.Define(operation.Operation{
			Name: "senders set", Short: "Change a sender's limits while relays run", Role: operation.Operator, Changes: true,
			Events: "the sender's events",
			Long: `Change a sender's limits. Live relays follow within about a second. The value default, or
an empty value, restores the configured limit. Keys:

{keys}`,
			Example: `  belfry senders set fcm rate_per_second=200 --reason "provider asked for it"
  belfry senders set fcm rate_per_second=default concurrency=4`,
		}, func(ctx context.Context, env *operation.Env, in senderChange) (Sender, error) {
			change := SenderChange{Rate: in.Rate.Asked, RatePerSecond: (*float64)(in.Rate.To), Slots: in.Concurrency.Asked,
				Concurrency: in.Concurrency.To}
			s, err := SetSender(ctx, env.DB, in.Sender, change, RelayAlive, operation.ActBy(env, in))
			return actedOn(ctx, env, s, err)
		}, func(p *text.Doc, _ senderChange, s Sender) {
			s.InForce = nil // from the relays' last heartbeats, before the change
			senderText(p, s)
		}),
		senderActOperation(operation.Operation{
			Name: "senders pause", Short: "Pause a sender: its provider is not called until it is resumed",
			Long: `Pause a sender: within about a second relays stop calling its provider, and its messages
wait without counting attempts. Calls in progress finish. A paused sender does not change.
Its messages do not fail over to the next medium of their route.`,
			SQL: `INSERT INTO belfry.senders (name, paused_at, paused_by, pause_reason) VALUES ('fcm', now(), 'ann', 'credentials') ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason WHERE senders.paused_at IS NULL;`,
		}, PauseSender),
		senderActOperation(operation.Operation{
			Name: "senders resume", Short: "Resume a paused sender",
			Long: `Resume a paused sender: waiting messages are sent within its limits. An open sender does
not change.`,
			SQL: `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL, pause_reason = '' WHERE name = 'fcm';`,
		}, ResumeSender),
		operation.Timeline{
			Noun: "senders", Values: "senders list", Subject: SubjectSender, Label: "SENDER",
			Short:   "Show changes, pauses and resumptions of senders, newest first",
			Example: "  belfry senders events\n  belfry senders events fcm --json", None: "no sender has events",
		}.Events(),
	}
}

func senderActOperation(o operation.Operation,
	do func(context.Context, *pgxpool.Pool, string, time.Duration, job.Act) (SenderState, error)) operation.Operation {
	o.Role, o.Changes, o.Stops, o.Events = operation.Operator, true, true, "the sender's events"
	o.Example = "  belfry " + o.Name + ` fcm --reason "provider is down"`
	return operation.Define(o, func(ctx context.Context, env *operation.Env, in senderActInput) (Sender, error) {
		s, err := do(ctx, env.DB, in.Sender, RelayAlive, operation.ActBy(env, in))
		return actedOn(ctx, env, s, err)
	}, func(p *text.Doc, _ senderActInput, s Sender) { senderText(p, s) })
}

// listSenders adds configured senders that no live relay has and no operator has changed.
func listSenders(ctx context.Context, env *operation.Env, _ operation.None) (Senders, error) {
	list, relays, err := SenderStates(ctx, env.DB, RelayAlive)
	if err != nil {
		return Senders{}, err
	}
	for _, name := range env.Senders {
		if !slices.ContainsFunc(list, func(k SenderState) bool { return k.Name == name }) {
			list = append(list, SenderState{Name: name})
		}
	}
	slices.SortFunc(list, func(a, b SenderState) int { return strings.Compare(a.Name, b.Name) })
	return Senders{list, relays}, countHeld(ctx, env, list)
}

// countHeld sets the number of messages that wait for each paused sender.
func countHeld(ctx context.Context, env *operation.Env, list []SenderState) error {
	var counts map[string]int64
	for i, s := range list {
		if _, all := (Carriers{Senders: list}).Paused(s.Medium); s.PausedAt == nil || s.Medium == "" || !all {
			continue
		}
		if counts == nil {
			var err error
			if counts, err = WaitingFor(ctx, env.DB); err != nil {
				return err
			}
		}
		list[i].Held = new(counts[s.Medium])
	}
	return nil
}

// actedOn returns the sender, with a note if its name may be wrong.
func actedOn(ctx context.Context, env *operation.Env, s SenderState, err error) (Sender, error) {
	if err != nil || s.Relays > 0 {
		return Sender{SenderState: s}, operation.Refused(err, map[string]string{"name": "sender"})
	}
	if slices.Contains(env.Senders, s.Name) {
		return Sender{s, "no live relay has the sender " + s.Name + " now"}, nil
	}
	known, _, err := SenderStates(ctx, env.DB, RelayAlive)
	if err != nil {
		return Sender{}, err
	}
	names := slices.Clone(env.Senders)
	for _, k := range known {
		if k.Relays > 0 {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return Sender{s, fmt.Sprintf("no live relay has a sender %s, nor does this configuration; known senders: %s%s",
		s.Name, text.OrNone(strings.Join(names, ", ")), keys.Hint(s.Name, names))}, nil
}

func sendersText(p *text.Doc, _ operation.None, out Senders) {
	if len(out.Senders) == 0 {
		p.Line("no sender is configured, has a live relay, or was changed by an operator")
	} else {
		t := text.NewTable("SENDER", "MEDIUM", "STATE", ">SENT/S", ">FAILED/S", ">WAITING", ">RATE", ">CONCURRENCY", ">RELAYS",
			"PAUSED", "BY", "REASON")
		for _, s := range out.Senders {
			sent, failed, waiting := "", "", text.CellOf("")
			if s.Relays > 0 {
				sent, failed, waiting = PerSecond(s.SentPerSecond), PerSecond(s.FailedPerSecond), text.Count(s.Waiting)
			}
			t.Add(text.Ref("sender", s.Name), s.Medium, s.Badge(), sent, failed, waiting, rateText(s), slotsText(s), s.Relays, s.PausedAt,
				s.PausedBy, text.OneLine(s.PauseReason, 80))
		}
		p.Table(t)
	}
	if len(out.Relays) == 0 {
		return
	}
	p.Heading("relays")
	t := text.NewTable("RELAY", "STATE", ">IN FLIGHT", "HEARTBEAT", "STARTED", "SENDERS")
	for _, r := range out.Relays {
		state := "silent"
		if r.Live {
			state = "live"
		}
		t.Add(text.OneLine(r.Name, 80), text.Status(state), r.InFlight, r.HeartbeatAt, r.StartedAt, strings.Join(r.Senders, ", "))
	}
	p.Table(t)
}

// Condition is what an operator has to know of a sender first.
type Condition int

// The conditions of a sender, the gravest last but for Paused, which is an operator's decision.
const (
	Ready    Condition = iota
	NoRelay            // no live relay has it
	HalfOpen           // the breaker of a relay tries single calls
	Open               // the breaker of a relay is open: its provider is not called
	Paused             // by an operator
)

// Condition returns the gravest condition of the sender; Paused goes before all others.
func (s SenderState) Condition() Condition {
	switch {
	case s.PausedAt != nil:
		return Paused
	case slices.Contains(s.Breakers, "open"):
		return Open
	case slices.Contains(s.Breakers, "half_open"):
		return HalfOpen
	case s.Relays == 0:
		return NoRelay
	}
	return Ready
}

// Badge returns the condition for people.
func (s SenderState) Badge() text.StatusCell {
	switch s.Condition() {
	case Paused:
		return text.Status("paused")
	case Open:
		return text.Status("breaker", " open")
	case HalfOpen:
		return text.Status("breaker", " half open")
	case NoRelay:
		return text.Status("no", " relay")
	case Ready:
	}
	return text.Status("ready")
}

// PerSecond formats a rate per second.
func PerSecond(perSecond float64) string {
	if perSecond >= 10 {
		return text.Grouped(int64(perSecond + 0.5))
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64)
}

func senderText(p *text.Doc, s Sender) {
	p.Line("%s", senderLine(s.SenderState))
	if s.Note != "" {
		p.Note("%s", s.Note)
	}
}

// senderLine summarizes a sender.
func senderLine(s SenderState) text.Line {
	limits := text.Sprintf("rate %s, concurrency %s, %s", rateText(s), slotsText(s), text.Counted(int64(s.Relays), "live relay"))
	if s.PausedAt == nil {
		return text.Sprintf("sender %s is open; %s", text.Ref("sender", s.Name), limits)
	}
	return text.Sprintf("sender %s is paused since %s by %s; %s; %s", text.Ref("sender", s.Name), *s.PausedAt, s.PausedBy, limits,
		text.Command("senders resume", s.Name).To("resume it"))
}

const asConfigured = "as configured"

func rateText(s SenderState) string {
	return limitText(s.RatePerSecond, s.InForce, func(l outbox.SenderLimits) float64 { return l.RatePerSecond }, func(rate float64) string {
		if rate == 0 {
			return "no limit"
		}
		return strconv.FormatFloat(rate, 'f', -1, 64) + "/s"
	})
}

func slotsText(s SenderState) string {
	return limitText(s.Concurrency, s.InForce, func(l outbox.SenderLimits) int { return l.Concurrency },
		func(n int) string { return text.Grouped(int64(n)) })
}

// limitText returns the limit of live relays, and whether an operator set it.
func limitText[T float64 | int](set *T, live []outbox.SenderLimits, of func(outbox.SenderLimits) T, text func(T) string) string {
	var inForce []string
	for _, l := range live {
		if value := text(of(l)); !slices.Contains(inForce, value) {
			inForce = append(inForce, value)
		}
	}
	now := strings.Join(inForce, " and ")
	switch {
	case set == nil && now == "":
		return asConfigured
	case set == nil:
		return now
	case now == "" || now == text(*set):
		return text(*set) + " (set)"
	default:
		return fmt.Sprintf("%s (set; %s until the relays follow)", text(*set), now)
	}
}

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

// RelayAlive is how old a live relay's last heartbeat may be. They beat every second or
// so; with the default lease they judge each other by the same time.
const RelayAlive = 10 * time.Second

// Senders is what `senders list` shows.
type Senders struct {
	Senders []SenderState `json:"senders"`
	Relays  []RelayState  `json:"relays"`
}

// Sender is a sender after an act on it.
type Sender struct {
	SenderState

	// Note says that no relay may follow: a name that neither a live relay nor the
	// configuration knows may be a slip.
	Note string `json:"note,omitempty"`
}

// senderRef names a sender.
type senderRef struct {
	Sender string `arg:"SENDER" values:"senders list"`
}

func (r senderRef) Resource() operation.Resource {
	return operation.Resource{Subject: SubjectSender, Name: r.Sender, Show: "senders list"}
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
			Name: "senders list", Offers: "name pause_reason", Short: "List senders, what operators set, and the relays", Role: operation.Viewer, Rows: "senders",
			Long: `List the senders of live relays and of this configuration, and those that an operator
has changed: whether they are ready, no relay has them, they are paused or a circuit
breaker keeps calls from them; how many messages a second their providers took and did
not take over the last seconds, how many relays have ready for them, and the limits that
live relays work by. (set) marks what an operator set, and a sender without a live relay
has its limits "as configured". Then the relays, by their last heartbeat, and how many
messages each has in flight.`,
		}, listSenders, sendersText),
		operation.Define(operation.Operation{
			Name: "senders set", Short: "Change a sender's limits while relays run", Role: operation.Operator, Changes: true, Events: "the sender's events",
			Long: `Change a sender's limits. Live relays follow within a second or so; the configuration
counts again with default, or nothing after the =. Keys:

{keys}`,
			Example: `  belfry senders set fcm rate_per_second=200 --reason "provider asked for it"
  belfry senders set fcm rate_per_second=default concurrency=4`,
		}, func(ctx context.Context, env *operation.Env, in senderChange) (Sender, error) {
			change := SenderChange{Rate: in.Rate.Asked, RatePerSecond: (*float64)(in.Rate.To), Slots: in.Concurrency.Asked, Concurrency: in.Concurrency.To}
			s, err := SetSender(ctx, env.DB, in.Sender, change, RelayAlive, operation.ActBy(env, in))
			return actedOn(ctx, env, s, err)
		}, func(p *text.Doc, _ senderChange, s Sender) { senderText(p, s) }),
		senderActOperation(operation.Operation{
			Name: "senders pause", Short: "Stop a sender: its provider is not called until it is resumed",
			Long: `Stop a sender: from the next second or so on no relay calls its provider, and its
messages wait, none of their attempts counted. Calls in progress end by themselves. A
sender that is paused already stays as it is. Routes do not go round it: its messages
do not fail over.`,
			SQL: `INSERT INTO belfry.senders (name, paused_at, paused_by, pause_reason) VALUES ('fcm', now(), 'ann', 'credentials') ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason WHERE senders.paused_at IS NULL;`,
		}, PauseSender),
		senderActOperation(operation.Operation{
			Name: "senders resume", Short: "Open a paused sender",
			Long: `Open a paused sender: what has waited is sent within its limits. A sender that is
open already stays as it is.`,
			SQL: `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL, pause_reason = '' WHERE name = 'fcm';`,
		}, ResumeSender),
		operation.Timeline{
			Noun: "senders", Values: "senders list", Subject: SubjectSender, Label: "SENDER", Short: "Show when senders were changed, paused and opened, newest first",
			Example: "  belfry senders events\n  belfry senders events fcm --json", None: "no sender was ever changed or paused",
		}.Events(),
	}
}

func senderActOperation(o operation.Operation, do func(context.Context, *pgxpool.Pool, string, time.Duration, job.Act) (SenderState, error)) operation.Operation {
	o.Role, o.Changes, o.Stops, o.Events = operation.Operator, true, true, "the sender's events"
	o.Example = "  belfry " + o.Name + ` fcm --reason "provider is down"`
	return operation.Define(o, func(ctx context.Context, env *operation.Env, in senderActInput) (Sender, error) {
		s, err := do(ctx, env.DB, in.Sender, RelayAlive, operation.ActBy(env, in))
		return actedOn(ctx, env, s, err)
	}, func(p *text.Doc, _ senderActInput, s Sender) { senderText(p, s) })
}

// listSenders adds the senders of the configuration that no live relay has and nobody has
// said anything about.
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
	return Senders{list, relays}, nil
}

// actedOn tells what the sender is now, and whether somebody may have misnamed it.
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
	return Sender{s, fmt.Sprintf("no live relay and no configuration here has a sender %s; there are: %s%s",
		s.Name, text.OrNone(strings.Join(names, ", ")), keys.Hint(s.Name, names))}, nil
}

func sendersText(p *text.Doc, _ operation.None, out Senders) {
	if len(out.Senders) == 0 {
		p.Printf("no relay with a sender lives, none is configured, and no operator has changed any\n")
	} else {
		t := text.NewTable("SENDER", "MEDIUM", "STATE", ">SENT/S", ">FAILED/S", ">WAITING", ">RATE", ">CONCURRENCY", ">RELAYS", "PAUSED", "BY", "REASON")
		for _, s := range out.Senders {
			sent, failed, waiting := "", "", ""
			if s.Relays > 0 {
				sent, failed, waiting = PerSecond(s.SentPerSecond), PerSecond(s.FailedPerSecond), text.Grouped(int64(s.Waiting))
			}
			t.Add(s.Name, s.Medium, SenderShown(s), sent, failed, waiting, rateText(s), slotsText(s), text.Int(int64(s.Relays)), p.ClockOr(s.PausedAt, ""), s.PausedBy, text.OneLine(s.PauseReason, 80))
		}
		p.Table(t)
	}
	if len(out.Relays) == 0 {
		return
	}
	p.Printf("\n")
	t := text.NewTable("RELAY", "STATE", ">IN FLIGHT", "HEARTBEAT", "STARTED", "SENDERS")
	for _, r := range out.Relays {
		state := "silent"
		if r.Live {
			state = "live"
		}
		t.Add(text.OneLine(r.Name, 80), state, text.Grouped(int64(r.InFlight)), p.Clock(r.HeartbeatAt), p.Clock(r.StartedAt), strings.Join(r.Senders, ", "))
	}
	p.Table(t)
}

// SenderShown is whether its provider is called: it is ready, no relay has it, an operator has paused
// it, or the breaker of a relay keeps calls from it. "Open" is a word of breakers alone.
func SenderShown(s SenderState) string {
	switch {
	case s.PausedAt != nil:
		return "paused"
	case slices.Contains(s.Breakers, "open"):
		return "breaker open"
	case slices.Contains(s.Breakers, "half_open"):
		return "breaker half open"
	case s.Relays == 0:
		return "no relay"
	}
	return "ready"
}

// PerSecond is a rate a second; "0": there was nothing.
func PerSecond(perSecond float64) string {
	if perSecond >= 10 {
		return text.Grouped(int64(perSecond + 0.5))
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64)
}

func senderText(p *text.Doc, s Sender) {
	p.Printf("%s\n", senderLine(p.Times, s.SenderState))
	if s.Note != "" {
		p.Note("%s", s.Note)
	}
}

// senderLine is one line about a sender.
func senderLine(times text.Times, s SenderState) string {
	limits := fmt.Sprintf("rate %s, concurrency %s, %s", rateText(s), slotsText(s), text.Counted(int64(s.Relays), "live relay"))
	if s.PausedAt == nil {
		return fmt.Sprintf("sender %s is open; %s", s.Name, limits)
	}
	return fmt.Sprintf("sender %s is paused since %s by %s; %s; `belfry senders resume %s` opens it", s.Name, times.Clock(*s.PausedAt), s.PausedBy, limits, s.Name)
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
	return limitText(s.Concurrency, s.InForce, func(l outbox.SenderLimits) int { return l.Concurrency }, func(n int) string { return text.Grouped(int64(n)) })
}

// limitText is one limit: what live relays work by, and whether an operator set it.
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

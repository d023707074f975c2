package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// relayAlive is how old a live relay's last heartbeat may be. They beat every second or
// so; with the default lease they judge each other by the same time.
const relayAlive = 10 * time.Second

// sendersReport is the JSON of `belfry senders list`.
type sendersReport struct {
	Senders []outbox.SenderState `json:"senders"`
	Relays  []outbox.RelayState  `json:"relays"`
}

func newSendersCommand(a *app) *cobra.Command {
	return newGroup("senders", "List the senders of live relays, change their limits, or stop one",
		newSendersListCommand(a), newSendersSetCommand(a),
		newSenderActCommand(a, senderAct{
			"pause", "Stop a sender: its provider is not called until it is resumed",
			`Stop a sender: from the next second or so on no relay calls its provider, and its
messages wait, none of their attempts counted. Calls in progress end by themselves. A
sender that is paused already stays as it is. Routes do not go round it: its messages
do not fail over.`,
			outbox.PauseSender,
		}),
		newSenderActCommand(a, senderAct{
			"resume", "Open a paused sender",
			`Open a paused sender: what has waited is sent within its limits. A sender that is
open already stays as it is.`,
			outbox.ResumeSender,
		}),
		newControlEventsCommand(a, controlEvents{
			subject: outbox.SubjectSender, argument: "SENDER", short: "Show when senders were changed, paused and opened, newest first",
			example: "  belfry senders events\n  belfry senders events fcm --json", none: "no sender was ever changed or paused",
		}))
}

func newSendersListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List senders, what operators set, and the relays",
		Long: `List the senders of live relays and of this configuration, and those that an operator
has changed: whether they are paused, and the limits that live relays work
by; (set) marks what an operator set, and a sender without a live relay has its limits
"as configured". Then the relays, by their last heartbeat, and how many messages
each has in flight.`,
		Args: noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) error {
			senders, relays, err := outbox.SenderStates(ctx, db.Pool, relayAlive)
			if err != nil {
				return err
			}
			senders = withConfigured(senders, s)
			if *asJSON {
				return a.printJSON(sendersReport{emptyList(senders), emptyList(relays)})
			}
			return a.listSenders(senders, relays)
		})
	}
	return cmd
}

// withConfigured adds the senders of the configuration that no live relay has and
// nobody has said anything about.
func withConfigured(list []outbox.SenderState, s settings) []outbox.SenderState {
	for _, configured := range s.Senders {
		if !slices.ContainsFunc(list, func(k outbox.SenderState) bool { return k.Name == configured.Name }) {
			list = append(list, outbox.SenderState{Name: configured.Name})
		}
	}
	slices.SortFunc(list, func(a, b outbox.SenderState) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (a *app) listSenders(senders []outbox.SenderState, relays []outbox.RelayState) error {
	if len(senders) == 0 {
		a.printf("no relay with a sender lives, none is configured, and no operator has changed any\n")
	} else {
		t := printer.NewTable("SENDER", "STATE", ">RATE", ">CONCURRENCY", ">RELAYS", "PAUSED", "BY", "REASON")
		for _, s := range senders {
			state := "open"
			if s.PausedAt != nil {
				state = "paused"
			}
			t.Add(s.Name, state, rateText(s), slotsText(s), printer.Int(int64(s.Relays)), printer.ClockOr(s.PausedAt, ""), s.PausedBy, printer.OneLine(s.PauseReason, 80))
		}
		if err := t.Write(a.stdout); err != nil {
			return err
		}
	}
	if len(relays) == 0 {
		return nil
	}
	a.printf("\n")
	t := printer.NewTable("RELAY", "STATE", ">IN FLIGHT", "HEARTBEAT", "STARTED", "SENDERS")
	for _, r := range relays {
		state := "silent"
		if r.Live {
			state = "live"
		}
		t.Add(printer.OneLine(r.Name, 80), state, printer.Grouped(int64(r.InFlight)), printer.Clock(r.HeartbeatAt), printer.Clock(r.StartedAt), strings.Join(r.Senders, ", "))
	}
	return t.Write(a.stdout)
}

const asConfigured = "as configured"

func rateText(s outbox.SenderState) string {
	return limitText(s.RatePerSecond, s.InForce, func(l outbox.SenderLimits) float64 { return l.RatePerSecond }, func(rate float64) string {
		if rate == 0 {
			return "no limit"
		}
		return strconv.FormatFloat(rate, 'f', -1, 64) + "/s"
	})
}

func slotsText(s outbox.SenderState) string {
	return limitText(s.Concurrency, s.InForce, func(l outbox.SenderLimits) int { return l.Concurrency }, func(n int) string { return printer.Grouped(int64(n)) })
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

func newSendersSetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set SENDER KEY=VALUE...",
		Short: "Change a sender's limits while relays run",
		Long: `Change a sender's limits. Live relays follow within a second or so; the configuration
counts again with default, or nothing after the =. Keys:

  rate_per_second      messages per second of all relays together, above 0 to 1000000
  concurrency          calls at once of each relay, 1 to 10000`,
		Example: `  belfry senders set fcm rate_per_second=200 --reason "provider asked for it"
  belfry senders set fcm rate_per_second=default concurrency=4`,
		Args: nameAndChanges("SENDER"),
	}
	who := addActFlags(a, cmd, "the sender's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseSenderChange(args[1:])
		if err != nil {
			return err
		}
		return a.actOnSender(cmd, args[0], *asJSON, func(ctx context.Context, pool *pgxpool.Pool) (outbox.SenderState, error) {
			return outbox.SetSender(ctx, pool, args[0], change, relayAlive, who())
		})
	}
	return cmd
}

// nameAndChanges wants a name and at least one KEY=VALUE.
func nameAndChanges(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return usagef("%s takes %s KEY=VALUE..., got %s", named(cmd), name, printer.Counted(int64(len(args)), "argument"))
		}
		return nil
	}
}

// keyValues splits KEY=VALUE arguments, each with one of the keys, none twice, and
// gives them to set. It reports every one that is wrong.
func keyValues(args, keys []string, set func(key, value string) error) error {
	var problems []string
	seen := make(map[string]bool)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%q is no change; write KEY=VALUE", printer.OneLine(arg, 60)))
		case !slices.Contains(keys, key):
			problems = append(problems, fmt.Sprintf("%s: cannot be set; allowed keys: %s%s", printer.OneLine(key, 60), strings.Join(keys, ", "), config.Hint(key, keys)))
		case seen[key]:
			problems = append(problems, key+": given twice")
		default:
			seen[key] = true
			if err := set(key, value); err != nil {
				problems = append(problems, key+": "+err.Error())
			}
		}
	}
	if len(problems) > 0 {
		return usagef("%s", strings.Join(problems, "\n  "))
	}
	return nil
}

func parseSenderChange(args []string) (c outbox.SenderChange, err error) {
	err = keyValues(args, []string{"rate_per_second", "concurrency"}, func(key, value string) error {
		cleared := value == "" || value == "default" || value == "none"
		if key == "concurrency" {
			if c.Slots = true; cleared {
				return nil
			}
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 10_000 {
				return fmt.Errorf("%q is not allowed; allowed values: 1 to 10000, or default", printer.OneLine(value, 60))
			}
			c.Concurrency = &n
			return nil
		}
		if c.Rate = true; cleared {
			return nil
		}
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(rate) || rate <= 0 || rate > 1_000_000 {
			return fmt.Errorf("%q is not allowed; allowed values: above 0 to 1000000, or default", printer.OneLine(value, 60))
		}
		c.RatePerSecond = &rate
		return nil
	})
	return c, err
}

// senderAct is pause or resume.
type senderAct struct {
	name, short, long string
	do                func(context.Context, *pgxpool.Pool, string, time.Duration, job.Act) (outbox.SenderState, error)
}

func newSenderActCommand(a *app, act senderAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:     act.name + " SENDER",
		Short:   act.short,
		Long:    act.long,
		Example: "  belfry senders " + act.name + ` fcm --reason "provider is down"`,
		Args:    exactArgs("SENDER"),
	}
	who := addActFlags(a, cmd, "the sender's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.actOnSender(cmd, args[0], *asJSON, func(ctx context.Context, pool *pgxpool.Pool) (outbox.SenderState, error) {
			return act.do(ctx, pool, args[0], relayAlive, who())
		})
	}
	return cmd
}

// actOnSender carries out an act and shows what the sender is now. A name that neither a
// live relay nor the configuration knows may be a slip: it says so.
func (a *app) actOnSender(cmd *cobra.Command, name string, asJSON bool, act func(context.Context, *pgxpool.Pool) (outbox.SenderState, error)) error {
	return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, configured settings, db *database) error {
		s, err := act(ctx, db.Pool)
		if err != nil {
			return senderProblem(err)
		}
		if asJSON {
			err = a.printJSON(s)
		} else {
			a.printf("%s\n", senderStatus(s))
		}
		if err != nil || s.Relays > 0 {
			return err
		}
		known, _, err := outbox.SenderStates(ctx, db.Pool, relayAlive)
		if err != nil {
			return err
		}
		var names []string
		for _, k := range known {
			if k.Relays > 0 {
				names = append(names, k.Name)
			}
		}
		for _, k := range configured.Senders {
			if k.Name == name {
				a.remark("no live relay has the sender %s now", name)
				return nil
			}
			names = append(names, k.Name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		a.remark("no live relay and no configuration here has a sender %s; there are: %s%s", name, printer.OrNone(strings.Join(names, ", ")), config.Hint(name, names))
		return nil
	})
}

// senderProblem makes what the database refused a matter of usage.
func senderProblem(err error) error {
	var invalid *job.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	problem := strings.TrimPrefix(invalid.Message, "belfry.senders.")
	if _, text, ok := strings.Cut(problem, ": "); ok && invalid.Column == "name" {
		problem = "SENDER: " + text
	}
	return usagef("%s", problem)
}

// senderStatus is one line about a sender.
func senderStatus(s outbox.SenderState) string {
	limits := fmt.Sprintf("rate %s, concurrency %s, %s", rateText(s), slotsText(s), printer.Counted(int64(s.Relays), "live relay"))
	if s.PausedAt == nil {
		return fmt.Sprintf("sender %s is open; %s", s.Name, limits)
	}
	return fmt.Sprintf("sender %s is paused since %s by %s; %s; `belfry senders resume %s` opens it", s.Name, printer.Clock(*s.PausedAt), s.PausedBy, limits, s.Name)
}

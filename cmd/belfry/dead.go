package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

func newDeadCommand(a *app) *cobra.Command {
	return a.nounCommand("dead-letters",
		newDeadListCommand(a), newDeadShowCommand(a), newDeadRedriveCommand(a), newDeadDiscardCommand(a))
}

// deadHelp says what the flags of a filter mean.
const deadHelp = `A dead letter is a message that is not tried any more: a provider refused it permanently,
or every medium of its route failed as often as it may. --job takes the id of a job, or
a negative one, which is an activity's. --since and --until are about when it died, as
RFC 3339, as "2026-11-20 08:50" in local time, or as the time that has passed since: 2h,
7d. Filters are taken together. Reasons:

`

func deadReasons() string {
	var b strings.Builder
	for _, r := range outbox.Whys(outbox.ReasonDead) {
		fmt.Fprintf(&b, "  %-16s %s\n", r, outbox.WhyText(outbox.ReasonDead, r))
	}
	return strings.TrimRight(b.String(), "\n")
}

// deadFlags are the filter of the commands on dead letters.
type deadFlags struct {
	job, channel     *parsed[int64]
	external, medium *string
	reason           *parsed[string]
	since, until     *parsed[time.Time]
}

func addDeadFlags(a *app, cmd *cobra.Command) deadFlags {
	f := cmd.Flags()
	var reasons []string
	for _, r := range outbox.Whys(outbox.ReasonDead) {
		reasons = append(reasons, string(r))
	}
	return deadFlags{
		job:      flagOf(f, "job", "ID", "only messages of this job, or with a negative id of this activity", parseMessageJob),
		medium:   f.String("medium", "", "only those whose last `MEDIUM` this was"),
		reason:   flagOf(f, "dead-reason", "REASON", "only those that died for this reason", oneOf(reasons...)),
		since:    flagOf(f, "since", "TIME", "only those that died then or later", pastParser(a.now, time.Local)),
		until:    flagOf(f, "until", "TIME", "only those that died before", pastParser(a.now, time.Local)),
		channel:  flagOf(f, "channel", "ID", "only those to the channel with this id", parseChannel),
		external: f.String("external-id", "", "only those to the channel with this external `ID`"),
	}
}

// parseMessageJob parses what a message belongs to: the id of a job or of an activity.
func parseMessageJob(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id == 0 {
		return 0, errors.New("allowed values: whole numbers from 1, as `belfry jobs list` shows them, or from -1 down for activities")
	}
	return id, nil
}

// pastParser parses an instant as instantParser does, or how long it is ago.
func pastParser(now func() time.Time, zone *time.Location) func(string) (time.Time, error) {
	instant := instantParser(now, zone)
	return func(text string) (time.Time, error) {
		if age, err := parseAge(text); err == nil {
			return now().Add(-age).UTC(), nil
		}
		if t, err := instant(text); err == nil && !strings.HasPrefix(text, "+") {
			return t, nil
		}
		return time.Time{}, errors.New(`allowed values: RFC 3339 as 2026-11-20T08:50:00+09:00, "2026-11-20 08:50" in local time, or the time since then, as 90m, 2h or 7d`)
	}
}

// filter is what the flags select. The database finds the channel of an external id.
func (f deadFlags) filter(ctx context.Context, cmd *cobra.Command, s settings, db *database) (d outbox.DeadFilter, err error) {
	d = outbox.DeadFilter{
		JobID: f.job.or(0), Medium: *f.medium, Reason: outbox.Reason(f.reason.or("")),
		Since: f.since.value, Until: f.until.value, ChannelID: f.channel.value,
	}
	if cmd.Flags().Changed("external-id") {
		var id int64
		if id, err = resolveChannel(ctx, s, db, *f.external); err == nil {
			d.ChannelID = &id
		}
	}
	return d, err
}

// check refuses flags that exclude each other.
func (f deadFlags) check(cmd *cobra.Command) error {
	if f.channel.value != nil && cmd.Flags().Changed("external-id") {
		return usagef("--channel and --external-id exclude each other; give one")
	}
	return nil
}

// given reports whether any flag of the filter was given.
func (f deadFlags) given(cmd *cobra.Command) bool {
	for _, name := range []string{"job", "medium", "dead-reason", "since", "until", "channel", "external-id"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func resolveChannel(ctx context.Context, s settings, db *database, externalID string) (int64, error) {
	store, err := channels.New(s.Channels)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	return store.Resolve(ctx, db.Pool, externalID)
}

// deadProblem makes a filter of what there is not a matter of usage.
func deadProblem(err error) error {
	var bad *outbox.DeadFilterError
	if errors.As(err, &bad) {
		flag := bad.Field
		if flag == "reason" {
			flag = "dead-reason"
		}
		return usagef("invalid argument for \"--%s\" flag: %s", flag, bad.Problem)
	}
	return notFound(err)
}

func newDeadListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, those of the newest jobs first",
		Long:  "List dead letters, those of the newest jobs first and activities last.\n\n" + deadHelp + deadReasons(),
		Example: `  belfry dead-letters list
  belfry dead-letters list --job 17 --medium sms --since 2h
  belfry dead-letters list --dead-reason permanent --limit 1000 --json`,
		Args: noArgs,
	}
	flags := addDeadFlags(a, cmd)
	limit := flagOf(cmd.Flags(), "limit", "N", "at most so many, 1 to 1000 (default 100)", intBetween(1, 1000))
	before := flagOf(cmd.Flags(), "before", "JOB:CHANNEL", "only those listed after this one, for the next page", parseMessageKey)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(cmd); err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings, db *database) error {
			filter, err := flags.filter(ctx, cmd, s, db)
			if err != nil {
				return err
			}
			n := int(limit.or(100))
			list, err := outbox.DeadLetters(ctx, db.Pool, filter, before.value, n+1)
			if err != nil {
				return deadProblem(err)
			}
			list, more := onePage(list, n)
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			return a.listDead(list, more, before.value != nil, flags.given(cmd))
		})
	}
	return cmd
}

// parseMessageKey parses JOB:CHANNEL.
func parseMessageKey(text string) (outbox.Key, error) {
	first, second, ok := strings.Cut(text, ":")
	jobID, err1 := strconv.ParseInt(first, 10, 64)
	channelID, err2 := strconv.ParseInt(second, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return outbox.Key{}, errors.New("allowed values: JOB:CHANNEL, as 17:4711")
	}
	return outbox.Key{JobID: jobID, ChannelID: channelID}, nil
}

func (a *app) listDead(list []outbox.DeadLetter, more, later, filtered bool) error {
	switch {
	case len(list) == 0 && later:
		a.printf("no more dead letters\n")
		return nil
	case len(list) == 0 && filtered:
		a.printf("no dead letter matches; `belfry dead-letters list` without flags shows all\n")
		return nil
	case len(list) == 0:
		a.printf("no dead letters: every message is sent, cancelled, or still to be sent\n")
		return nil
	}
	t := printer.NewTable(">JOB", ">CHANNEL", "MEDIUM", "REASON", ">ATTEMPTS", "DEAD SINCE", "REDRIVE", "ERROR")
	for _, d := range list {
		t.Add(printer.Int(d.JobID), printer.Int(d.ChannelID), d.Medium, string(d.Reason), printer.Int(int64(d.Attempts)), printer.Clock(d.DeadAt), redriveNote(d.Held, d.Kept), printer.OneLine(d.Error, 120))
	}
	if err := t.Write(a.stdout); err != nil {
		return err
	}
	if more {
		last := list[len(list)-1]
		a.remark("there are more: --before %d:%d shows the next page", last.JobID, last.ChannelID)
	}
	return nil
}

// redriveNote says in a word what a redrive does with a dead letter.
func redriveNote(held bool, kept string) string {
	switch {
	case kept == "retention":
		return "no, being deleted"
	case kept != "":
		return "no, recalled"
	case held:
		return "held, job aborted"
	}
	return "possible"
}

func newDeadShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show --job ID {--channel ID | --external-id ID}",
		Short: "Show one message and everything that was recorded of it",
		Long: `Show one message, dead or not, and everything that was recorded of it: each attempt
that was no plain success, and each medium that was bypassed.`,
		Example: `  belfry dead-letters show --job 17 --channel 4711
  belfry dead-letters show --job -12 --external-id user-4711 --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	jobID := flagOf(f, "job", "ID", "the message's job, or with a negative id its activity", parseMessageJob)
	channel := flagOf(f, "channel", "ID", "its channel's id", parseChannel)
	external := f.String("external-id", "", "its channel's external `ID`")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		byExternal := cmd.Flags().Changed("external-id")
		if jobID.value == nil || (channel.value != nil) == byExternal {
			return usagef("dead-letters show takes --job ID and either --channel ID or --external-id ID")
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) (err error) {
			key := outbox.Key{JobID: *jobID.value, ChannelID: channel.or(0)}
			if byExternal {
				if key.ChannelID, err = resolveChannel(ctx, s, db, *external); err != nil {
					return err
				}
			}
			m, err := outbox.ShowMessage(ctx, db.Pool, key)
			if errors.Is(err, outbox.ErrNoMessage) {
				return withAdvice(err, "`belfry dead-letters list` shows what gave up")
			}
			if err != nil {
				return err
			}
			m.Record = emptyList(m.Record)
			if *asJSON {
				return a.printJSON(m)
			}
			return a.showMessage(m)
		})
	}
	return cmd
}

// showMessage prints a message, a field to a line, and its record.
func (a *app) showMessage(m outbox.MessageRecord) error {
	field := func(name, format string, args ...any) {
		a.printf("%-16s %s\n", name, printer.OneLine(fmt.Sprintf(format, args...), 500))
	}
	field("message", "%s to channel %d", messageSubject(m.JobID), m.ChannelID)
	field("status", "%s", messageStatus(m))
	field("category", "%s", m.Category)
	field("title", "%s", m.Title)
	route := append([]string(nil), m.Route...)
	if m.Step < len(route) && m.Status != outbox.Sent {
		route[m.Step] = "[" + route[m.Step] + "]"
	}
	field("route", "%s", printer.OrNone(strings.Join(route, ", ")))
	field("attempts", "%d by this medium", m.Attempts)
	if m.Crashes > 0 {
		field("crashes", "%s died sending it", printer.Counted(int64(m.Crashes), "relay"))
	}
	switch {
	case m.DeadAt != nil:
		field("dead since", "%s", printer.Clock(*m.DeadAt))
		field("redrive", "%s", redriveAdvice(m))
	case m.SentAt != nil:
		field("sent", "%s", printer.Clock(*m.SentAt))
	case !m.Status.Final():
		field("due", "%s", printer.Clock(m.NextAttemptAt))
	}
	if m.Receipt != "" {
		field("receipt", "%s", m.Receipt)
	}
	if m.Error != "" {
		field("last error", "%s", m.Error)
	}
	if len(m.Record) == 0 {
		a.printf("nothing was recorded of it: no attempt went wrong\n")
		return nil
	}
	a.printf("\n")
	t := printer.NewTable("AT", "MEDIUM", "SENDER", ">ATTEMPT", "OUTCOME", "REASON", "CODE", "ERROR")
	for _, r := range m.Record {
		attempt := "-"
		if r.Attempt > 0 {
			attempt = printer.Int(int64(r.Attempt))
		}
		t.Add(printer.Clock(r.At), r.Medium, r.Sender, attempt, string(r.Outcome), string(r.Reason), printer.OneLine(r.Code, 40), printer.OneLine(r.Error, 200))
	}
	return t.Write(a.stdout)
}

func messageSubject(jobID int64) string {
	if jobID < 0 {
		return fmt.Sprintf("activity %d", jobID)
	}
	return fmt.Sprintf("job %d", jobID)
}

// messageStatus is a message's status, and why.
func messageStatus(m outbox.MessageRecord) string {
	text := string(m.Status)
	if of, why := m.Becoming(); why != "" {
		text += ", " + string(why) + ": " + outbox.WhyText(of, why)
	}
	if m.Held && m.DeadAt == nil {
		text += "; held, its job is ABORTED"
	}
	return text
}

// redriveAdvice says what a redrive does with a dead message.
func redriveAdvice(m outbox.MessageRecord) string {
	note := redriveNote(m.Held, m.Kept)
	if m.Kept != "" {
		return note
	}
	return fmt.Sprintf("%s: `belfry dead-letters redrive --job %d --channel %d`", note, m.JobID, m.ChannelID)
}

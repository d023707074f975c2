package delivery

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// messageJob is the id of the job of a message, or the negative id of its activity.
type messageJob int64

// UnmarshalText reads an id.
func (m *messageJob) UnmarshalText(text []byte) error {
	id, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || id == 0 {
		return &operation.NotAllowedError{Allowed: "whole numbers from 1 for jobs, see `belfry jobs list`, or from -1 down for activities"}
	}
	*m = messageJob(id)
	return nil
}

// MarshalText writes the id.
func (m messageJob) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(m), 10), nil }

// messageKey identifies a message as JOB:CHANNEL.
type messageKey struct{ outbox.Key }

// UnmarshalText reads both ids.
func (k *messageKey) UnmarshalText(text []byte) error {
	first, second, ok := strings.Cut(string(text), ":")
	jobID, err1 := strconv.ParseInt(first, 10, 64)
	channelID, err2 := strconv.ParseInt(second, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return &operation.NotAllowedError{Allowed: "JOB:CHANNEL, such as 17:4711"}
	}
	k.Key = outbox.Key{JobID: jobID, ChannelID: channelID}
	return nil
}

// errorID is a DeadError.ID.
type errorID string

// UnmarshalText reads an id.
func (e *errorID) UnmarshalText(text []byte) error {
	if id, err := hex.DecodeString(string(text)); err != nil || len(id) != errorIDBytes {
		return &operation.NotAllowedError{Allowed: "ids of `belfry dead-letters errors`, in its column REDRIVE or as --json"}
	}
	*e = errorID(strings.ToLower(string(text)))
	return nil
}

// MarshalText writes the id.
func (e errorID) MarshalText() ([]byte, error) { return []byte(e), nil }

// MarshalText writes both ids.
func (k messageKey) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%d", k.JobID, k.ChannelID), nil
}

// deadReason is the reason of a dead letter.
type deadReason outbox.Reason

// UnmarshalText reads a known reason.
func (r *deadReason) UnmarshalText(text []byte) error {
	names := r.Choices()
	if !slices.Contains(names, string(text)) {
		return &operation.NotAllowedError{Allowed: strings.Join(names, ", ") + keys.Hint(string(text), names)}
	}
	*r = deadReason(text)
	return nil
}

// Choices are the reasons.
func (deadReason) Choices() (names []string) {
	for _, known := range outbox.Whys(outbox.ReasonDead) {
		names = append(names, string(known))
	}
	return names
}

// deadFilter selects the dead letters that match all of its fields.
type deadFilter struct {
	Job        messageJob      `flag:"job" label:"ID" values:"jobs list" help:"only messages of this job, or with a negative id of this activity"`
	Medium     *string         `flag:"medium" label:"MEDIUM" values:"media" help:"only letters with this last MEDIUM"`
	DeadReason deadReason      `flag:"dead-reason" label:"REASON" help:"only letters with this reason"`
	Since      *operation.Past `flag:"since" label:"TIME" help:"only letters that died then or later"`
	Until      *operation.Past `flag:"until" label:"TIME" help:"only letters that died before"`
	Channel    *int64          `flag:"channel" label:"ID" help:"only letters to the channel with this id"`
	ExternalID *string         `flag:"external-id" label:"ID" help:"only letters to the channel with this external ID"`
	Category   *string         `flag:"category" label:"CATEGORY" values:"categories list" help:"only letters of this category"`
	Sender     *string         `flag:"sender" label:"SENDER" values:"senders list" help:"only letters whose last attempt used this sender"`
	Error      *errorID        `flag:"error" label:"ID" help:"only letters with this error of dead-letters errors"`
}

// given reports whether any field is set.
func (f deadFilter) given() bool { return f != deadFilter{} }

// find returns the filter for the outbox.
func (f deadFilter) find(ctx context.Context, env *operation.Env) (d DeadFilter, err error) {
	switch {
	case f.Channel != nil && f.ExternalID != nil:
		return d, operation.Invalid("", "--channel and --external-id exclude each other; give one")
	case f.Medium != nil && *f.Medium == "":
		return d, operation.Invalid("medium", "is empty; allowed values: the name of a medium, such as push")
	case f.Category != nil && *f.Category == "":
		return d, operation.Invalid("category", "is empty; allowed values: the name of a category, such as operator_notice")
	case f.Sender != nil && *f.Sender == "":
		return d, operation.Invalid("sender", "is empty; allowed values: the name of a sender, see `belfry senders list`")
	}
	d = DeadFilter{JobID: int64(f.Job), Reason: outbox.Reason(f.DeadReason), Since: f.Since.Before(env), Until: f.Until.Before(env),
		ChannelID: f.Channel}
	d.Medium, d.Category, d.Sender = givenText(f.Medium), givenText(f.Category), givenText(f.Sender)
	if f.Error != nil {
		d.Error = string(*f.Error)
	}
	if f.ExternalID != nil {
		id, err := env.Channels.Resolve(ctx, env.Reads(), *f.ExternalID)
		if err != nil {
			return d, err
		}
		d.ChannelID = &id
	}
	return d, nil
}

// givenText returns a text, or "" if it is nil.
func givenText(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// deadProblem returns an error of the input for a filter by an unknown name.
func deadProblem(err error) error {
	var bad *DeadFilterError
	if !errors.As(err, &bad) {
		return operation.NoSuchJob(err)
	}
	if bad.Field == "reason" {
		return operation.Invalid("dead_reason", "%s", bad.Problem)
	}
	return operation.Invalid(bad.Field, "%s", bad.Problem)
}

// deadHelp describes the flags of a filter.
func deadHelp() string {
	var b strings.Builder
	b.WriteString(`A dead letter is a message that is not retried: a provider rejected it permanently, or each
medium of its route failed the maximum number of times. --job takes the id of a job, or the
negative id of an activity. --since and --until select by the time of death: RFC 3339,
"2026-11-20 08:50" in local time, or an age such as 2h or 7d. Letters match all filters.
Reasons:

`)
	for _, r := range outbox.Whys(outbox.ReasonDead) {
		fmt.Fprintf(&b, "  %-16s %s\n", r, outbox.WhyText(outbox.ReasonDead, r))
	}
	return strings.TrimRight(b.String(), "\n")
}

type deadPageInput struct {
	deadFilter
	Limit  int         `flag:"limit" label:"N" help:"maximum number of letters, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	Before *messageKey `flag:"before" label:"JOB:CHANNEL" help:"only letters after this one, for the next page"`
}

type messageRef struct {
	Job        messageJob `flag:"job" label:"ID" values:"jobs list" help:"the message's job, or with a negative id its activity"`
	Channel    *int64     `flag:"channel" label:"ID" help:"its channel's id"`
	ExternalID *string    `flag:"external-id" label:"ID" help:"its channel's external ID"`
}

func deadOperations() []operation.Operation {
	return append([]operation.Operation{
		operation.Define(operation.Operation{
			Name: "dead-letters list", Short: "List dead letters, the newest jobs first", Role: operation.Operator, Deadline: -1,
			Long: `List dead letters, the newest jobs first and activities last. A page examines
3,000 letters, so that it may be short with a filter that few letters match.

` + deadHelp(),
			Example: `  belfry dead-letters list
  belfry dead-letters list --job 17 --medium sms --since 2h
  belfry dead-letters list --dead-reason permanent --limit 1000 --json`,
		}, listDead, deadText),
		operation.Define(operation.Operation{
			Name: "dead-letters show", Short: "Show one message and its record", Role: operation.Operator,
			Usage: "--job ID {--channel ID | --external-id ID}",
			Long: `Show one message, dead or not, and its record: each attempt that did not simply succeed,
and each skipped medium.`,
			Example: `  belfry dead-letters show --job 17 --channel 4711
  belfry dead-letters show --job -12 --external-id user-4711 --json`,
		}, showMessage, messageText),
		deadErrorsOperation(),
		operation.Timeline{
			Noun: "dead-letters", Subject: job.SubjectDeadLetter, Label: "JOB", Short: "Show redrives and discards, newest first",
			Example: "  belfry dead-letters events\n  belfry dead-letters events 17 --json", None: "no dead letter was ever redriven or discarded",
		}.Events(),
	}, deadActs()...)
}

func listDead(ctx context.Context, env *operation.Env, in deadPageInput) (operation.List[DeadLetter], error) {
	filter, err := in.find(ctx, env)
	if err != nil {
		return operation.List[DeadLetter]{}, err
	}
	var before *outbox.Key
	if in.Before != nil {
		before = &in.Before.Key
	}
	list, lookedTo, err := DeadLetters(ctx, env.DB, filter, before, in.Limit+1)
	page := operation.PageOf(list, in.Limit, func(last DeadLetter) string { return fmt.Sprintf("%d:%d", last.JobID, last.ChannelID) })
	if lookedTo != nil {
		page.Next = fmt.Sprintf("%d:%d", lookedTo.JobID, lookedTo.ChannelID)
	}
	return page, deadProblem(err)
}

func deadText(p *text.Doc, in deadPageInput, out operation.List[DeadLetter]) {
	switch {
	case len(out.Items) == 0 && out.Next != "":
		operation.NoMatches(p, out.Next)
		return
	case len(out.Items) == 0 && in.Before != nil:
		p.Line("no more dead letters")
		return
	case len(out.Items) == 0 && in.given():
		p.Line("no dead letter matches; %s", text.Command("dead-letters list").To("show all"))
		return
	case len(out.Items) == 0:
		p.Line("no dead letters: every message is sent, cancelled, or still to be sent")
		return
	}
	t := text.NewTable(">JOB", ">CHANNEL", "MEDIUM", "REASON", ">ATTEMPTS", "DEAD SINCE", "REDRIVE", "ERROR")
	for _, d := range out.Items {
		t.Add(jobOf(d.JobID), text.Ref("channel", d.ChannelID), d.Medium, string(d.Reason), d.Attempts, d.DeadAt,
			redriveNote(d.Held, d.Kept), text.OneLine(d.Error, 120))
	}
	p.Table(t)
	operation.More(p, "before", out.Next)
}

// jobOf returns a reference to a job, or the negative id of an activity.
func jobOf(id int64) text.Cell {
	if id < 0 {
		return text.Text(text.Int(id))
	}
	return text.Ref("job", id)
}

// redriveNote returns the effect of a redrive on a dead letter.
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

func showMessage(ctx context.Context, env *operation.Env, in messageRef) (m MessageRecord, err error) {
	if in.Job == 0 || (in.Channel != nil) == (in.ExternalID != nil) {
		return m, operation.Invalid("", "dead-letters show takes --job ID and either --channel ID or --external-id ID")
	}
	key := outbox.Key{JobID: int64(in.Job)}
	if in.Channel != nil {
		key.ChannelID = *in.Channel
	} else if key.ChannelID, err = env.Channels.Resolve(ctx, env.Reads(), *in.ExternalID); err != nil {
		return m, err
	}
	m, err = ShowMessage(ctx, env.DB, key)
	switch {
	case errors.Is(err, ErrNoMessage):
		return MessageRecord{}, operation.Advise(err, "`belfry dead-letters list` lists dead letters")
	case err != nil:
		return MessageRecord{}, err
	}
	return m, nil
}

// messageText writes the fields of a message, and its record.
func messageText(p *text.Doc, _ messageRef, m MessageRecord) {
	of := "job"
	if m.JobID < 0 {
		of = "activity"
	}
	p.Field("message", "%s %s to channel %s", of, jobOf(m.JobID), text.Ref("channel", m.ChannelID))
	p.Field("status", "%s", messageStatus(m))
	p.Field("category", "%s", m.Category)
	p.Field("title", "%s", text.OneLine(m.Title, 500))
	if m.Body != "" {
		p.Field("body", "%s", text.OneLine(m.Body, 500))
	}
	if m.Revision != nil {
		p.Field("sent text", "%s", sentText(*m.Revision, m.Corrections))
	}
	route := slices.Clone(m.Route)
	if m.Step < len(route) && m.Status != outbox.Sent {
		route[m.Step] = "[" + route[m.Step] + "]"
	}
	p.Field("route", "%s", text.OrNone(strings.Join(route, ", ")))
	p.Field("attempts", "%d by this medium", m.Attempts)
	if m.Crashes > 0 {
		p.Field("crashes", "%s died sending it", text.Counted(int64(m.Crashes), "relay"))
	}
	switch {
	case m.DeadAt != nil:
		p.Field("dead since", "%s", *m.DeadAt)
		p.Field("redrive", "%s", redriveAdvice(m))
	case m.SentAt != nil:
		p.Field("sent", "%s", *m.SentAt)
	case !m.Status.Final():
		p.Field("due", "%s", m.NextAttemptAt)
	}
	if m.Receipt != "" {
		p.Field("receipt", "%s", text.OneLine(m.Receipt, 500))
	}
	if m.Error != "" {
		p.Field("last error", "%s", text.OneLine(m.Error, 500))
	}
	if len(m.Record) == 0 {
		p.Line("its record is empty: no attempt failed")
		return
	}
	p.Heading("record")
	t := text.NewTable("AT", "MEDIUM", "SENDER", ">ATTEMPT", "OUTCOME", "REASON", "CODE", "ERROR")
	for _, r := range m.Record {
		attempt := text.CellOf("-")
		if r.Attempt > 0 {
			attempt = text.Count(r.Attempt)
		}
		t.Add(r.At, r.Medium, r.Sender, attempt, text.Status(r.Outcome), string(r.Reason), text.OneLine(r.Code, 40), text.OneLine(r.Error, 200))
	}
	p.Table(t)
}

// sentText describes the revision of the text that was sent.
func sentText(revision, corrections int) string {
	switch {
	case revision >= corrections:
		return "the corrected one"
	case revision == 0:
		return "from before the correction of the job"
	}
	return fmt.Sprintf("after correction %d of %d of the job", revision, corrections)
}

// messageStatus returns a message's status with its reason.
func messageStatus(m MessageRecord) text.StatusCell {
	more := ""
	if of, why := m.Becoming(); why != "" {
		more = ", " + string(why) + ": " + outbox.WhyText(of, why)
	}
	if m.Held && m.DeadAt == nil {
		more += "; held, its job is ABORTED"
	}
	return text.Status(m.Status, more)
}

// redriveAdvice returns the effect of a redrive on a dead message, and the command.
func redriveAdvice(m MessageRecord) text.Line {
	note := redriveNote(m.Held, m.Kept)
	if m.Kept != "" {
		return text.Sprintf("%s", note)
	}
	return text.Sprintf("%s: %s", note, text.Command("dead-letters redrive").Flag("job", m.JobID).Flag("channel", m.ChannelID))
}

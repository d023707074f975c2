package accounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// JobAudit is the result of a job for each channel, counted from the job's rows.
type JobAudit struct {
	Report

	Sums []AuditSum `json:"sums"` // of Counts and Why, in the order of a report, with their meaning
}

// AuditSum is the number of channels with one reason, or with one why of a reason.
type AuditSum struct {
	Reason   outbox.Reason `json:"reason"`
	Why      outbox.Reason `json:"why"` // empty for the whole reason
	Channels int64         `json:"channels"`
	Meaning  string        `json:"meaning"`
}

// sumsOf returns the sums of a report. It omits reasons without channels, except missing.
func sumsOf(r Report) (list []AuditSum) {
	for _, reason := range outbox.Reasons() {
		n := r.Counts[reason]
		if n == 0 && reason != outbox.ReasonMissing {
			continue
		}
		list = append(list, AuditSum{reason, "", n, reason.Text()})
		for _, why := range outbox.Whys(reason) {
			if n := r.Why[reason][why]; n > 0 {
				list = append(list, AuditSum{reason, why, n, outbox.WhyText(reason, why)})
			}
		}
	}
	return list
}

// Verdict returns an error with each difference between the rows and the job's counters.
func (r JobAudit) Verdict() error {
	if r.Agree || r.Moving {
		return nil
	}
	return errors.New("the rows of job " + text.Int(r.Job.ID) + " differ from its counters:\n  " + strings.Join(r.Disagreements, "\n  "))
}

// line summarizes the audit in one line.
func (r JobAudit) line() text.Line {
	result := "the rows differ from the job's counters"
	switch {
	case r.Moving:
		result = "the job changed during the audit, so the rows were not compared with its counters"
	case r.Agree:
		result = "the rows match the job's counters"
	}
	return text.Sprintf("job %s (%s) %s: %s, %s; %s", text.Ref("job", r.Job.ID), r.Job.Type, text.Status(r.Job.Status),
		text.Counted(r.Channels, "channel"), text.Counted(r.Rows, "row"), result)
}

// auditReason is a reason or a why of package outbox.
type auditReason outbox.Reason

// UnmarshalText parses a reason.
func (r *auditReason) UnmarshalText(text []byte) error {
	known := r.Choices()
	if !slices.Contains(known, string(text)) {
		return &operation.NotAllowedError{Allowed: strings.Join(known, ", ") + keys.Hint(string(text), known)}
	}
	*r = auditReason(text)
	return nil
}

// Choices returns all reasons.
func (auditReason) Choices() (known []string) {
	for _, reason := range slices.Concat(outbox.Reasons(), allWhys()) {
		if !slices.Contains(known, string(reason)) {
			known = append(known, string(reason))
		}
	}
	return known
}

// MarshalText returns the name of the reason.
func (r auditReason) MarshalText() ([]byte, error) { return []byte(r), nil }

func allWhys() (list []outbox.Reason) {
	for _, r := range outbox.Reasons() {
		list = append(list, outbox.Whys(r)...)
	}
	return list
}

// recipientFilter is the input of `jobs recipients`.
type recipientFilter struct {
	operation.JobRef

	Reasons    []auditReason `flag:"reason" label:"REASONS" help:"only channels of these reasons"`
	Channel    *int64        `flag:"channel" label:"ID" help:"only the channel with this id" allowed:"whole numbers"`
	ExternalID *string       `flag:"external-id" label:"ID" help:"only the channel with this external id"`
}

func (in *recipientFilter) Check(operation.Operation, time.Time) error {
	if in.Channel != nil && in.ExternalID != nil {
		return operation.Invalid("external_id", "excludes channel; give one of them")
	}
	if (in.Channel != nil || in.ExternalID != nil) && len(in.Reasons) > 0 {
		return operation.Invalid("reason", "excludes channel and external_id; leave it out for one channel")
	}
	return nil
}

func auditOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "jobs audit", Short: "Count the recipients of a job by result and reason", Role: operation.Viewer, Deadline: -1, Rows: "sums",
			Long: `Compare every channel with the rows of a job and count the channels by reason; then
compare the counts with the job's counters. Nothing is written. The exit code is 1
if they differ. ` + "`belfry jobs recipients ID`" + ` lists the channels.`,
			Example: `  belfry jobs audit 17
  belfry jobs audit 17 -o csv`,
		}, auditJob, func(p *text.Doc, _ operation.JobRef, out JobAudit) {
			t := text.NewTable("REASON", ">CHANNELS", "MEANING")
			for _, sum := range out.Sums {
				name, meaning := string(sum.Reason), sum.Meaning
				switch {
				case sum.Why != "":
					name, meaning = "  "+string(sum.Why), "  "+meaning
				case sum.Reason.Mark():
					name = "(" + name + ")"
				}
				t.Add(name, sum.Channels, meaning)
			}
			p.Table(t)
			p.Line("%s", out.line())
		}),
		operation.DefineStream(operation.Operation{
			Name: "jobs recipients", Short: "List the recipients of a job with result and reason", Role: operation.Viewer,
			Nothing: "no channel has one of these reasons",
			Long: `List the channels in the order of their ids, one per line with id, reason and a sentence.
--channel or --external-id shows one channel at once. Jobs of any size are read page by page.
The reasons are as follows, some with a further reason below; held messages have those of
pending ones:

` + reasonsHelp() + `

` + "`belfry jobs audit ID`" + ` counts them, and compares the counts with the job's counters.`,
			Example: `  belfry jobs recipients 17 --reason missing,skipped
  belfry jobs recipients 17 --external-id user-4711`,
		}, eachRecipient, func(recipientFilter) func(*text.Doc, []Entry) { return tellRecipients },
			func(*text.Doc, recipientFilter, operation.None) {}),
		operation.DefineStream(operation.Operation{
			Name: "jobs report", Short: "Write the result of each message of a job, as CSV or as JSON", Role: operation.Viewer,
			Nothing: "the job has no messages",
			Long: `Write the result of each message of a job, one line per message in the order of the channels'
ids: external_id (empty if the channel was deleted), channel_id, medium, sender (which
accepted it), status, reason, attempts by that medium, and the times due_at (of waiting
messages), sent_at and dead_at, in UTC; revision, the content that was sent (0 is the first,
then each correction; empty if not sent); locale, of the channel now. Jobs of any size are
read page by page, each page as of its own time.

With -o json each line is a document.

An inbox job has no messages: ` + "`belfry jobs recipients`" + ` lists its recipients.`,
			Example: `  belfry jobs report 17 -o csv >report.csv`,
		}, reportJob, nil, func(*text.Doc, operation.JobRef, operation.None) {}),
	}
}

// reasonsHelp lists the reasons with their meaning.
func reasonsHelp() string {
	var text strings.Builder
	for _, r := range outbox.Reasons() {
		fmt.Fprintf(&text, "  %-16s %s\n", r, r.Text())
		for _, why := range outbox.Whys(r) {
			if r != outbox.ReasonHeld {
				fmt.Fprintf(&text, "    %-14s %s\n", why, outbox.WhyText(r, why))
			}
		}
	}
	return strings.TrimRight(text.String(), "\n")
}

func auditJob(ctx context.Context, env *operation.Env, in operation.JobRef) (JobAudit, error) {
	if err := env.MayLocate(ctx, "jobs audit", in.ID); err != nil {
		return JobAudit{}, err
	}
	line := auditLines()
	report, err := Audit(ctx, env.DB, env.Channels, in.ID, AuditOptions{Observe: func(p AuditProgress) {
		env.Progressf("%s", line(env.Time(), p))
	}})
	if err != nil {
		return JobAudit{}, operation.NoSuchJob(err)
	}
	return JobAudit{report, sumsOf(report)}, nil
}

// auditLines returns a function that renders the progress of an audit. The total is an estimate, which may be
// too low.
func auditLines() func(now time.Time, p AuditProgress) string {
	var pace lifecycle.Meter
	return func(now time.Time, p AuditProgress) string {
		pace.Observe(now, p.Channels)
		how := text.PaceText(operation.Known(pace.Rate()), pace.Left(max(p.Total-p.Channels, 0)))
		if p.Total < p.Channels {
			return fmt.Sprintf("%s and %s compared%s", text.Counted(p.Channels, "channel"), text.Counted(p.Rows, "row"), how)
		}
		return fmt.Sprintf("%s / %s and %s compared, %d%%%s", text.Grouped(p.Channels), text.Counted(p.Total, "channel"),
			text.Counted(p.Rows, "row"), 100*p.Channels/max(p.Total, 1), how)
	}
}

// streamedRows is the maximum number of rows in an item of a stream.
const streamedRows = 1000

// inBatches collects rows into slices of streamedRows for each. end passes the rest.
func inBatches[T any](each func([]T) error) (add func(T) error, end func() error) {
	var rows []T
	end = func() error {
		if len(rows) == 0 {
			return nil
		}
		full := rows
		rows = nil // each retains its slice
		return each(full)
	}
	return func(row T) error {
		if rows = append(rows, row); len(rows) < streamedRows {
			return nil
		}
		return end()
	}, end
}

func eachRecipient(ctx context.Context, env *operation.Env, in recipientFilter, each func([]Entry) error) (operation.None, error) {
	var one Entry
	err := env.MayLocate(ctx, "jobs recipients", in.ID)
	switch {
	case err != nil:
		return operation.None{}, err
	case in.Channel != nil:
		one, err = AuditChannel(ctx, env.DB, env.Channels, in.ID, *in.Channel)
	case in.ExternalID != nil:
		one, err = AuditExternalID(ctx, env.DB, env.Channels, in.ID, *in.ExternalID)
	default:
		add, end := inBatches(each)
		options := AuditOptions{Each: add}
		for _, r := range in.Reasons {
			options.List = append(options.List, outbox.Reason(r))
		}
		if _, err = Audit(ctx, env.DB, env.Channels, in.ID, options); err == nil {
			err = end()
		}
		return operation.None{}, operation.NoSuchJob(err)
	}
	if err != nil {
		return operation.None{}, operation.NoSuchJob(err)
	}
	return operation.None{}, each([]Entry{one})
}

func tellRecipients(p *text.Doc, list []Entry) {
	for _, e := range list {
		p.Line("%s\t%s\t%s", text.Ref("channel", e.ChannelID), e.Status(), e.Sentence())
	}
}

// Status returns the reason of an entry as a status.
func (e Entry) Status() text.StatusCell {
	if e.Why == "" {
		return text.Status(e.Reason)
	}
	return text.Status(e.Reason, ", "+string(e.Why))
}

// Sentence describes the result for a channel, such as "was sent the message".
func (e Entry) Sentence() string {
	sentence := e.Reason.Text()
	if why := outbox.WhyText(e.Reason, e.Why); why != "" {
		sentence += "; " + why
	}
	switch {
	case e.Revision == nil:
	case *e.Revision == 0:
		sentence += "; it was sent before the correction of the content"
	default:
		sentence += fmt.Sprintf("; it was sent after correction %d of the content", *e.Revision)
	}
	if e.LeftSince {
		sentence += "; it is not in the audience now"
	}
	if e.ChannelDeleted {
		sentence += "; it was deleted"
	}
	if e.Error != "" {
		sentence += ": " + text.OneLine(e.Error, 500)
	}
	return sentence
}

func reportJob(ctx context.Context, env *operation.Env, in operation.JobRef, each func([]ReportLine) error) (operation.None, error) {
	if _, err := env.Jobs.Get(ctx, in.ID); err != nil {
		return operation.None{}, operation.NoSuchJob(err)
	}
	if err := env.MayLocate(ctx, "jobs report", in.ID); err != nil {
		return operation.None{}, err
	}
	add, end := inBatches(each)
	if err := EachMessage(ctx, env.DB, env.Channels, in.ID, add); err != nil {
		return operation.None{}, err
	}
	return operation.None{}, end()
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/internal/sheet"
	"github.com/belfryhq/belfry/outbox"
)

func newAuditCommand(a *app) *cobra.Command {
	var reasons strings.Builder
	for _, r := range outbox.Reasons() {
		fmt.Fprintf(&reasons, "  %-16s %s\n", r, r.Text())
		for _, why := range outbox.Whys(r) {
			if r != outbox.ReasonHeld {
				fmt.Fprintf(&reasons, "    %-14s %s\n", why, outbox.WhyText(r, why))
			}
		}
	}
	cmd := &cobra.Command{
		Use:   "audit ID",
		Short: "Say who got a job, who did not, and why",
		Long: `Compare every channel with the rows of a job, and say who got it, who did not, and
why, from the data; then compare the sums with the job's accounts. Nothing is
written. Exit code 1 when they do not agree.

--list names the channels, one to a line with id, reason and a sentence; --channel or
--external-id answers for one alone, at once. Reasons, and below some why; a held message
waits for what a pending one does:

` + strings.TrimRight(reasons.String(), "\n"),
		Example: `  belfry jobs audit 17
  belfry jobs audit 17 --list missing,skipped
  belfry jobs audit 17 --external-id user-4711`,
		Args: exactArgs("ID"),
	}
	list := cmd.Flags().StringSlice("list", nil, "name the channels of these `REASONS`, or of all")
	channel := flagOf(cmd.Flags(), "channel", "ID", "only the channel with this id", parseChannel)
	external := cmd.Flags().String("external-id", "", "only the channel with this external `ID`")
	out := addListOutput(cmd, sheet.RecordsOf(reflect.TypeFor[auditSum]()))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		wanted, err := parseReasons(*list)
		if err != nil {
			return err
		}
		one := cmd.Flags().Changed("external-id")
		if given := []bool{channel.value != nil, one, len(*list) > 0}; trues(given) > 1 {
			return usagef("--channel, --external-id and --list exclude each other; give one")
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			store, err := channels.New(s.Channels)
			if err != nil {
				return err
			}
			u := audit{app: a, db: db, store: store, job: id, output: out}
			if one || channel.value != nil || len(*list) > 0 {
				out.records = sheet.RecordsOf(reflect.TypeFor[outbox.Entry]())
			}
			switch {
			case channel.value != nil:
				return u.one(outbox.AuditChannel(ctx, db.Pool, store, id, *channel.value))
			case one:
				return u.one(outbox.AuditExternalID(ctx, db.Pool, store, id, *external))
			}
			return notFound(u.all(ctx, wanted, len(*list) > 0))
		})
	}
	return cmd
}

// parseChannel parses the id of a channel, which may be any bigint.
func parseChannel(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("allowed values: whole numbers")
	}
	return id, nil
}

func trues(given []bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}

// parseReasons understands the value of --list; all is nil.
func parseReasons(names []string) ([]outbox.Reason, error) {
	if slices.Equal(names, []string{"all"}) {
		return nil, nil
	}
	known := outbox.Reasons()
	for _, r := range outbox.Reasons() {
		for _, why := range outbox.Whys(r) {
			if !slices.Contains(known, why) {
				known = append(known, why)
			}
		}
	}
	texts := make([]string, 0, len(known)+1)
	for _, r := range known {
		texts = append(texts, string(r))
	}
	texts = append(texts, "all")
	var wanted []outbox.Reason
	for _, name := range names {
		r := outbox.Reason(strings.TrimSpace(name))
		if !slices.Contains(known, r) {
			return nil, usagef("invalid argument %q for \"--list\" flag: allowed values: %s%s", printer.OneLine(name, 60), strings.Join(texts, ", "), config.Hint(name, texts))
		}
		wanted = append(wanted, r)
	}
	return wanted, nil
}

// audit is one `belfry jobs audit`.
type audit struct {
	*app
	*output

	db    *database
	store *channels.Store
	job   int64
}

// auditSum is how many channels have one reason, or one why below it.
type auditSum struct {
	Reason   outbox.Reason `json:"reason"`
	Why      outbox.Reason `json:"why"` // "": all of the reason
	Channels int64         `json:"channels"`
	Meaning  string        `json:"meaning"`
}

// sums are those of a report; of a reason without channels there is none, but for missing.
func sums(r outbox.Report) (list []auditSum) {
	for _, reason := range outbox.Reasons() {
		n := r.Counts[reason]
		if n == 0 && reason != outbox.ReasonMissing {
			continue
		}
		list = append(list, auditSum{reason, "", n, reason.Text()})
		for _, why := range outbox.Whys(reason) {
			if n := r.Why[reason][why]; n > 0 {
				list = append(list, auditSum{reason, why, n, outbox.WhyText(reason, why)})
			}
		}
	}
	return list
}

// one prints the answer for one channel.
func (u audit) one(e outbox.Entry, err error) error {
	if err != nil {
		return notFound(err)
	}
	if !u.forPeople() {
		return u.printList(u.output, e)
	}
	reason := string(e.Reason)
	if e.Why != "" {
		reason += ", " + string(e.Why)
	}
	u.printf("channel %d %s (%s)\n", e.ChannelID, entryText(e), reason)
	return nil
}

// entryText is a sentence about a channel.
func entryText(e outbox.Entry) string {
	text := e.Reason.Text()
	if why := outbox.WhyText(e.Reason, e.Why); why != "" {
		text += "; " + why
	}
	switch {
	case e.Revision == nil:
	case *e.Revision == 0:
		text += "; it was sent before the content was corrected"
	default:
		text += fmt.Sprintf("; it was sent after correction %d of the content", *e.Revision)
	}
	if e.LeftSince {
		text += "; it would not be in the audience now"
	}
	if e.ChannelDeleted {
		text += "; it is gone"
	}
	if e.Error != "" {
		text += ": " + printer.OneLine(e.Error, 500)
	}
	return text
}

// all audits the whole job. With a listing, the channels go to standard output as
// they are found, and the sums to standard error, or after them in the document.
func (u audit) all(ctx context.Context, wanted []outbox.Reason, listing bool) error {
	show := u.newTicker()
	defer show.end()
	options := outbox.AuditOptions{List: wanted, Observe: func(p outbox.AuditProgress) {
		show.tell("%s", comparing(p, show.pace(p.Channels, p.Total)))
	}}
	var stream *entryStream
	if listing {
		stream = &entryStream{audit: u, rows: u.newRows(u.output)}
		options.Each = stream.write
	}
	report, err := outbox.Audit(ctx, u.db.Pool, u.store, u.job, options)
	show.end()
	if err != nil {
		return errors.Join(err, stream.end(nil))
	}
	report.Disagreements = emptyList(report.Disagreements)
	switch {
	case listing:
		err = stream.end(&report)
	case u.json():
		err = u.printJSON(report)
	case u.form == asCSV:
		u.remark("%s", verdict(report))
		err = u.printRows(u.output, sums(report))
	default:
		u.show(report)
	}
	if err == nil && !report.Agree && !report.Moving {
		return &exitError{codeFailure, errors.New("the accounts of job " + printer.Int(u.job) + " do not agree:\n  " + strings.Join(report.Disagreements, "\n  "))}
	}
	return err
}

// comparing is one line about an audit that is under way.
func comparing(p outbox.AuditProgress, pace string) string {
	if p.Total < p.Channels { // an estimate, too low
		return fmt.Sprintf("%s and %s compared, %s", printer.Counted(p.Channels, "channel"), printer.Counted(p.Rows, "row"), pace)
	}
	return fmt.Sprintf("%s / %s and %s compared, %d%%, %s", printer.Grouped(p.Channels), printer.Counted(p.Total, "channel"), printer.Counted(p.Rows, "row"), 100*p.Channels/max(p.Total, 1), pace)
}

// show prints the sums.
func (u audit) show(r outbox.Report) {
	t := printer.NewTable("REASON", ">CHANNELS", "MEANING")
	for _, sum := range sums(r) {
		name, meaning := string(sum.Reason), sum.Meaning
		switch {
		case sum.Why != "":
			name, meaning = "  "+string(sum.Why), "  "+meaning
		case sum.Reason.Mark():
			name = "(" + name + ")"
		}
		t.Add(name, printer.Grouped(sum.Channels), meaning)
	}
	u.pageOf(u.output).Table(t)
	u.printf("%s\n", verdict(r))
}

// verdict is one line about the sums.
func verdict(r outbox.Report) string {
	line := fmt.Sprintf("job %d (%s) %s: %s, %s; ", r.Job.ID, r.Job.Type, r.Job.Status, printer.Counted(r.Channels, "channel"), printer.Counted(r.Rows, "row"))
	switch {
	case r.Moving:
		return line + "it went on meanwhile, so the sums were not compared"
	case r.Agree:
		return line + "the sums agree with its accounts"
	}
	return line + "the sums do not agree with its accounts"
}

// entryStream prints entries as they come, as lines, as rows, or as part of one JSON document.
type entryStream struct {
	audit

	rows  *csvRows
	begun bool
}

func (s *entryStream) write(e outbox.Entry) error {
	switch s.form {
	case asText, asTable:
		s.printf("%d\t%s\t%s\n", e.ChannelID, e.Reason, entryText(e))
		return nil
	case asCSV:
		return s.rows.add(e)
	case asJSON:
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	lead := ",\n    "
	if !s.begun {
		s.begun, lead = true, "{\n  \"entries\": [\n    "
	}
	s.printf("%s%s", lead, text)
	return nil
}

// end ends what was printed; without a report the audit was cut short. It may be called
// on nil.
func (s *entryStream) end(report *outbox.Report) error {
	switch {
	case s == nil:
		return nil
	case !s.json():
		if report != nil {
			s.remark("%s", verdict(*report))
		}
		if s.form == asCSV {
			return s.rows.end()
		}
		return nil
	case report == nil && !s.begun:
		return nil
	}
	if !s.begun {
		s.printf("{\n  \"entries\": [")
	}
	text, err := json.MarshalIndent(report, "  ", "  ")
	if err != nil {
		return err
	}
	s.printf("\n  ],\n  \"report\": %s\n}\n", text)
	return nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/compose"
)

// previewHelp is part of the help of commands that preview.
const previewHelp = `The preview counts the channels, tells how many there are by platform, locale and first
usable medium, how many have no address, opted out, are in their quiet hours when it is
to be sent or over the category's cap now, names the attributes that the words refer to
without a default and that channels lack, and shows three messages as they would be
composed. It looks at up to 100,000 ids: of larger audiences at slices that lie evenly
over the ids, which it says. It ends after two minutes at most.`

func newJobsPreviewCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview ID",
		Short: "Show who would get a job now, by which medium, and what they would read",
		Long: `Show who would get a job, if it were walked now from the start, by which medium, and
what they would read. Nothing is written.

` + previewHelp,
		Example: "  belfry jobs preview 17",
		Args:    exactArgs("ID"),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, previewLimit, func(ctx context.Context, s settings, db *database) error {
			j, err := job.NewStore(db.Pool).Get(ctx, id)
			if err != nil {
				return notFound(err)
			}
			at := j.ScheduleAt
			if j.DeliverAt != nil {
				at = *j.DeliverAt
			}
			return a.preview(ctx, s, db, compose.Content{
				Category: j.Category, Title: j.Title, Body: j.Body, Data: j.Data, Variants: j.Variants, Route: j.Route,
				Messages: j.Type != "inbox", At: at,
			}, j.Audience, *asJSON)
		})
	}
	return cmd
}

// previewReport is the JSON of a preview with content.
type previewReport struct {
	Audience channels.Audience `json:"audience"`
	compose.Preview
}

// preview composes content for an audience, and prints what comes of it.
func (a *app) preview(ctx context.Context, s settings, db *database, what compose.Content, audience channels.Audience, asJSON bool) error {
	who, err := channels.New(s.Channels)
	if err != nil {
		return err
	}
	composing := s.Delivery.Compose
	composing.NoAddress = s.Senders.targeted()
	composer, err := compose.New(db.Pool, who, composing, nil)
	if err != nil {
		return err
	}
	p, err := composer.Preview(ctx, what, audience)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(previewReport{audience, p})
	}
	a.printPreview(what, p)
	if !what.Messages {
		return nil
	}
	has, err := who.HasAddresses(ctx, db.Pool)
	if err == nil && !has {
		a.remark("%s has no column addresses; `belfry channels check` says more", who.Relation())
	}
	return err
}

func (a *app) printPreview(what compose.Content, p compose.Preview) {
	field := func(name, format string, args ...any) {
		a.printf("%-16s %s\n", name, printer.OneLine(fmt.Sprintf(format, args...), 300))
	}
	looked := ""
	if !p.Exact {
		looked = ", the rest is of a sample of " + printer.Grouped(p.LookedAt)
	}
	field("channels", "%s%s", printer.Grouped(p.Channels), looked)
	field("by platform", "%s", tallied(p.Platforms))
	field("by locale", "%s", tallied(p.Locales))
	if what.Messages {
		field("first medium", "%s", tallied(p.Media))
		field("without address", "%s", printer.Grouped(p.NoAddress))
		field("invalid address", "%s", printer.Grouped(p.InvalidAddress))
		field("opted out", "%s", printer.Grouped(p.OptedOut))
		field("in quiet hours", "%s", printer.Grouped(p.QuietHours))
		field("over the cap", "%s", printer.Grouped(p.Capped))
		if p.BadContent > 0 {
			field("bad content", "%s", printer.Grouped(p.BadContent))
		}
		for _, name := range slices.Sorted(maps.Keys(p.MissingAttributes)) {
			field("missing", "attributes.%s of %s, and no default in the words", name, printer.Counted(p.MissingAttributes[name], "channel"))
		}
	}
	for _, one := range p.Samples {
		by := []string{one.Platform}
		for _, more := range []string{one.Locale, one.Medium} {
			if more != "" {
				by = append(by, more)
			}
		}
		field("sample", "%s (%s): %s", one.ExternalID, strings.Join(by, ", "), one.Title)
		if one.Body != "" {
			field("", "%s", one.Body)
		}
	}
}

// tallied lists counts, the largest first, at most ten of them.
func tallied(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) })
	var parts []string
	var rest int64
	for i, name := range names {
		if i >= 10 {
			rest += counts[name]
			continue
		}
		parts = append(parts, printer.OrNone(name)+" "+printer.Grouped(counts[name]))
	}
	if rest > 0 {
		parts = append(parts, "others "+printer.Grouped(rest))
	}
	return printer.OrNone(strings.Join(parts, ", "))
}

// confirmAudience refuses an audience of another size than the one that was seen.
func confirmAudience(ctx context.Context, s settings, db *database, audience channels.Audience, want int64) error {
	who, err := channels.New(s.Channels)
	if err != nil {
		return err
	}
	n, err := who.Count(ctx, db.Pool, audience)
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("the audience has %s now, and --confirm-count says %s; nothing was enqueued", printer.Counted(n, "channel"), printer.Grouped(want))
	}
	return nil
}

package enqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

// previewHelp is part of the help of operations that preview.
const previewHelp = `The preview counts the channels by platform, locale and first usable medium, and the
channels that have no address, have opted out, are in their quiet hours at the time of
delivery or have reached the category's cap. It lists attributes that the content refers to
without a default and that channels lack, and shows three composed messages. For a request
with types it lists the expected overlaps in its lane. It examines up to 100,000 ids, and an
even sample of larger audiences, which it reports. It ends after two minutes at most.`

// Preview is the expected effect of content for an audience.
type Preview struct {
	Audience channels.Audience `json:"audience"`
	compose.Preview

	// AtMost is the highest value of Channels that may stand for a lower one, for viewers and authors:
	// parts of at most AtMost channels are left out or 0, and so are samples. 0 means exact counts.
	AtMost int64 `json:"at_most,omitempty" doc:"channels that is not above it may be any number from 0 to it, parts of so few channels are left out or 0, there are no samples, and counts inside a radius are rounded down to a multiple of ten: so viewers and authors cannot locate a person; absent: counts are exact"`
	// HasMessages reports that there are messages in addition to notifications.
	HasMessages bool `json:"has_messages"`
	// Addressless is the relation of channels, if it has no addresses and they are needed.
	Addressless string `json:"addressless,omitempty"`
	// Lane are the conflicts in its lane. It is nil for an existing job, and for a request without a type.
	Lane *upcoming.LaneConflicts `json:"lane,omitempty"`
}

func previewOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs preview", Short: "Show the expected recipients, media and messages of a job", Role: operation.Viewer,
		Deadline: content.PreviewDeadline,
		Long: `Show the expected recipients, media and messages of a job, if it started now. Nothing is
written.

` + previewHelp,
		Example: "  belfry jobs preview 17",
	}, func(ctx context.Context, env *operation.Env, in operation.JobRef) (*Preview, error) {
		j, err := env.Jobs.Get(ctx, in.ID)
		if err != nil {
			return nil, operation.NoSuchJob(err)
		}
		at := j.ScheduleAt
		if j.DeliverAt != nil {
			at = *j.DeliverAt
		}
		return preview(ctx, env, compose.Content{
			JobID: j.ID, Category: j.Category, Title: j.Title, Body: j.Body, Data: j.Data, Variants: j.Variants, Route: j.Route,
			Messages: j.Type != outbox.TypeInbox, At: at,
		}, j.Audience)
	}, func(p *text.Doc, _ operation.JobRef, out *Preview) { out.Text(p) })
}

// preview composes content for an audience.
func preview(ctx context.Context, env *operation.Env, what compose.Content, audience channels.Audience) (*Preview, error) {
	composer, err := compose.New(env.DB, env.Channels, compose.Config(env.Compose), nil)
	if err != nil {
		return nil, err
	}
	p, err := composer.Preview(ctx, what, audience)
	switch {
	case errors.Is(err, channels.ErrNoCategory) && what.JobID != 0: // it was renamed in the table
		return nil, operation.Conflict("job %d has category %s, which does not exist any more", what.JobID, text.OneLine(what.Category, 60))
	case errors.Is(err, channels.ErrNoCategory):
		return nil, operation.UnknownCategory(ctx, env.Reads(), what.Category)
	case err != nil:
		return nil, err
	}
	out := &Preview{Audience: audience, Preview: p, HasMessages: what.Messages}
	out.coarsen(env.Role)
	if !what.Messages {
		return out, nil
	}
	has, err := env.Channels.HasAddresses(ctx, env.Reads())
	if err == nil && !has {
		out.Addressless = env.Channels.Relation()
	}
	return out, err
}

// Text describes the preview.
func (out *Preview) Text(p *text.Doc) {
	sample := text.Line{}
	if !out.Exact {
		sample = text.Sprintf(", the rest is from a sample of %s", text.Count(out.LookedAt))
	}
	p.Field("channels", "%s%s", operation.AtMostText(out.Channels, out.AtMost), sample)
	p.Field("by platform", "%s", tallied(out.Platforms))
	p.Field("by locale", "%s", tallied(out.Locales))
	if out.NoValue > 0 {
		p.Field("without a value", "%s", text.Count(out.NoValue))
	}
	if out.HasMessages {
		p.Field("first medium", "%s", tallied(out.Media))
		p.Field("without address", "%s", operation.AtMostText(out.NoAddress, out.AtMost))
		p.Field("invalid address", "%s", operation.AtMostText(out.InvalidAddress, out.AtMost))
		p.Field("opted out", "%s", operation.AtMostText(out.OptedOut, out.AtMost))
		p.Field("in quiet hours", "%s", operation.AtMostText(out.QuietHours, out.AtMost))
		p.Field("over the cap", "%s", operation.AtMostText(out.Capped, out.AtMost))
		if out.BadContent > 0 {
			p.Field("bad content", "%s", text.Count(out.BadContent))
		}
		for _, name := range slices.Sorted(maps.Keys(out.MissingAttributes)) {
			p.Field("missing", "attributes.%s of %s, and no default in the content", name, text.Counted(out.MissingAttributes[name], "channel"))
		}
	}
	if out.Lane != nil {
		p.Field("lane", "%s", out.Lane.Text())
	}
	for _, one := range out.Samples {
		by := []string{one.Platform}
		for _, more := range []string{one.Locale, one.Medium} {
			if more != "" {
				by = append(by, more)
			}
		}
		p.Field("sample", "%s (%s): %s", text.Ref("person", one.ExternalID), strings.Join(by, ", "), one.Title)
		if one.Body != "" {
			p.Field("", "%s", one.Body)
		}
	}
	if out.Addressless != "" {
		p.Note("%s has no column addresses; %s", out.Addressless, text.Command("channels check").To("show details"))
	}
}

// tallied lists the ten largest counts.
func tallied(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]),
			cmp.Compare(x, y))
	})
	var parts []string
	var rest int64
	for i, name := range names {
		if i >= 10 {
			rest += counts[name]
			continue
		}
		parts = append(parts, text.OrNone(name)+" "+text.Grouped(counts[name]))
	}
	if rest > 0 {
		parts = append(parts, "others "+text.Grouped(rest))
	}
	return text.OrNone(strings.Join(parts, ", "))
}

// coarsen removes from a preview, for a role that reads no contents, what would locate one person: the samples, and what
// Role.Coarse removes from counts. A count that is 0 without a channel and not 0 with it would find out whether the circle
// contains the channel.
func (out *Preview) coarsen(r operation.Role) {
	if out.Channels, out.AtMost = r.Coarse(out.Channels, out.Audience); out.AtMost == 0 {
		return
	}
	out.LookedAt, _ = r.Coarse(out.LookedAt, out.Audience) // all channels, unless they are a sample
	out.Samples = nil
	for _, n := range []*int64{
		&out.NoAddress, &out.InvalidAddress, &out.OptedOut, &out.BadContent, &out.NoValue, &out.QuietHours, &out.Capped,
	} {
		if *n, _ = r.Coarse(*n, out.Audience); *n <= operation.MostHidden {
			*n = 0
		}
	}
	for _, tally := range []map[string]int64{out.Platforms, out.Locales, out.Media, out.MissingAttributes} {
		for part, n := range tally {
			if tally[part], _ = r.Coarse(n, out.Audience); n <= operation.MostHidden {
				delete(tally, part)
			}
		}
	}
}

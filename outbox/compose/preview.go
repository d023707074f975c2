package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox"
)

// Content is the content of a job, enqueued or not, for a preview.
type Content struct {
	JobID                 int64 // whose values are used; 0: the job is not enqueued, and a value is its name in brackets
	Category, Title, Body string
	Data, Variants        json.RawMessage
	Route                 []string  // nil: the route of the category
	Messages              bool      // false for notifications, which have no medium
	At                    time.Time // time of sending; a past time means now
}

// Sample is a composed message for one channel.
type Sample struct {
	ChannelID  int64           `json:"channel_id,omitempty"` // 0 if the requester may not see it
	ExternalID string          `json:"external_id" mask:"text"`
	Platform   string          `json:"platform"`
	Locale     string          `json:"locale"`
	Medium     string          `json:"medium"` // "": a notification
	Title      string          `json:"title" mask:"text"`
	Body       string          `json:"body" mask:"text"`
	Data       json.RawMessage `json:"data" mask:"text"`
}

// Preview summarizes the messages for an audience. Each read channel counts in one of Media, NoAddress,
// InvalidAddress, OptedOut, BadContent and NoValue; QuietHours and Capped are subsets of Media.
type Preview struct {
	Channels  int64            `json:"channels"`  // current size of the audience
	LookedAt  int64            `json:"looked_at"` // channels read; the fields below count these
	Exact     bool             `json:"exact"`     // all channels were read; otherwise a sample
	Platforms map[string]int64 `json:"platforms"`
	Locales   map[string]int64 `json:"locales"`
	Media     map[string]int64 `json:"media"` // by the first usable medium of the route

	NoAddress      int64 `json:"no_address"`
	InvalidAddress int64 `json:"invalid_address"`
	OptedOut       int64 `json:"opted_out"`
	BadContent     int64 `json:"bad_content"`
	NoValue        int64 `json:"no_value"` // the job has no value for the channel (belfry.job_values)
	QuietHours     int64 `json:"quiet_hours"`
	Capped         int64 `json:"capped"`

	// MissingAttributes counts, for each attribute to which the words refer without a default, the
	// channels without a value.
	MissingAttributes map[string]int64 `json:"missing_attributes"`
	Samples           []Sample         `json:"samples"`
}

// PreviewLimit is the server's time limit for a statement of a Preview.
const PreviewLimit = 2 * time.Minute

const (
	// previewKeys is the maximum number of keys that a preview reads.
	previewKeys = 100_000
	// maxNames is the maximum number of counted locales and of platforms.
	maxNames = 1000
	samples  = 3
	others   = "(others)"
)

// Preview composes content for an audience's current channels and counts the results. It reads up to
// 100,000 keys, so that its cost does not grow with the audience, except for the count of a larger
// audience (channels.Store.Count). It writes nothing. A malformed audience is channels.ErrAudience, an
// unknown category channels.ErrNoCategory. ctx must have a deadline; the server also ends a statement
// then.
func (c *Composer) Preview(ctx context.Context, what Content, audience channels.Audience) (Preview, error) {
	p := Preview{
		Platforms: map[string]int64{}, Locales: map[string]int64{}, Media: map[string]int64{},
		MissingAttributes: map[string]int64{}, Samples: []Sample{},
	}
	reads := db.NewReader(c.pool, PreviewLimit)
	b, err := previewed(ctx, reads, what)
	if err != nil {
		return p, err
	}
	v := &preview{composer: c, reads: reads, batch: b, what: what, out: &p}
	p.Exact, err = c.who.Sample(ctx, reads, audience, previewKeys, func(ids []int64) error { return v.page(ctx, ids) })
	if err != nil {
		return p, fmt.Errorf("preview: %w", err)
	}
	p.Channels = p.LookedAt
	if !p.Exact {
		if p.Channels, err = c.who.Count(ctx, reads, audience); err != nil {
			return p, err
		}
	}
	p.Samples = append(p.Samples, v.spare[:min(len(v.spare), samples-len(p.Samples))]...)
	return p, nil
}

// previewed reads the settings of the category.
func previewed(ctx context.Context, reads db.Reader, what Content) (*batch, error) {
	b := &batch{sample: what.JobID == 0}
	words := &texts{title: what.Title, body: what.Body, data: what.Data, variants: what.Variants}
	if len(words.variants) == 0 {
		words.variants = json.RawMessage("{}")
	}
	t := &content{category: what.Category, route: what.Route, valuesOf: what.JobID}
	t.hold(words)
	var from, until, window *int64
	var most *int
	var installation *uuid.UUID
	var route []string
	err := reads.QueryRow(ctx, queries.previewCategory, pgx.StrictNamedArgs{"category": what.Category}).
		Scan(&b.now, &installation, &route, &from, &until, &most, &window)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("preview: %w: %q", channels.ErrNoCategory, what.Category)
	case err != nil:
		return nil, fmt.Errorf("preview: read the category: %w", err)
	case installation == nil:
		return nil, errNoInstallation
	}
	b.installation = *installation
	if t.route == nil {
		t.route = route
	}
	t.limits(from, until, most, window)
	if what.At.After(b.now) {
		b.now = what.At
	}
	b.contents = map[int64]*content{0: t}
	return b, nil
}

// preview is a running Preview.
type preview struct {
	composer *Composer
	reads    db.Reader
	batch    *batch
	what     Content
	out      *Preview
	seen     map[string]bool   // locales that have a sample
	spare    []Sample          // further samples, of locales that have one
	list     []outbox.Composed // page's, for the next slice
	trial    []outbox.Composed // the same
}

// page composes for the channels of one slice.
func (v *preview) page(ctx context.Context, ids []int64) error {
	b := v.batch
	b.people = make(map[int64]*person, len(ids))
	if err := b.readPeople(ctx, v.reads, v.composer.who, ids); err != nil {
		return err
	}
	claimed := make([]outbox.Claimed, len(ids))
	for i, id := range ids {
		claimed[i].ChannelID = id
	}
	if err := b.readValues(ctx, v.reads, claimed); err != nil {
		return err
	}
	list := v.list[:0]
	for _, m := range claimed {
		p := b.people[m.ChannelID]
		if p == nil {
			continue // the channel was deleted in the meantime
		}
		v.out.LookedAt++
		name(v.out.Platforms, p.Platform)
		name(v.out.Locales, p.Locale)
		if _, valued := b.values[m.Key]; b.contents[0].values && !b.sample && !valued {
			v.out.NoValue++
			continue
		}
		if v.what.Messages {
			list = append(list, b.route(m, v.composer.config.NoAddress))
		} else {
			list = append(list, outbox.Composed{Claimed: m})
		}
	}
	v.list = list
	if err := v.composer.endUnsent(ctx, v.reads, list); err != nil {
		return err
	}
	for i := range list {
		v.count(&list[i])
	}
	v.trial = append(v.trial[:0], list...)
	for i := range v.trial {
		v.composer.quiet(b, &v.trial[i])
		if v.trial[i].Action == outbox.ActionDefer {
			v.out.QuietHours++
		}
	}
	v.trial = append(v.trial[:0], list...)
	turn := v.composer.turns.begin(nil)
	defer v.composer.turns.end(turn)
	if err := v.composer.capped(ctx, v.reads, b, v.trial, turn); err != nil {
		return err
	}
	for i := range v.trial {
		if v.trial[i].Reason == outbox.ReasonCapped {
			v.out.Capped++
		}
		v.words(&list[i])
	}
	return nil
}

// count counts the result of a channel's route.
func (v *preview) count(out *outbox.Composed) {
	switch {
	case out.Action == outbox.ActionSend:
		v.out.Media[out.Delivery.Medium]++
	case out.Reason == outbox.ReasonNoAddress:
		v.out.NoAddress++
	case out.Reason == outbox.ReasonInvalidAddress:
		v.out.InvalidAddress++
	case out.Reason == outbox.ReasonOptedOut:
		v.out.OptedOut++
	}
}

// name counts a name, for up to maxNames names.
func name(counts map[string]int64, key string) {
	if _, known := counts[key]; !known && len(counts) >= maxNames {
		key = others
	}
	counts[key]++
}

// words renders a channel's message and stores samples.
func (v *preview) words(out *outbox.Composed) {
	p := v.batch.people[out.Claimed.ChannelID]
	if v.what.Messages && out.Action != outbox.ActionSend {
		return
	}
	words := v.batch.contents[0].texts.in(p.Locale)
	if words.err != nil {
		v.out.BadContent++
		if v.what.Messages {
			v.out.Media[out.Delivery.Medium]--
		}
		return
	}
	values := v.batch.valuesFor(p, words)
	values.Value = members(v.batch.values[out.Claimed.Key])
	sample := Sample{ChannelID: p.ID, ExternalID: p.ExternalID, Platform: p.Platform, Locale: p.Locale, Medium: out.Delivery.Medium,
		Title: words.title.title(values), Body: words.body.body(values), Data: v.what.Data}
	missing := append(words.title.missing(values), words.body.missing(values)...)
	slices.Sort(missing)
	for _, attribute := range slices.Compact(missing) {
		name(v.out.MissingAttributes, attribute)
	}
	if v.seen == nil {
		v.seen = make(map[string]bool)
	}
	switch {
	case len(v.out.Samples) < samples && !v.seen[p.Locale]:
		v.seen[p.Locale] = true
		v.out.Samples = append(v.out.Samples, sample)
	case len(v.spare) < samples:
		v.spare = append(v.spare, sample)
	}
}

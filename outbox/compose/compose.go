package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Composer composes messages. It stores only time zones and is safe for concurrent use.
type Composer struct {
	pool   *pgxpool.Pool
	who    *channels.Store
	config Config
	zone   *time.Location // of Config
	zones  zones
	turns  turns
	random func() float64
	// The constants of these names, except in tests.
	maxTexts, maxJobs, maxActivities int

	uncounted uncounted
	made      atomic.Int64 // transactions
}

// New returns a Composer over pool, which the caller closes. random returns numbers in [0, 1) and must
// be safe for concurrent use; nil means math/rand/v2.
func New(pool *pgxpool.Pool, who *channels.Store, config Config, random func() float64) (*Composer, error) {
	if err := config.Validate("compose"); err != nil {
		return nil, err
	}
	zone, _ := loadZone(config.TimeZone)
	if random == nil {
		random = rand.Float64
	}
	return &Composer{
		pool: pool, who: who, config: config, zone: zone, zones: zones{known: make(map[string]*time.Location)},
		turns: turns{turn: make(map[int64]int64), active: make(map[int64]bool)}, random: random,
		maxTexts: maxTexts, maxJobs: maxJobs, maxActivities: maxActivities,
	}, nil
}

// Expect announces claimed messages, so that earlier batches need not wait for them under a cap. It is
// optional, and applies to the first Compose of a claim.
func (c *Composer) Expect(claimed []outbox.Claimed) { c.turns.expect(claimed) }

// Transactions returns the number of transactions that Compose has made; each statement is one.
func (c *Composer) Transactions() int64 { return c.made.Load() }

// counting counts statements that are transactions of their own.
type counting struct {
	channels.Querier

	made *atomic.Int64
}

// Query implements channels.Querier.
func (q counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	q.made.Add(1)
	return q.Querier.Query(ctx, sql, args...)
}

// QueryRow implements channels.Querier.
func (q counting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	q.made.Add(1)
	return q.Querier.QueryRow(ctx, sql, args...)
}

// Compose returns a decision for each message, in order: send, defer or refuse. It takes up to 1,000
// messages whose claims are committed. It only reads, so it may be called again for the same messages.
// ctx must have a deadline.
func (c *Composer) Compose(ctx context.Context, claimed []outbox.Claimed) ([]outbox.Composed, error) {
	if len(claimed) == 0 {
		return nil, nil
	}
	turn := c.turns.begin(claimed)
	defer c.turns.end(turn)
	b, err := c.read(ctx, claimed)
	if err != nil {
		return nil, fmt.Errorf("compose %d messages: %w", len(claimed), err)
	}
	list := make([]outbox.Composed, len(claimed))
	for i, m := range claimed {
		list[i] = b.route(m, c.config.NoAddress)
	}
	if err := c.endUnsent(ctx, counting{c.pool, &c.made}, list); err != nil {
		return nil, fmt.Errorf("compose %d messages: %w", len(claimed), err)
	}
	for i := range list {
		c.quiet(b, &list[i])
	}
	if err := c.capped(ctx, counting{c.pool, &c.made}, b, list, turn); err != nil {
		return nil, fmt.Errorf("compose %d messages: %w", len(claimed), err)
	}
	if err := c.write(ctx, counting{c.pool, &c.made}, b, list); err != nil {
		return nil, fmt.Errorf("compose %d messages: %w", len(claimed), err)
	}
	return list, nil
}

// batch contains the data of the messages of one Compose.
type batch struct {
	installation [16]byte
	now          time.Time // the database's
	contents     map[int64]*content
	texts        int // bytes of the texts in contents
	people       map[int64]*person
	values       map[outbox.Key]json.RawMessage // of belfry.job_values; no entry: none, or not referred to
	sample       bool                           // for a preview
}

// route chooses a message's medium, or finds that none is left. Media in targeted need no address.
func (b *batch) route(m outbox.Claimed, targeted []string) outbox.Composed {
	out := outbox.Composed{Claimed: m, Action: outbox.ActionRefuse, Step: m.Step, Attempts: m.Attempts}
	content, known := b.contents[m.JobID]
	if !known {
		refuse(&out, outbox.Dead, outbox.ReasonBadContent)
		return out
	}
	out.Category, out.Route, out.Claimed.Revision = content.category, content.route, content.revision
	p, known := b.people[m.ChannelID]
	switch {
	case !known:
		refuse(&out, outbox.Dead, outbox.ReasonNoAddress)
		return out
	case !p.Active:
		refuse(&out, outbox.Cancelled, outbox.ReasonOptedOut)
		return out
	}
	chosen := choose(p, content.category, content.route, targeted, m.Step)
	out.Record = chosen.passed
	if chosen.step >= len(content.route) {
		out.Reason = undecided
		return out
	}
	if chosen.step != m.Step {
		out.Step, out.Attempts = chosen.step, 0
	}
	out.Action, out.Status = outbox.ActionSend, ""
	medium := content.route[chosen.step]
	out.Delivery = sender.Delivery{
		Key: Key(b.installation, m.JobID, content.created, m.ChannelID, medium), JobID: m.JobID, ChannelID: m.ChannelID, ExternalID: p.ExternalID,
		Category: content.category, Medium: medium, Platform: p.Platform, Address: chosen.address,
		Attempt: out.Attempts + 1,
	}
	return out
}

// undecided marks, within Compose, a message without a remaining medium whose outcome depends on its
// last call.
const undecided outbox.Reason = ""

// quiet defers a message whose channel has quiet hours now.
func (c *Composer) quiet(b *batch, out *outbox.Composed) {
	if out.Action != outbox.ActionSend {
		return
	}
	hours := b.contents[out.Claimed.JobID].quiet
	if hours == nil {
		return
	}
	zone := c.zones.get(b.people[out.Claimed.ChannelID].TimeZone, c.zone)
	if end, quiet := quietUntil(b.now, *hours, zone); quiet {
		putOff(out, outbox.ReasonQuietHours, end.Sub(b.now)+time.Duration(c.random()*float64(c.config.Jitter)))
	}
}

// write fills in title, body and data of all messages. It reads texts that are not in memory in portions of
// up to maxTexts bytes. A text that was corrected since the first read has the earlier revision, so that the
// recheck rejects the message.
func (c *Composer) write(ctx context.Context, q channels.Querier, b *batch, list []outbox.Composed) error {
	var left []*outbox.Composed
	for i := range list {
		if !b.write(&list[i]) {
			left = append(left, &list[i])
		}
	}
	for len(left) > 0 {
		if err := b.readContents(ctx, q, b.nextTexts(left, c.maxTexts), c.maxTexts); err != nil {
			return err
		}
		left = slices.DeleteFunc(left, b.write)
	}
	return nil
}

// write fills in title, body and data of one message. It returns false if the texts are not in memory.
func (b *batch) write(out *outbox.Composed) bool {
	if out.Action != outbox.ActionSend {
		return true
	}
	content, known := b.contents[out.Claimed.JobID]
	if known && content.texts == nil {
		return false
	}
	p := b.people[out.Claimed.ChannelID]
	var words *wording
	if known {
		words = content.texts.in(p.Locale)
	}
	if words == nil || words.err != nil { // nil: the content was deleted since it was routed
		refuse(out, outbox.Dead, outbox.ReasonBadContent)
		return true
	}
	value, valued := b.values[out.Claimed.Key]
	if !valued && !b.sample && (words.title.value || words.body.value) {
		refuse(out, outbox.Dead, outbox.ReasonBadContent)
		return true
	}
	values := b.valuesFor(p, words)
	values.Value = members(value)
	out.Delivery.Locale, out.Delivery.Data, out.Shared = words.locale, content.texts.data, &words.shared
	out.Delivery.Title, out.Delivery.Body = words.title.title(values), words.body.body(values)
	if !words.title.fixed() {
		out.Own += len(out.Delivery.Title)
	}
	if !words.body.fixed() {
		out.Own += len(out.Delivery.Body)
	}
	return true
}

// valuesFor returns the values of a person to which the words refer.
func (b *batch) valuesFor(p *person, words *wording) templateValues {
	values := templateValues{Locale: p.Locale, Platform: p.Platform, ExternalID: p.ExternalID, TimeZone: p.TimeZone, Sample: b.sample}
	if words.title.attributes || words.body.attributes {
		values.Attributes = members(p.Attributes)
	}
	return values
}

// refuse ends a claimed message. If a provider may have accepted it, the reason is always unknown.
func refuse(out *outbox.Composed, status outbox.Status, reason outbox.Reason) {
	if out.Claimed.Ambiguous {
		status, reason = outbox.Dead, outbox.ReasonUnknown
	}
	*out = outbox.Composed{
		Claimed: out.Claimed, Action: outbox.ActionRefuse, Status: status, Reason: reason, Category: out.Category, Route: out.Route,
		Step: out.Claimed.Step, Attempts: out.Claimed.Attempts, Record: telling(out.Record, reason),
	}
}

// putOff makes a claimed message due later.
func putOff(out *outbox.Composed, reason outbox.Reason, wait time.Duration) {
	*out = outbox.Composed{
		Claimed: out.Claimed, Action: outbox.ActionDefer, Reason: reason, Wait: wait, Category: out.Category, Route: out.Route,
		Step: out.Claimed.Step, Attempts: out.Claimed.Attempts,
	}
}

// members decodes a JSON object. It returns no members for any other value.
func members(raw json.RawMessage) map[string]json.RawMessage {
	var object map[string]json.RawMessage
	if len(raw) == 0 || string(raw) == "{}" || json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object
}

var errNoInstallation = errors.New(
	"belfry.installation has no row: the database has no name to make idempotency keys of; `belfry adopt` makes one")

package compose

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox"
)

// read executes one statement per kind of data, for all data that does not depend on another result.
func (c *Composer) read(ctx context.Context, claimed []outbox.Claimed) (*batch, error) {
	b := &batch{contents: make(map[int64]*content), people: make(map[int64]*person, len(claimed))}
	jobs, ids := []int64(nil), make([]int64, 0, len(claimed))
	for _, m := range claimed {
		if _, seen := b.contents[m.JobID]; !seen {
			b.contents[m.JobID] = nil
			jobs = append(jobs, m.JobID)
		}
		if _, seen := b.people[m.ChannelID]; !seen {
			b.people[m.ChannelID] = nil
			ids = append(ids, m.ChannelID)
		}
	}
	clear(b.contents)
	clear(b.people)
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	q := counting{conn, &c.made}
	if err := b.readContents(ctx, q, jobs, c.maxTexts); err != nil {
		return nil, err
	}
	if err := b.readValues(ctx, q, claimed); err != nil {
		return nil, err
	}
	return b, b.readPeople(ctx, q, c.who, ids)
}

// readValues reads belfry.job_values for the messages whose content refers to them.
func (b *batch) readValues(ctx context.Context, q channels.Querier, claimed []outbox.Claimed) error {
	var keys []outbox.Key
	var jobs, ids []int64
	for _, m := range claimed {
		if t := b.contents[m.JobID]; t != nil && t.valuesOf != 0 && t.values {
			keys, jobs, ids = append(keys, m.Key), append(jobs, t.valuesOf), append(ids, m.ChannelID)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	b.values = make(map[outbox.Key]json.RawMessage, len(keys))
	var n int
	var value json.RawMessage
	return db.Each(ctx, q, queries.values, pgx.StrictNamedArgs{"job_ids": jobs, "channel_ids": ids}, []any{&n, &value}, func() error {
		b.values[keys[n-1]] = bytes.Clone(value)
		return nil
	})
}

// maxTexts is the maximum number of bytes of texts that one Compose has read and not rendered. A claim by key
// may consist of messages of as many jobs, each with up to 190 KB.
const maxTexts = 16 << 20

// readContents reads contents with up to limit bytes of texts, or with one that is longer. The others stay
// without.
func (b *batch) readContents(ctx context.Context, q channels.Querier, ids []int64, limit int) error {
	_, err := db.Collect(ctx, q, queries.contents, pgx.StrictNamedArgs{"ids": ids}, func(row pgx.CollectableRow) (struct{}, error) {
		var id int64
		var from, until, window *int64
		var most *int
		t, words := &content{}, &texts{}
		var installation *uuid.UUID
		if err := row.Scan(&b.now, &installation, &id, &t.created, &t.category, &words.title, &words.body, &words.data, &words.variants,
			&t.route, &t.revision, &t.valuesOf, &from, &until, &most, &window); err != nil {
			return struct{}{}, err
		}
		if installation == nil {
			return struct{}{}, errNoInstallation
		}
		b.installation = *installation
		t.limits(from, until, most, window)
		t.hold(words)
		if b.texts > 0 && b.texts+t.size > limit {
			t.texts = nil
		} else {
			b.texts += t.size
		}
		b.contents[id] = t
		return struct{}{}, nil
	})
	return err
}

// nextTexts drops the texts in memory and returns the contents of messages whose texts can be read next, by
// their size at the previous read. It removes these contents: they may have been deleted.
func (b *batch) nextTexts(messages []*outbox.Composed, limit int) (ids []int64) {
	for _, t := range b.contents {
		t.texts = nil
	}
	b.texts = 0
	for size, i := 0, 0; i < len(messages); i++ {
		id := messages[i].Claimed.JobID
		t, known := b.contents[id]
		if !known {
			continue // it is in ids
		}
		if size += t.size; len(ids) > 0 && size > limit {
			break
		}
		ids = append(ids, id)
		delete(b.contents, id)
	}
	return ids
}

// limits are the quiet hours and the cap of the category, in seconds; nil: none.
func (c *content) limits(from, until *int64, most *int, window *int64) {
	if from != nil && until != nil {
		c.quiet = &channels.QuietHours{Start: seconds(*from), End: seconds(*until)}
	}
	if most != nil && window != nil {
		c.cap = &channels.Cap{Max: *most, Window: seconds(*window)}
	}
}

func (b *batch) readPeople(ctx context.Context, q channels.Querier, who *channels.Store, ids []int64) error {
	read := who.RecipientsBare
	for _, t := range b.contents {
		if t.attributes {
			read = who.Recipients
			break
		}
	}
	people, err := read(ctx, q, ids)
	if err != nil {
		return err
	}
	optOuts, err := channels.OptOuts(ctx, q, ids)
	if err != nil {
		return err
	}
	invalid, err := channels.InvalidAddresses(ctx, q, ids)
	if err != nil {
		return err
	}
	persons := make([]person, len(people))
	for i := range people {
		persons[i].Recipient = people[i]
		b.people[people[i].ID] = &persons[i]
	}
	for _, o := range optOuts {
		if p := b.people[o.ChannelID]; p != nil {
			p.optOuts = append(p.optOuts, o)
		}
	}
	for _, i := range invalid {
		if p := b.people[i.ChannelID]; p != nil {
			p.invalid = append(p.invalid, i)
		}
	}
	return nil
}

// endUnsent ends messages without a remaining medium, by the last call of each message that had one.
func (c *Composer) endUnsent(ctx context.Context, q channels.Querier, list []outbox.Composed) error {
	var jobs, ids []int64
	var asked []int
	for i := range list {
		if out := &list[i]; out.Action == outbox.ActionRefuse && out.Reason == undecided && called(out.Claimed) && !out.Claimed.Ambiguous {
			jobs, ids, asked = append(jobs, out.Claimed.JobID), append(ids, out.Claimed.ChannelID), append(asked, i)
		}
	}
	failures := make(map[int]outbox.Outcome)
	if len(asked) > 0 {
		var n int
		var outcome string
		args := pgx.StrictNamedArgs{"job_ids": jobs, "channel_ids": ids}
		err := db.Each(ctx, q, queries.lastFailures, args, []any{&n, &outcome}, func() error {
			failures[asked[n-1]] = outbox.Outcome(outcome)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range list {
		if out := &list[i]; out.Action == outbox.ActionRefuse && out.Reason == undecided {
			status, reason := verdict(out.Claimed, out.Record, failures[i])
			refuse(out, status, reason)
		}
	}
	return nil
}

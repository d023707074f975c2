package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// auditSlack is the longest time between a change and its commit that the audit allows for at the start of
// the job.
const auditSlack = time.Minute

// facts are the facts of the job's row that apply to every key.
type facts struct {
	aborted bool
	cursor  int64 // keys at or below it were walked; the lowest number if none were
	passed  int64 // like cursor, and the bound once the job is PROCESSED
	bound   int64 // keys above it arrived after the start; the highest number before the start
	since   time.Time
	values  bool // channels without a value in belfry.job_values are declined
}

// KeyError reports a cursor, a bound or a skip that is not the key of a channel. A role that runs jobs can
// write any text there, and a job type of the application has other keys.
type KeyError struct{ Name, Text string }

// Error contains the beginning of the text.
func (e *KeyError) Error() string {
	return fmt.Sprintf("%s %s is not the key of a channel, which is a bigint", e.Name, strconv.Quote(text.OneLine(e.Text, 60)))
}

// Kind returns db.KindConflict.
func (*KeyError) Kind() db.Kind { return db.KindConflict }

// keyOf parses the key of a channel. name describes it in errors.
func keyOf(name, key string) (int64, error) {
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return 0, &KeyError{name, key}
	}
	return id, nil
}

func factsOf(j job.Job) (f facts, err error) {
	f = facts{aborted: j.Status == job.Aborted, values: outbox.RefersToValue(j), cursor: math.MinInt64, passed: math.MinInt64,
		bound: math.MaxInt64}
	if j.StartedAt != nil {
		f.since = j.StartedAt.Add(-auditSlack)
	}
	if j.Cursor != "" {
		if f.cursor, err = keyOf("cursor", j.Cursor); err != nil {
			return f, err
		}
		f.passed = f.cursor
	}
	if j.Bound == nil {
		return f, nil
	}
	f.bound = math.MinInt64 // no channel existed
	if *j.Bound != "" {
		if f.bound, err = keyOf("bound", *j.Bound); err != nil {
			return f, err
		}
	}
	if j.Status == job.Processed || j.WalkedAt != nil {
		f.passed = f.bound
	}
	return f, nil
}

// keyRange is a range of keys, up to and including high, with one audience.
type keyRange struct {
	high     int64
	audience channels.Audience
}

// rangesOf divides the keys at the cursors of the job's corrections.
func rangesOf(j job.Job, revisions []job.Revision) ([]keyRange, error) {
	var list []keyRange
	for _, r := range revisions {
		var k keyRange
		var err error
		if k.high, err = keyOf("cursor", r.Cursor); err != nil {
			return nil, fmt.Errorf("revision %d: %w", r.Revision, err)
		}
		if err := json.Unmarshal(r.Audience, &k.audience); err != nil {
			return nil, fmt.Errorf("revision %d: %w", r.Revision, err)
		}
		list = append(list, k)
	}
	return append(list, keyRange{high: math.MaxInt64, audience: j.Audience}), nil
}

// row is one of the job's rows, or a channel with notifications of other jobs only.
type row struct {
	id    int64
	state string // empty if the job has no row
	err   string
	// The rest is of a message.
	reason   outbox.Reason
	awaited  bool // its receipt is awaited
	revision *int // of its content; nil if no provider accepted it
}

// slice contains the channels and rows up to high that one step of the walk has read.
type slice struct {
	high   int64
	end    bool // high is the end of the range
	who    []channels.Inspected
	rows   []row
	skips  map[int64]string
	valued map[int64]bool // channels of who with a value, if the job refers to values
}

// walk goes through all ranges.
func (a *audit) walk(ctx context.Context) error {
	if err := a.size(ctx); err != nil {
		return err
	}
	after := int64(math.MinInt64)
	for _, k := range a.ranges {
		inspection, err := a.inspect(ctx, k.audience)
		if err != nil {
			return err
		}
		for end := after >= k.high; !end; {
			s, err := a.read(ctx, inspection, after, k.high)
			if err != nil {
				return err
			}
			if err := a.merge(s, k.audience.Kind); err != nil {
				return err
			}
			after, end = s.high, s.end
			if a.options.Observe != nil {
				a.options.Observe(AuditProgress{Channels: a.report.Channels, Rows: a.report.Rows, Total: a.total})
			}
		}
	}
	return nil
}

// size estimates the number of channels for Observe.
func (a *audit) size(ctx context.Context) error {
	if a.options.Observe == nil {
		return nil
	}
	return operation.ReadTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		a.total, err = a.store.Estimate(ctx, tx)
		return err
	})
}

func (a *audit) inspect(ctx context.Context, audience channels.Audience) (i *channels.Inspection, err error) {
	err = operation.ReadTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) error {
		i, err = a.store.Inspect(ctx, tx, audience)
		return err
	})
	return i, err
}

// read reads a page of channels and the rows of the same keys in one snapshot. If there are more rows than
// channels, for example after many deletions, the rows end the slice.
func (a *audit) read(ctx context.Context, inspection *channels.Inspection, after, high int64) (s slice, err error) {
	limit := a.options.PageKeys
	err = operation.SnapshotTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		s = slice{high: high, end: true}
		if s.who, err = inspection.Page(ctx, tx, after, high, limit); err != nil {
			return err
		}
		if len(s.who) == limit {
			s.high, s.end = s.who[limit-1].ID, s.who[limit-1].ID == high
		}
		if s.rows, err = a.rows(ctx, tx, after, s.high, limit); err != nil {
			return err
		}
		if len(s.rows) == limit && s.rows[limit-1].id < s.high {
			s.high, s.end = s.rows[limit-1].id, false
			n := len(s.who)
			for n > 0 && s.who[n-1].ID > s.high {
				n--
			}
			s.who = s.who[:n]
		}
		if s.skips, err = a.skips(ctx, tx, s.who); err != nil {
			return err
		}
		s.valued, err = a.valued(ctx, tx, s.who)
		return err
	})
	return s, err
}

// valued returns the channels among who with a value, if the job refers to values.
func (a *audit) valued(ctx context.Context, tx pgx.Tx, who []channels.Inspected) (map[int64]bool, error) {
	if !a.facts.values {
		return nil, nil
	}
	ids := make([]int64, len(who))
	for i, c := range who {
		ids[i] = c.ID
	}
	valued := make(map[int64]bool)
	var id int64
	err := db.Each(ctx, tx, queries.valuesOf, pgx.StrictNamedArgs{"job_id": a.report.Job.ID, "ids": ids}, []any{&id}, func() error {
		valued[id] = true
		return nil
	})
	return valued, err
}

func (a *audit) rows(ctx context.Context, tx pgx.Tx, after, bound int64, limit int) ([]row, error) {
	read := func(ctx context.Context, tx pgx.Tx, args pgx.StrictNamedArgs) (pgx.Rows, error) {
		return tx.Query(ctx, queries.messageSlice, args)
	}
	if a.report.Job.Type == outbox.TypeInbox {
		read = delivery.NotificationSlice
	}
	rows, err := read(ctx, tx, pgx.StrictNamedArgs{"job_id": a.report.Job.ID, "after": after, "bound": bound, "keys": limit})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (found row, err error) {
		var state *string
		err = r.Scan(&found.id, &state, &found.err, &found.reason, &found.awaited, &found.revision)
		if state != nil {
			found.state = *state
		}
		return found, err
	})
}

// skips returns the errors of the skipped channels among who.
func (a *audit) skips(ctx context.Context, tx pgx.Tx, who []channels.Inspected) (map[int64]string, error) {
	if a.recorded == 0 || len(who) == 0 {
		return nil, nil
	}
	keys := make([]string, len(who))
	for i, c := range who {
		keys[i] = strconv.FormatInt(c.ID, 10)
	}
	skips := make(map[int64]string)
	var id int64
	var text string
	err := db.Each(ctx, tx, queries.skipsOf, pgx.StrictNamedArgs{"job_id": a.report.Job.ID, "keys": keys}, []any{&id, &text}, func() error {
		skips[id] = text
		return nil
	})
	return skips, err
}

// merge adds an entry for every channel and row of a slice, in key order.
func (a *audit) merge(s slice, kind channels.Kind) error {
	i := 0
	alone := func(below int64) error { // rows without a channel
		for ; i < len(s.rows) && s.rows[i].id < below; i++ {
			if s.rows[i].state == "" {
				continue
			}
			if err := a.add(a.withRow(s.rows[i], true, false)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range s.who {
		if err := alone(c.ID); err != nil {
			return err
		}
		a.report.Channels++
		var e Entry
		if i < len(s.rows) && s.rows[i].id == c.ID && s.rows[i].state != "" {
			e = a.withRow(s.rows[i], false, !c.Matches || !c.Active)
		} else if text, skipped := s.skips[c.ID]; skipped {
			e = Entry{ChannelID: c.ID, Reason: outbox.ReasonSkipped, Error: text}
			a.skipped++
		} else {
			e = Entry{ChannelID: c.ID, Reason: a.facts.withoutRow(c, kind, s.valued[c.ID])}
		}
		if i < len(s.rows) && s.rows[i].id == c.ID {
			i++
		}
		if err := a.add(e); err != nil {
			return err
		}
	}
	if err := alone(s.high); err != nil {
		return err
	}
	if i < len(s.rows) && s.rows[i].state != "" { // a row at high itself
		return a.add(a.withRow(s.rows[i], true, false))
	}
	return nil
}

// withRow returns the entry of a channel with a row.
func (a *audit) withRow(r row, deleted, left bool) Entry {
	a.report.Rows++
	if r.id > a.facts.cursor {
		a.above++
	}
	e := Entry{ChannelID: r.id, Reason: outbox.Reason(r.state), ChannelDeleted: deleted, LeftSince: left, Error: r.err}
	if a.report.Job.Type == outbox.TypePush {
		e.Reason, e.Why = delivery.ReasonOf(outbox.Status(r.state), r.reason, r.awaited, a.facts.aborted)
		if a.report.Job.Revision > 0 {
			e.Revision = r.revision
		}
	}
	return e
}

// withoutRow returns the reason of a channel with neither a row nor a skip.
func (f facts) withoutRow(c channels.Inspected, kind channels.Kind, valued bool) outbox.Reason {
	after := func(at *time.Time) bool { return at == nil || at.After(f.since) }
	switch {
	case !c.Matches:
		return outbox.ReasonOutOfAudience
	case !c.Active:
		return outbox.ReasonInactive
	case c.ID > f.bound:
		return outbox.ReasonArrivedLater
	case c.ID > f.passed:
		return outbox.ReasonNotReached
	case f.values && !valued:
		return outbox.ReasonNoValue
	case c.CreatedAt != nil && after(c.CreatedAt):
		return outbox.ReasonArrivedLater
	case kind == channels.KindSegment || after(c.UpdatedAt):
		return outbox.ReasonJoinedSince
	}
	return outbox.ReasonMissing
}

// one returns the entry of one channel.
func (a *audit) one(ctx context.Context, id int64) (Entry, error) {
	if id == math.MinInt64 {
		return Entry{}, channels.ErrNoChannel
	}
	for _, k := range a.ranges {
		if id > k.high {
			continue
		}
		inspection, err := a.inspect(ctx, k.audience)
		if err != nil {
			return Entry{}, err
		}
		s, err := a.read(ctx, inspection, id-1, id)
		if err != nil {
			return Entry{}, err
		}
		var found *Entry
		a.options.Each = func(e Entry) error {
			found = &e
			return nil
		}
		if err := a.merge(s, k.audience.Kind); err != nil {
			return Entry{}, err
		}
		if found == nil {
			return a.deletedSkip(ctx, id)
		}
		return *found, nil
	}
	return Entry{}, channels.ErrNoChannel
}

// deletedSkip returns the entry of a deleted channel without a row.
func (a *audit) deletedSkip(ctx context.Context, id int64) (e Entry, err error) {
	err = operation.ReadTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) error {
		skips, err := a.skips(ctx, tx, []channels.Inspected{{ID: id}})
		if text, skipped := skips[id]; skipped {
			e = Entry{ChannelID: id, Reason: outbox.ReasonSkipped, ChannelDeleted: true, Error: text}
			return nil
		}
		if err == nil {
			err = channels.ErrNoChannel
		}
		return err
	})
	return e, err
}

// skipsWithoutChannel adds the skipped channels that were deleted: those that the walk did not find.
func (a *audit) skipsWithoutChannel(ctx context.Context) error {
	if a.skipped == a.recorded {
		return nil
	}
	inspection, err := a.inspect(ctx, channels.Everyone())
	if err != nil {
		return err
	}
	for after := ""; ; {
		page, err := a.jobs.Skips(ctx, a.report.Job.ID, after, a.options.PageKeys)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, skip := range page {
			after = skip.Key
			if err := a.deleted(ctx, inspection, skip); err != nil {
				return err
			}
		}
	}
}

func (a *audit) deleted(ctx context.Context, inspection *channels.Inspection, skip job.Skip) error {
	id, err := keyOf("skip", skip.Key)
	if err != nil {
		return err
	}
	var there []channels.Inspected
	err = operation.ReadTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		there, err = inspection.Page(ctx, tx, id-1, id, 1)
		return err
	})
	if err != nil || len(there) > 0 {
		return err
	}
	return a.add(Entry{ChannelID: id, Reason: outbox.ReasonSkipped, ChannelDeleted: true, Error: skip.Error})
}

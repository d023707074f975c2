package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// letters makes the messages 1 to n of a new job on the route push, sms dead: odd
// channels permanent at sms, even ones crashed at push, an hour ago.
func (b *bundle) letters(t require.TestingT, n int, status job.Status) int64 {
	id := b.Rest(t, outbox.TypePush, n, status)
	b.Past(t, `UPDATE belfry.jobs SET route = '{push,sms}', delivered_at = now() WHERE id = $1`, id) // the route stands once a job has started
	b.kill(t, id)
	return id
}

// kill makes all messages of a job dead, as letters does.
func (b *bundle) kill(t require.TestingT, id int64) {
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'DEAD', next_attempt_at = now() - interval '1 hour', step = channel_id % 2, attempts = 3, crashes = 2, lease_id = 7, last_error = 'no',
		reason = CASE channel_id % 2 WHEN 1 THEN 'permanent' ELSE 'crashed' END WHERE job_id = $1`, id)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code, error, at)
		SELECT job_id, channel_id, step, 3, CASE step WHEN 0 THEN 'push' ELSE 'sms' END, 'main', CASE step WHEN 0 THEN 'crashed' ELSE 'permanent' END, '410', 'gone', now() - interval '1 hour'
		  FROM belfry.messages WHERE job_id = $1 ORDER BY channel_id`, id)
}

// activity makes a dead activity message, on the route push, and returns its id.
func (b *bundle) activity(t require.TestingT, channel int64) int64 {
	id := one[int64](t, b, `INSERT INTO belfry.activities (channel_id, title, route) VALUES ($1, 'liked', '{push}') RETURNING id`, channel)
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, $2, now() WHERE NOT EXISTS (SELECT FROM belfry.messages WHERE job_id = $1)`, id, channel)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'DEAD', reason = 'no_address', next_attempt_at = now() - interval '2 hours' WHERE job_id = $1`, id)
	return id
}

// keys are messages of one job.
func keys(jobID int64, channels ...int64) []outbox.Key {
	list := make([]outbox.Key, len(channels))
	for i, id := range channels {
		list[i] = outbox.Key{JobID: jobID, ChannelID: id}
	}
	return list
}

func keysOf(list []delivery.DeadLetter) (keys []outbox.Key) {
	for _, d := range list {
		keys = append(keys, outbox.Key{JobID: d.JobID, ChannelID: d.ChannelID})
	}
	return keys
}

// looks notes of how many keys the statements of a pool look at.
type looks []int

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	for _, arg := range data.Args {
		if args, is := arg.(pgx.StrictNamedArgs); is {
			if n, has := args["keys"].(int); has {
				*l = append(*l, n)
			}
		}
	}
	return ctx
}

func (*looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A page looks at no more letters than it shows where all match, and at more from step to step
// where few do.
func TestDeadLetters_LookAtWhatTheyShow(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	b.letters(t, 30, job.Processed)
	c, err := pgxpool.ParseConfig(b.DB.DSN)
	require.NoError(t, err)
	var asked looks
	c.ConnConfig.Tracer = &asked
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, want := range []struct {
		filter delivery.DeadFilter
		shown  int
		looks  looks
	}{
		{delivery.DeadFilter{}, 10, looks{10}},
		{delivery.DeadFilter{Medium: "sms"}, 10, looks{10, 40}},
		{delivery.DeadFilter{Reason: outbox.ReasonExhausted}, 0, looks{10, 40, 160}},
	} {
		asked = nil
		list, lookedTo, err := delivery.DeadLetters(t.Context(), pool, want.filter, nil, 10)
		require.NoError(t, err)
		require.Nil(t, lookedTo, "there are no more")
		require.Len(t, list, want.shown)
		require.Equal(t, want.looks, asked)
	}
}

// A page that few letters pass is over when so many were looked at, and the next goes on.
func TestDeadLetters_LookAtABoundedNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	id := b.letters(t, 30, job.Processed)
	for _, want := range []struct {
		keys     int
		lookedTo *outbox.Key
	}{{20, &outbox.Key{JobID: id, ChannelID: 10}}, {29, &outbox.Key{JobID: id, ChannelID: 1}}, {30, nil}, {40, nil}} {
		list, lookedTo, err := delivery.DeadLettersOf(t.Context(), b.DB.Pool, delivery.DeadFilter{Reason: outbox.ReasonExhausted}, nil, 10, want.keys)
		require.NoError(t, err)
		require.Empty(t, list)
		require.Equal(t, want.lookedTo, lookedTo, want.keys)
	}
}

func ago(d time.Duration) *time.Time {
	at := time.Now().Add(-d)
	return &at
}

func TestDeadLetters_AreListedByFilterInPages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	old := b.letters(t, 6, job.Processed)
	late := b.letters(t, 4, job.Aborted)
	like := b.activity(t, 3)
	b.States(t, b.Rest(t, outbox.TypePush, 6, job.Processed), "PENDING", "QUEUED", "PROCESSING", "SENT", "CANCELLED")
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '3 hours' WHERE job_id = $1 AND channel_id = 5`, old)

	all, _, err := delivery.DeadLetters(t.Context(), b.DB.Pool, delivery.DeadFilter{}, nil, 0)
	require.NoError(t, err)
	require.Equal(t, slices.Concat(keys(late, 4, 3, 2, 1), keys(old, 6, 5, 4, 3, 2, 1), keys(like, 3)), keysOf(all))
	all[3].DeadAt = time.Time{}
	require.Equal(t, delivery.DeadLetter{
		JobID: late, ChannelID: 1, Category: "operator_notice", Step: 1, Medium: "sms", Reason: outbox.ReasonPermanent, Attempts: 3, Crashes: 2, Error: "no", Held: true,
	}, all[3])
	require.Equal(t, "push", all[10].Medium)
	require.WithinDuration(t, time.Now().Add(-2*time.Hour), all[10].DeadAt, time.Minute)

	for size := 1; size <= 12; size++ { // pages, and steps that end in the middle of one
		var paged []delivery.DeadLetter
		var before *outbox.Key
		for {
			page, err := delivery.DeadLettersIn(t.Context(), b.DB.Pool, delivery.DeadFilter{}, before, size, 1+size/2)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(t, len(page), size)
			paged = append(paged, page...)
			before = &keysOf(page)[len(page)-1]
		}
		require.Equal(t, keysOf(all), keysOf(paged))
	}

	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, at) VALUES ($1, 3, 1, 4, 'sms', 'other', 'permanent', now())`, old)
	three := int64(3)
	for name, c := range map[string]struct {
		filter delivery.DeadFilter
		want   []outbox.Key
	}{
		"job":                {delivery.DeadFilter{JobID: late}, keys(late, 4, 3, 2, 1)},
		"activity":           {delivery.DeadFilter{JobID: like}, keys(like, 3)},
		"medium":             {delivery.DeadFilter{Medium: "sms"}, slices.Concat(keys(late, 3, 1), keys(old, 5, 3, 1))},
		"reason":             {delivery.DeadFilter{Reason: outbox.ReasonNoAddress}, keys(like, 3)},
		"channel":            {delivery.DeadFilter{ChannelID: &three}, slices.Concat(keys(late, 3), keys(old, 3), keys(like, 3))},
		"channel of a job":   {delivery.DeadFilter{JobID: old, ChannelID: &three}, keys(old, 3)},
		"since":              {delivery.DeadFilter{JobID: old, Since: ago(90 * time.Minute), Medium: "sms"}, keys(old, 3, 1)},
		"until":              {delivery.DeadFilter{Until: ago(90 * time.Minute)}, slices.Concat(keys(old, 5), keys(like, 3))},
		"since, until":       {delivery.DeadFilter{Since: ago(150 * time.Minute), Until: ago(90 * time.Minute)}, keys(like, 3)},
		"category":           {delivery.DeadFilter{Category: "operator_notice", JobID: late}, keys(late, 4, 3, 2, 1)},
		"another category":   {delivery.DeadFilter{Category: "popular_content", JobID: late}, nil},
		"last sender":        {delivery.DeadFilter{Sender: "other"}, keys(old, 3)},
		"sender, medium":     {delivery.DeadFilter{Sender: "main", Medium: "sms"}, slices.Concat(keys(late, 3, 1), keys(old, 5, 1))},
		"nothing":            {delivery.DeadFilter{Medium: "email"}, nil},
		"all that there are": {delivery.DeadFilter{JobID: late, Medium: "sms", Reason: outbox.ReasonPermanent, ChannelID: &three, Since: ago(2 * time.Hour), Until: ago(0)}, keys(late, 3)},
	} {
		got, err := delivery.DeadLettersIn(t.Context(), b.DB.Pool, c.filter, nil, 20, 2)
		require.NoError(t, err, name)
		require.Equal(t, c.want, keysOf(got), name)
	}

	counts, err := delivery.DeadCounts(t.Context(), b.DB.Pool, delivery.DeadFilter{})
	require.NoError(t, err)
	require.Equal(t, []delivery.DeadCount{
		{JobID: late, Medium: "push", Reason: outbox.ReasonCrashed, Letters: 2, Held: 2},
		{JobID: late, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 2, Held: 2},
		{JobID: old, Medium: "push", Reason: outbox.ReasonCrashed, Letters: 3},
		{JobID: old, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 3},
		{Medium: "push", Reason: outbox.ReasonNoAddress, Letters: 1},
	}, counts)
	counts, err = delivery.DeadCounts(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: like})
	require.NoError(t, err)
	require.Equal(t, []delivery.DeadCount{{JobID: like, Medium: "push", Reason: outbox.ReasonNoAddress, Letters: 1}}, counts)
}

func TestDeadLetters_RefuseAFilterOfWhatThereIsNot(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for want, f := range map[string]delivery.DeadFilter{
		`category: "none" is not a category; allowed values: `: {Category: "none"},
		`reason: "recalled" is not a reason of dead letters; allowed values: permanent, invalid_address, exhausted, unknown, crashed, no_address, bad_content`: {Reason: outbox.ReasonRecalled},
		`medium: "fax" is not a medium; allowed values: alimtalk, email, push, sms, webhook`:                                                                   {Medium: "fax"},
		"since: ": {Since: ago(time.Minute), Until: ago(time.Hour)},
	} {
		_, _, err := delivery.DeadLetters(t.Context(), b.DB.Pool, f, nil, 0)
		var bad *delivery.DeadFilterError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, want)
		_, err = delivery.Redrive(t.Context(), b.DB.Pool, f, delivery.DeadOptions{})
		require.ErrorAs(t, err, &bad)
	}
	_, err := delivery.DeadCounts(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: 17})
	require.ErrorIs(t, err, job.ErrNotFound)
	_, err = delivery.Discard(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: -17}, delivery.DeadOptions{})
	require.ErrorIs(t, err, job.ErrNotFound)
	require.ErrorContains(t, err, "activity -17")
}

func TestShowMessage_TellsEverythingThatWasRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.letters(t, 2, job.Aborted)
	m, err := delivery.ShowMessage(t.Context(), b.DB.Pool, outbox.Key{JobID: id, ChannelID: 1})
	require.NoError(t, err)
	require.Equal(t, outbox.Dead, m.Status)
	require.Equal(t, []string{"push", "sms"}, m.Route)
	require.Equal(t, "told", m.Title)
	require.NotNil(t, m.DeadAt)
	require.True(t, m.Held)
	require.Len(t, m.Record, 1)
	require.Equal(t, delivery.AttemptRecord{Step: 1, Attempt: 3, Medium: "sms", Sender: "main", Outcome: outbox.OutcomePermanent, Code: "410", Error: "gone", At: m.Record[0].At}, m.Record[0])

	like := b.activity(t, 9)
	m, err = delivery.ShowMessage(t.Context(), b.DB.Pool, outbox.Key{JobID: like, ChannelID: 9})
	require.NoError(t, err)
	require.Equal(t, "liked", m.Title)
	require.Empty(t, m.Record)

	sent := b.Rest(t, outbox.TypePush, 1, job.Processed)
	b.States(t, sent, "SENT")
	m, err = delivery.ShowMessage(t.Context(), b.DB.Pool, outbox.Key{JobID: sent, ChannelID: 1})
	require.NoError(t, err)
	require.Equal(t, outbox.Sent, m.Status)
	require.Nil(t, m.DeadAt)
	_, err = delivery.ShowMessage(t.Context(), b.DB.Pool, outbox.Key{JobID: sent, ChannelID: 2})
	require.ErrorIs(t, err, delivery.ErrNoMessage)
}

// A message has the text that was sent, although its job was corrected later.
func TestShowMessage_HasTheTextThatWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.States(t, id, "SENT", "SENT", "SENT", "PENDING", "PROCESSING")
	b.Exec(t, `INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by)
		SELECT id, r, "cursor", 'title ' || r - 1, 'body ' || r - 1, data, audience, 'ann' FROM belfry.jobs, generate_series(1, 2) r WHERE id = $1`, id)
	b.Past(t, `UPDATE belfry.jobs SET revision = 2, title = 'title 2', body = 'body 2' WHERE id = $1`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET revision = CASE channel_id WHEN 2 THEN 1 WHEN 3 THEN 2 END, receipt = CASE channel_id WHEN 5 THEN 'r' END WHERE job_id = $1`, id)
	for channel, want := range map[int64]string{1: "0", 2: "1", 3: "2", 4: "2", 5: "0"} {
		m, err := delivery.ShowMessage(t.Context(), b.DB.Pool, outbox.Key{JobID: id, ChannelID: channel})
		require.NoError(t, err)
		require.Equal(t, []any{"title " + want, "body " + want, 2}, []any{m.Title, m.Body, m.Corrections}, channel)
		require.Equal(t, channel == 4, m.Revision == nil, "which was not sent")
		require.True(t, m.Revision == nil || strconv.Itoa(*m.Revision) == want, channel)
	}
}

// events are the acts on dead letters, oldest first.
func (b *bundle) deadEvents(t require.TestingT) (list []deadEvent) {
	rows, err := b.DB.Pool.Query(context.Background(), `SELECT name, kind, actor, reason, detail - 'session_user' FROM belfry.events WHERE subject = 'dead_letter' ORDER BY id`)
	require.NoError(t, err)
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e deadEvent, err error) {
		var detail []byte
		if err := row.Scan(&e.name, &e.kind, &e.actor, &e.reason, &detail); err != nil {
			return e, err
		}
		return e, json.Unmarshal(detail, &e)
	})
	require.NoError(t, err)
	return list
}

type deadEvent struct {
	name, kind, actor, reason string
	Filter                    map[string]any
	Before, After             map[string]int64
}

// The same message goes again, from the first medium and with its attempts counted
// from none, and its job is looked through again. A repetition changes nothing, and
// is no act.
func TestRedrive_ReturnsLettersToTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id, other := b.letters(t, 6, job.Processed), b.letters(t, 2, job.Processed)
	like := b.activity(t, 9)
	who := delivery.DeadOptions{Act: job.Act{Actor: "ann", Reason: "key renewed"}}
	for range 2 {
		done, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: id, Medium: "sms"}, who)
		require.NoError(t, err)
		if who.Observe == nil {
			require.Equal(t, delivery.DeadDone{Looked: 3, Changed: 3}, done)
		} else {
			require.Equal(t, delivery.DeadDone{}, done)
		}
		who.Observe = func(delivery.DeadDone) {}
	}
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status = 'PENDING' AND reason = 'redriven'
		AND step = 0 AND attempts = 0 AND crashes = 0 AND lease_id = 0 AND next_attempt_at <= now() AND next_attempt_at > now() - interval '1 minute' AND last_error = 'no'`, id))
	require.Equal(t, map[string]int{"PENDING": 3, "DEAD": 3}, b.Statuses(t, id))
	require.Equal(t, map[string]int{"DEAD": 2}, b.Statuses(t, other))
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NULL FROM belfry.jobs WHERE id = $1`, id))
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, other))
	require.Equal(t, 6, one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE job_id = $1`, id))
	require.Equal(t, []deadEvent{{
		strconv.FormatInt(id, 10), "redriven", "ann", "key renewed", map[string]any{"job_id": float64(id), "medium": "sms"},
		map[string]int64{"DEAD": 3}, map[string]int64{"PENDING": 3},
	}}, b.deadEvents(t))

	b.kill(t, id)
	done, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{SameMedium: true})
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 9, Changed: 9}, done)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status = 'PENDING' AND step = 1 AND attempts = 0`, id))
	require.Equal(t, map[string]int{"PENDING": 1}, b.Statuses(t, like))
	last := b.deadEvents(t)[1]
	require.Equal(t, map[string]any{"same_medium": true}, last.Filter)
	require.Equal(t, map[string]int64{"PENDING": 9}, last.After)
}

// What an operator took back, and what retention deletes, does not go out again. What
// an ABORTED job held stays held (I6).
func TestRedrive_LeavesWhatIsNotToGoOutAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	held, pruned := b.letters(t, 2, job.Aborted), b.letters(t, 3, job.Aborted)
	recalled, resumed := b.letters(t, 4, job.Aborted), b.letters(t, 5, job.Processed)
	b.Exec(t, `UPDATE belfry.jobs SET retention_at = now() WHERE id = $1`, pruned)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, recalled, job.Act{}, nil)
	require.NoError(t, err)
	b.Exec(t, `UPDATE belfry.jobs SET recalled_at = now() - interval '2 hours' WHERE id = $1`, resumed) // they died after it
	b.Exec(t, `UPDATE belfry.message_rows SET recalled_at = now() WHERE job_id = $1 AND channel_id = 5`, resumed)

	counts, err := delivery.DeadCounts(t.Context(), b.DB.Pool, delivery.DeadFilter{Medium: "sms"})
	require.NoError(t, err)
	require.Equal(t, []delivery.DeadCount{
		{JobID: resumed, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 3, Recalled: 1},
		{JobID: recalled, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 2, Recalled: 2},
		{JobID: pruned, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 2, Retention: 2},
		{JobID: held, Medium: "sms", Reason: outbox.ReasonPermanent, Letters: 1, Held: 1},
	}, counts)
	done, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{})
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 14, Changed: 6, Held: 2, Retention: 3, Recalled: 5}, done)
	require.Equal(t, map[string]int{"PENDING": 2}, b.Statuses(t, held))
	require.Equal(t, map[string]int{"DEAD": 3}, b.Statuses(t, pruned))
	require.Equal(t, map[string]int{"DEAD": 4}, b.Statuses(t, recalled))
	require.Equal(t, map[string]int{"DEAD": 1, "PENDING": 4}, b.Statuses(t, resumed))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, held))
	require.Equal(t, map[string]int64{"PENDING": 6}, b.deadEvents(t)[0].After)
}

func TestDiscard_IsPermanent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id, recalled, pruned := b.letters(t, 4, job.Processed), b.letters(t, 2, job.Aborted), b.letters(t, 2, job.Aborted)
	b.Exec(t, `UPDATE belfry.jobs SET retention_at = now() WHERE id = $1`, pruned)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, recalled, job.Act{}, nil)
	require.NoError(t, err)
	done, err := delivery.Discard(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{Act: job.Act{Actor: "ann"}, SameMedium: true})
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 8, Changed: 6, Retention: 2}, done)
	require.Equal(t, 6, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'CANCELLED' AND reason = 'discarded'`))
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id))
	require.Equal(t, []deadEvent{{"", "discarded", "ann", "", map[string]any{}, map[string]int64{"DEAD": 6}, map[string]int64{"CANCELLED": 6}}}, b.deadEvents(t))
	done, err = delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{})
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 2, Retention: 2}, done)
}

// I13, I14: it goes in steps; cut short, what is committed counts, in the event as
// well, and a repetition goes on.
func TestRedrive_GoesOnWhereItWasCutShort(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.letters(t, 20, job.Processed)
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	done, err := delivery.RedriveIn(ctx, b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{Observe: func(delivery.DeadDone) {
		if steps++; steps == 3 {
			cancel()
		}
	}}, 4)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, delivery.DeadDone{Looked: 12, Changed: 12}, done)
	require.Equal(t, map[string]int{"PENDING": 12, "DEAD": 8}, b.Statuses(t, id))
	require.Equal(t, map[string]int64{"PENDING": 12}, b.deadEvents(t)[0].After)

	// Retention may take the event of an act that lasts.
	steps = 0
	done, err = delivery.RedriveIn(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{Observe: func(delivery.DeadDone) {
		if steps++; steps == 1 {
			b.Exec(t, `DELETE FROM belfry.events`)
		}
	}}, 5)
	require.NoError(t, err)
	require.EqualValues(t, 8, done.Changed)
	require.Equal(t, map[string]int64{"DEAD": 3}, b.deadEvents(t)[0].Before)
}

// A job that is recalled while a step waits for its row was recalled first: nothing of
// it goes out again.
func TestRedrive_SeesARecallThatCameBetween(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.letters(t, 3, job.Processed)
	operator, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = operator.Exec(t.Context(), `UPDATE belfry.jobs SET recalled_at = clock_timestamp() WHERE id = $1`, id)
	require.NoError(t, err)
	var done delivery.DeadDone
	var acting sync.WaitGroup
	acting.Go(func() {
		done, err = delivery.Redrive(context.Background(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{})
	})
	b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	commit := operator.Commit(t.Context())
	acting.Wait()
	require.NoError(t, commit)
	require.NoError(t, err)
	require.Equal(t, delivery.DeadDone{Looked: 3, Recalled: 3}, done)
	require.Equal(t, map[string]int{"DEAD": 3}, b.Statuses(t, id))
	require.Empty(t, b.deadEvents(t))
}

// I14: acts side by side change every letter once, and the events' counts are those of
// the rows changed.
func TestRedrive_SideBySideTakesEveryLetterOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	first, second := b.letters(t, 300, job.Processed), b.letters(t, 300, job.Processed)
	var acting sync.WaitGroup
	results := make([]delivery.DeadDone, 4)
	errs := make([]error, 4)
	for i := range results {
		acting.Go(func() {
			act := delivery.RedriveIn
			if i%2 == 1 {
				act = delivery.DiscardIn
			}
			results[i], errs[i] = act(context.Background(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{}, 37+i)
		})
	}
	acting.Wait()
	var changed int64
	for i, done := range results {
		require.NoError(t, errs[i])
		changed += done.Changed
	}
	require.EqualValues(t, 600, changed)
	told := make(map[string]int64)
	for _, e := range b.deadEvents(t) {
		for status, n := range e.After {
			told[status] += n
		}
	}
	for status, n := range told {
		require.EqualValues(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id IN ($1, $2) AND status = $3`, first, second, status), n)
	}
	require.EqualValues(t, 600, told["PENDING"]+told["CANCELLED"])
}

// Listing, counting and acting against a naive reading of the filter, on random
// letters in random states with steps of random size.
func TestDeadLetters_AgreeWithANaiveModel(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ids := []int64{b.letters(t, 0, job.Processed), b.letters(t, 0, job.Aborted), b.letters(t, 0, job.Failed)}
	rapid.Check(t, func(t *rapid.T) {
		type letter struct {
			key    outbox.Key
			medium string
			reason outbox.Reason
			hours  int
			status string
		}
		f := delivery.DeadFilter{}
		var world []letter
		var all pgx.Batch
		all.Queue(`DELETE FROM belfry.message_rows`)
		for _, id := range ids {
			for channel := range int64(rapid.IntRange(0, 12).Draw(t, "letters")) {
				step := rapid.IntRange(0, 1).Draw(t, "step")
				l := letter{outbox.Key{JobID: id, ChannelID: channel - 3}, []string{"push", "sms"}[step], rapid.SampledFrom(outbox.Whys(outbox.ReasonDead)).Draw(t, "reason"), rapid.IntRange(1, 9).Draw(t, "hours"), "DEAD"}
				if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
					l.status = "SENT"
				}
				all.Queue(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, step, reason) VALUES ($1, $2, now() - $6 * interval '1 hour', $3, $4, $5)`,
					id, l.key.ChannelID, l.status, step, string(l.reason), l.hours)
				world = append(world, l)
			}
		}
		require.NoError(t, b.DB.Pool.SendBatch(context.Background(), &all).Close())
		pick := func(name string) bool { return rapid.Bool().Draw(t, name) }
		from, to := 0, 24
		if pick("by job") {
			f.JobID = rapid.SampledFrom(ids).Draw(t, "job")
		}
		if pick("by medium") {
			f.Medium = rapid.SampledFrom([]string{"push", "sms", "email"}).Draw(t, "medium")
		}
		if pick("by reason") {
			f.Reason = rapid.SampledFrom(outbox.Whys(outbox.ReasonDead)).Draw(t, "reason")
		}
		if pick("by channel") {
			channel := rapid.Int64Range(-3, 9).Draw(t, "channel")
			f.ChannelID = &channel
		}
		if pick("by since") {
			to = rapid.IntRange(1, 9).Draw(t, "since")
			f.Since = ago(time.Duration(to)*time.Hour + 30*time.Minute)
		}
		if pick("by until") {
			from = rapid.IntRange(0, to-1).Draw(t, "until")
			f.Until = ago(time.Duration(from)*time.Hour + 30*time.Minute)
		}
		var want []outbox.Key
		counts := make(map[string]int64)
		for _, l := range world {
			if l.status == "DEAD" && (f.JobID == 0 || l.key.JobID == f.JobID) && (f.Medium == "" || l.medium == f.Medium) && (f.Reason == "" || l.reason == f.Reason) &&
				(f.ChannelID == nil || l.key.ChannelID == *f.ChannelID) && l.hours > from && l.hours <= to {
				want = append(want, l.key)
				counts[fmt.Sprint(l.key.JobID, l.medium, l.reason)]++
			}
		}
		keys := rapid.IntRange(1, 15).Draw(t, "keys")
		list, err := delivery.DeadLettersIn(context.Background(), b.DB.Pool, f, nil, 100, keys)
		require.NoError(t, err)
		slices.Reverse(list)
		require.Equal(t, want, keysOf(list))
		groups, err := delivery.DeadCounts(context.Background(), b.DB.Pool, f)
		require.NoError(t, err)
		require.Len(t, groups, len(counts))
		for _, g := range groups {
			require.Equal(t, counts[fmt.Sprint(g.JobID, g.Medium, g.Reason)], g.Letters)
		}
		done, err := delivery.RedriveIn(context.Background(), b.DB.Pool, f, delivery.DeadOptions{}, keys)
		require.NoError(t, err)
		require.EqualValues(t, len(want), done.Changed)
		rows, err := b.DB.Pool.Query(context.Background(), `SELECT job_id, channel_id FROM belfry.messages WHERE status = 'PENDING' AND reason = 'redriven' ORDER BY 1, 2`)
		require.NoError(t, err)
		changed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Key])
		require.NoError(t, err)
		require.ElementsMatch(t, want, changed)
	})
}

// I9: a redrive counts anew, but what may have been accepted stays so.
func TestRedrive_KeepsWhatMayHaveBeenAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.letters(t, 4, job.Processed)
	done, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: id}, delivery.DeadOptions{Act: job.Act{Actor: "ann", Reason: "up again"}})
	require.NoError(t, err)
	require.EqualValues(t, 4, done.Changed)
	claimed, _, err := outbox.NewLedger(b.DB.Pool, "r1", time.Minute).ClaimJob(t.Context(), id, outbox.Position{}, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.Len(t, claimed, 4)
	for _, c := range claimed {
		require.Equal(t, c.ChannelID%2 == 0, c.Ambiguous, c.ChannelID)
		require.Equal(t, outbox.ReasonRedriven, c.Reason)
		require.Equal(t, [3]int{}, [3]int{c.Step, c.Attempts, c.Crashes})
	}
}

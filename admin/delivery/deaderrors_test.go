package delivery_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// died sets what the letters of a job died of: the text, with the channel for %, and a last attempt
// by a sender, with its code.
func (b *bundle) died(t require.TestingT, id int64, which, text, sender, code string) {
	b.Exec(t, `UPDATE belfry.message_rows SET last_error = replace($2, '%', channel_id::text) WHERE job_id = $1 AND `+which, id, text)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code, error)
		SELECT job_id, channel_id, step, 4, 'push', $2, 'permanent', $3, '' FROM belfry.messages WHERE job_id = $1 AND `+which, id, sender, code)
}

func TestDeadErrors_CountsByWhatTheyDiedOf(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	old := b.letters(t, 6, job.Processed) // 1 3 5: sms permanent; 2 4 6: push crashed
	late := b.letters(t, 4, job.Aborted)
	like := b.activity(t, 3)
	for _, id := range []int64{old, late} {
		b.died(t, id, "channel_id % 2 = 1", `user "u%" is unknown to +82-10-%`, "post", "410")
	}
	b.died(t, old, "channel_id = 5", "quota exceeded", "post", "429")
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '5 hours' WHERE job_id = $1 AND channel_id = 3`, old)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '2 hours' WHERE job_id = $1`, late)

	list, err := delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{}, 0, 0)
	require.NoError(t, err)
	require.Equal(t, []any{true, int64(11), int64(11), int64(4)}, []any{list.Complete, list.Looked, list.Matched, list.Kinds})
	require.Nil(t, list.DownTo)
	first := list.Errors[1]
	require.WithinDuration(t, time.Now().Add(-5*time.Hour), first.FirstAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(-time.Hour), first.LastAt, time.Minute)
	for i := range list.Errors {
		require.Len(t, list.Errors[i].ID, 16)
		list.Errors[i].ID, list.Errors[i].FirstAt, list.Errors[i].LastAt = "", time.Time{}, time.Time{}
	}
	require.Equal(t, []delivery.DeadError{
		{Medium: "push", Reason: outbox.ReasonCrashed, Sender: "main", Code: "410", Error: "no", Letters: 5, Jobs: 2, ExampleJobID: late, ExampleChannelID: 4},
		{Medium: "sms", Reason: outbox.ReasonPermanent, Sender: "post", Code: "410", Error: `user "#" is unknown to #`, Letters: 4, Jobs: 2, ExampleJobID: late, ExampleChannelID: 3, Others: 1},
		{Medium: "push", Reason: outbox.ReasonNoAddress, Letters: 1, ExampleJobID: like, ExampleChannelID: 3},
		{Medium: "sms", Reason: outbox.ReasonPermanent, Sender: "post", Code: "429", Error: "quota exceeded", Letters: 1, Jobs: 1, ExampleJobID: old, ExampleChannelID: 5, Others: 4},
	}, list.Errors)
	require.Equal(t, delivery.DeadFilter{JobID: old, Medium: "sms", Reason: outbox.ReasonPermanent, Error: first.ID}, first.Filter(delivery.DeadFilter{JobID: old}))

	list, err = delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: old, Medium: "sms", Since: ago(3 * time.Hour)}, 1, 0)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2, 6}, []int64{list.Kinds, list.Matched, list.Looked})
	require.Len(t, list.Errors, 1, "as many as are asked for")

	list, err = delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{}, 0, 4)
	require.NoError(t, err)
	require.Equal(t, []any{false, int64(4), int64(4), int64(2)}, []any{list.Complete, list.Looked, list.Matched, list.Kinds}, "the newest four")
	require.Equal(t, &outbox.Key{JobID: late, ChannelID: 1}, list.DownTo)

	_, err = delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{Medium: "fax"}, 0, 0)
	require.ErrorContains(t, err, "is not a medium")
	_, err = delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: late + 1}, 0, 0)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// A redrive of one error leaves letters of the same medium and reason that have another text, code or sender. Pages
// of its letters have no gap.
func TestRedrive_ActsOnOneErrorOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.letters(t, 24, job.Processed) // odd channels: sms permanent
	b.died(t, id, "channel_id % 2 = 1", "user u% is unknown", "post", "410")
	b.died(t, id, "channel_id IN (3, 13)", "quota of u% exceeded", "post", "410")
	b.died(t, id, "channel_id IN (5, 15)", "user u% is unknown", "post", "404")
	b.died(t, id, "channel_id IN (7, 17)", "user u% is unknown", "spare", "410")
	b.Exec(t, `DELETE FROM belfry.attempts WHERE job_id = $1 AND channel_id = 9`, id) // a sender and a code that are not known
	list, err := delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: id, Reason: outbox.ReasonPermanent}, 0, 0)
	require.NoError(t, err)
	require.Len(t, list.Errors, 5)
	of := func(e delivery.DeadError) delivery.DeadFilter { return e.Filter(delivery.DeadFilter{}) }
	first := list.Errors[0]
	require.EqualValues(t, 5, first.Letters)
	channels := func(list []delivery.DeadLetter) (ids []int64) {
		for _, d := range list {
			ids = append(ids, d.ChannelID)
		}
		return ids
	}
	page, _, err := delivery.DeadLettersOf(t.Context(), b.DB.Pool, of(first), nil, 2, 100)
	require.NoError(t, err)
	require.Equal(t, []int64{23, 21}, channels(page))
	page, _, err = delivery.DeadLettersOf(t.Context(), b.DB.Pool, of(first), &outbox.Key{JobID: id, ChannelID: 21}, 2, 100)
	require.NoError(t, err)
	require.Equal(t, []int64{19, 11}, channels(page))

	for i, e := range list.Errors {
		counts, err := delivery.DeadCounts(t.Context(), b.DB.Pool, of(e))
		require.NoError(t, err)
		require.Equal(t, e.Letters, counts[0].Letters)
		act := delivery.RedriveIn
		if i == 1 {
			act = delivery.DiscardIn
		}
		done, err := act(t.Context(), b.DB.Pool, of(e), delivery.DeadOptions{}, 3)
		require.NoError(t, err)
		require.Equal(t, e.Letters, done.Changed)
		left, err := delivery.DeadErrors(t.Context(), b.DB.Pool, delivery.DeadFilter{JobID: id, Reason: outbox.ReasonPermanent}, 0, 0)
		require.NoError(t, err)
		require.Len(t, left.Errors, 4-i, "other errors stay dead")
		for j := range left.Errors {
			require.Equal(t, list.Errors[i+1+j].Letters, left.Errors[j].Letters)
		}
	}
	require.Equal(t, 12, one[int](t, b, `SELECT count(*)::int FROM belfry.messages WHERE job_id = $1 AND status = 'DEAD'`, id), "the letters of another reason")
}

// A look has an end, by time and by what it has to remember, and says how far it came.
func TestDeadErrors_IsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.letters(t, 30, job.Processed)
	late := b.letters(t, 10, job.Processed)
	later := time.Now().Add(time.Hour)

	list, err := delivery.DeadErrorsIn(t.Context(), b.DB.Pool, delivery.DeadFilter{}, 100, 6, 1000, time.Now())
	require.NoError(t, err)
	require.False(t, list.Complete)
	require.EqualValues(t, 6, list.Looked, "when the time is over one step was taken")
	require.Equal(t, &outbox.Key{JobID: late, ChannelID: 5}, list.DownTo)

	list, err = delivery.DeadErrorsIn(t.Context(), b.DB.Pool, delivery.DeadFilter{}, 100, 1, 2, later)
	require.NoError(t, err)
	require.False(t, list.Complete)
	require.EqualValues(t, 2, list.Looked, "with two errors no more is looked at")
	require.EqualValues(t, 2, list.Kinds)

	list, err = delivery.DeadErrorsIn(t.Context(), b.DB.Pool, delivery.DeadFilter{}, 100, 6, 1000, later)
	require.NoError(t, err)
	require.True(t, list.Complete)
	require.EqualValues(t, 40, list.Looked)
}

// Whatever the letters, the filter and the steps are, the counts are those of the letters that are
// listed.
func TestDeadErrors_AgreesWithTheList(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for i, n := range []int{7, 1, 12} {
		id := b.letters(t, n, job.Processed)
		b.died(t, id, "channel_id % 3 = 0", "user % is unknown", "post", "410")
		b.Exec(t, `UPDATE belfry.message_rows SET reason = 'permanent' WHERE job_id = $1 AND channel_id = 4`, id) // a reason at two media
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - make_interval(hours => channel_id::int % 4 + $2) WHERE job_id = $1`, id, i)
	}
	b.activity(t, 3)
	b.activity(t, 4)
	all, _, err := delivery.DeadLetters(t.Context(), b.DB.Pool, delivery.DeadFilter{}, nil, 100)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		var f delivery.DeadFilter
		f.Medium = rapid.SampledFrom([]string{"", "push", "sms"}).Draw(t, "medium")
		f.Reason = rapid.SampledFrom([]outbox.Reason{"", outbox.ReasonPermanent, outbox.ReasonCrashed, outbox.ReasonNoAddress}).Draw(t, "reason")
		if rapid.Bool().Draw(t, "by job") {
			f.JobID = rapid.SampledFrom(all).Draw(t, "job").JobID
		}
		if hours := rapid.IntRange(0, 5).Draw(t, "since"); hours > 0 {
			f.Since = ago(time.Duration(hours)*time.Hour + 30*time.Minute)
		}
		listed, _, err := delivery.DeadLetters(context.Background(), b.DB.Pool, f, nil, 100)
		require.NoError(t, err)
		want := make(map[string]*delivery.DeadError)
		jobs := make(map[string]bool)
		for _, d := range listed {
			k := fmt.Sprint(d.Medium, d.Reason, delivery.ErrorKind(d.Error))
			if want[k] == nil {
				want[k] = &delivery.DeadError{ExampleJobID: d.JobID, ExampleChannelID: d.ChannelID, FirstAt: d.DeadAt, LastAt: d.DeadAt}
			}
			w := want[k]
			w.Letters++
			if in := fmt.Sprint(k, d.JobID); d.JobID > 0 && !jobs[in] {
				jobs[in] = true
				w.Jobs++
			}
			if d.DeadAt.Before(w.FirstAt) {
				w.FirstAt = d.DeadAt
			}
			if d.DeadAt.After(w.LastAt) {
				w.LastAt = d.DeadAt
			}
		}
		got, err := delivery.DeadErrorsIn(context.Background(), b.DB.Pool, f, 100, rapid.IntRange(1, 9).Draw(t, "keys"), 1000, time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Len(t, got.Errors, len(want))
		require.EqualValues(t, len(listed), got.Matched)
		require.True(t, slices.IsSortedFunc(got.Errors, func(a, b delivery.DeadError) int { return cmp.Compare(b.Letters, a.Letters) }))
		for _, e := range got.Errors {
			w := want[fmt.Sprint(e.Medium, e.Reason, e.Error)]
			require.NotNil(t, w, e.Error)
			require.Equal(t, []int64{w.Letters, w.Jobs, w.ExampleJobID, w.ExampleChannelID}, []int64{e.Letters, e.Jobs, e.ExampleJobID, e.ExampleChannelID})
			require.True(t, w.FirstAt.Equal(e.FirstAt) && w.LastAt.Equal(e.LastAt))
			selected, err := delivery.DeadLettersIn(context.Background(), b.DB.Pool, e.Filter(f), nil, 100, rapid.IntRange(1, 9).Draw(t, "listed keys"))
			require.NoError(t, err)
			require.Len(t, selected, int(e.Letters), "the filter of the error selects its letters")
			f := f
			f.Medium, f.Reason = e.Medium, e.Reason
			selected, _, err = delivery.DeadLetters(context.Background(), b.DB.Pool, f, nil, 100)
			require.NoError(t, err)
			require.EqualValues(t, len(selected), e.Letters+e.Others)
		}
	})
}

// The errors of 200,000 dead letters in a table that has two million others, each with a text of
// its own. Run it with -benchtime 5x.
func BenchmarkDeadErrors(b *testing.B) {
	const letters = 200_000
	db := dbtest.NewOn(b, dbtest.NewServer(b, true))
	bench := &bundle{&outboxtest.Stores{Database: &outboxtest.Database{DB: db}, Jobs: job.NewStore(db.Pool)}}
	for range 4 {
		bench.States(b, bench.Rest(b, outbox.TypePush, letters*10/4, job.Processed), "SENT")
	}
	id := bench.letters(b, letters, job.Processed)
	bench.Exec(b, `UPDATE belfry.message_rows SET last_error = 'no such user: kim-' || channel_id || '@example.org' WHERE job_id = $1`, id)
	bench.Exec(b, `VACUUM (ANALYZE) belfry.message_rows, belfry.attempts, belfry.jobs`)
	for b.Loop() {
		began := time.Now()
		list, err := delivery.DeadErrorsIn(b.Context(), db.Pool, delivery.DeadFilter{}, 100, 5000, 2000, time.Now().Add(time.Hour))
		require.NoError(b, err)
		require.EqualValues(b, letters, list.Matched)
		require.Len(b, list.Errors, 2)
		b.ReportMetric(letters/1000/time.Since(began).Seconds(), "krows/s")
	}
}

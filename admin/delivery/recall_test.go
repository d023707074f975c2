package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// recallEvents are the numbers before and after of a job's recall events.
func (b *bundle) recallEvents(t *testing.T, id int64) (numbers [][2]int64) {
	t.Helper()
	events, err := b.Jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	for _, e := range events {
		if e.Kind != job.EventRecalled {
			continue
		}
		require.Equal(t, ann.Actor, e.Actor)
		require.Equal(t, ann.Reason, e.Reason)
		var detail struct{ Before, After struct{ Recalled int64 } }
		require.NoError(t, json.Unmarshal(e.Detail, &detail))
		numbers = append(numbers, [2]int64{detail.Before.Recalled, detail.After.Recalled})
	}
	return numbers
}

// I8: a message that is sent, or in flight, keeps its status. I14: actor,
// reason, before and after.
func TestRecall_CancelsMessagesThatAreNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for _, status := range []job.Status{job.Aborted, job.Processed, job.Failed} {
		id := b.Rest(t, outbox.TypePush, 12000, status)
		other := b.Rest(t, outbox.TypePush, 10, status)
		b.States(t, id, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED")
		var steps int
		got, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, func(p delivery.RecallProgress) {
			steps++
			require.EqualValues(t, 12000, p.Rows)
		})
		require.NoError(t, err)
		require.Equal(t, delivery.Recalled{Messages: 4000, Sent: 2000, Dead: 2000, InFlight: 2000}, got)
		require.Equal(t, 3, steps)
		require.Equal(t, map[string]int{"PROCESSING": 2000, "SENT": 2000, "DEAD": 2000, "CANCELLED": 6000}, b.Statuses(t, id))
		require.Equal(t, map[string]int{"PENDING": 10}, b.Statuses(t, other))

		got, err = delivery.Recall(t.Context(), b.DB.Pool, id, ann, nil)
		require.NoError(t, err)
		require.Equal(t, delivery.Recalled{Sent: 2000, Dead: 2000, InFlight: 2000}, got)
		require.Equal(t, [][2]int64{{0, 0}, {0, 4000}, {4000, 4000}}, b.recallEvents(t, id))
		require.EqualValues(t, 4000, one[int64](t, b, `SELECT recalled FROM belfry.jobs WHERE id = $1`, id))
	}
}

func TestRecall_WithdrawsNotificationsThatAreNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	older := b.Rest(t, outbox.TypeInbox, 12000, job.Processed)
	b.Exec(t, `SELECT setval('belfry.arrivals_seq', 1000000000, false)`) // another partition, with the same positions
	id := b.Rest(t, outbox.TypeInbox, 11000, job.Aborted)
	newer := b.Rest(t, outbox.TypeInbox, 12000, job.Processed)
	b.Exec(t, `UPDATE belfry.notifications SET read_at = now() WHERE channel_id % 10 = 0`)
	got, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, nil)
	require.NoError(t, err)
	require.Equal(t, delivery.Recalled{Notifications: 9900, Read: 1100}, got)
	require.EqualValues(t, 9900, one[int64](t, b, `SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1 AND withdrawn_at IS NOT NULL AND read_at IS NULL`, id))
	require.EqualValues(t, 0, one[int64](t, b, `SELECT count(*) FROM belfry.job_notifications WHERE job_id IN ($1, $2) AND withdrawn_at IS NOT NULL`, older, newer))
	require.Equal(t, [][2]int64{{0, 0}, {0, 9900}}, b.recallEvents(t, id))

	// Nothing was written: nothing to recall, and the act is recorded all the same.
	empty := b.Rest(t, outbox.TypeInbox, 0, job.Aborted)
	got, err = delivery.Recall(t.Context(), b.DB.Pool, empty, ann, nil)
	require.NoError(t, err)
	require.Zero(t, got)
	require.Equal(t, [][2]int64{{0, 0}}, b.recallEvents(t, empty))
}

func TestRecall_RefusesAJobThatIsNotAtRest(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 3, job.Aborted)
	b.Exec(t, `UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, id)
	for _, status := range []job.Status{job.Pending, job.Running} {
		if status == job.Running {
			b.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id = $1`, id)
		}
		_, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, nil)
		var wrong *job.WrongStatusError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, status, wrong.Status)
		require.ErrorContains(t, err, "recall needs a job that is ABORTED or PROCESSED or FAILED")
	}
	require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, id))
	require.Empty(t, b.recallEvents(t, id))
	_, err := delivery.Recall(t.Context(), b.DB.Pool, id+1000, ann, nil)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// A recall of several jobs reads no content, which whoever enqueues makes large.
func TestRecall_OfSeveralJobsReadsNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	var ids []int64
	for range 3 {
		ids = append(ids, b.Rest(t, outbox.TypePush, 3, job.Aborted))
	}
	b.Past(t, `UPDATE belfry.jobs SET body = 'the body', data = '{"a": 1}', variants = '{"ko": {"title": "x"}}'`)
	begun, err := delivery.BeginRecalls(t.Context(), b.DB.Pool, job.Selection{IDs: ids}, ann)
	require.NoError(t, err)
	require.Len(t, begun, 3)
	for i, r := range begun {
		j := delivery.RecalledJob(r)
		require.Equal(t, ids[i], j.ID)
		require.Empty(t, j.Body)
		require.JSONEq(t, "{}", string(j.Data))
		require.JSONEq(t, "{}", string(j.Variants))
		done, err := r.Run(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, delivery.Recalled{Messages: 3}, done)
	}
	_, err = delivery.BeginRecalls(t.Context(), b.DB.Pool, job.Selection{IDs: []int64{ids[0], ids[2] + 1000}}, ann)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// A job that goes on is not recalled behind its back: neither while it is PENDING
// nor when it was claimed and aborted again, under another fence.
func TestRecall_EndsWhenTheJobGoesOn(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string][]string{
		"resumed": {`UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`},
		"resumed, claimed and aborted": {
			`UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`,
			`UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id = $1`,
			`UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			id := b.Rest(t, outbox.TypePush, 12000, job.Aborted)
			got, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, func(p delivery.RecallProgress) {
				if p.Looked == 5000 {
					for _, sql := range goOn {
						b.Exec(t, sql, id)
					}
				}
			})
			require.ErrorIs(t, err, delivery.ErrRecallStopped)
			require.Equal(t, delivery.Recalled{Messages: 5000}, got)
			require.Equal(t, map[string]int{"CANCELLED": 5000, "PENDING": 7000}, b.Statuses(t, id))
			require.EqualValues(t, 5000, one[int64](t, b, `SELECT recalled FROM belfry.jobs WHERE id = $1`, id))
		})
	}
}

// A recall does not wait for a message that a relay is claiming: it does all others,
// then finds that one PROCESSING, and its attempt is the last (I6, I8).
func TestRecall_ComesBackToLockedRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	id := b.Rest(t, outbox.TypePush, 100, job.Processed)
	relay, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = relay.Exec(ctx, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 1
		WHERE job_id = $1 AND channel_id = 7`, id)
	require.NoError(t, err)
	type result struct {
		recalled delivery.Recalled
		err      error
	}
	ended := make(chan result, 1)
	go func() {
		got, err := delivery.Recall(ctx, b.DB.Pool, id, ann, nil)
		ended <- result{got, err}
	}()
	b.Eventually(t, `SELECT count(*) = 99 FROM belfry.messages WHERE job_id = $1 AND status = 'CANCELLED'`, id)
	require.NoError(t, relay.Commit(ctx))
	got := <-ended
	require.NoError(t, got.err)
	require.Equal(t, delivery.Recalled{Messages: 99, InFlight: 1}, got.recalled)

	_, err = b.DB.Pool.Exec(ctx, `UPDATE belfry.message_rows SET status = 'PENDING' WHERE job_id = $1 AND channel_id = 7`, id)
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg, "a recalled message never becomes due again")
	require.Equal(t, "messages_waiting_check", pg.ConstraintName)
	require.EqualValues(t, 0, one[int64](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id))
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = 7`, id)
}

// A row that a session keeps locked, such as a reader's, delays no other row: the recall names the session, and a
// second one does what is left.
func TestLong_RecallALockedRowDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			ctx := t.Context()
			const n = 12_000
			id := b.Rest(t, kind, n, job.Processed)
			reader, err := b.DB.Pool.Begin(ctx)
			require.NoError(t, err)
			lock := `SELECT FROM belfry.notifications WHERE channel_id = 7 AND arrival = (SELECT arrival FROM belfry.jobs WHERE id = $1) FOR UPDATE`
			if kind == outbox.TypePush {
				lock = `SELECT FROM belfry.message_rows WHERE channel_id = 7 AND job_id = $1 FOR UPDATE`
			}
			_, err = reader.Exec(ctx, lock, id)
			require.NoError(t, err)
			got, err := delivery.Recall(ctx, b.DB.Pool, id, ann, nil)
			require.ErrorIs(t, err, outbox.ErrRowsLocked)
			require.ErrorContains(t, err, fmt.Sprintf("1 of them; by session %d of ", reader.Conn().PgConn().PID()))
			require.ErrorContains(t, err, fmt.Sprintf("SELECT pg_terminate_backend(%d) ends the session", reader.Conn().PgConn().PID()))
			require.EqualValues(t, n-1, got.Messages+got.Notifications)
			_, err = reader.Exec(ctx, `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
			require.NoError(t, err)
			_, err = delivery.Recall(ctx, b.DB.Pool, id, ann, nil)
			require.ErrorIs(t, err, job.ErrLocked)
			require.ErrorContains(t, err, fmt.Sprintf("job %d by session %d of ", id, reader.Conn().PgConn().PID()))
			require.NoError(t, reader.Rollback(ctx))
			got, err = delivery.Recall(ctx, b.DB.Pool, id, ann, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, got.Messages+got.Notifications)
			require.EqualValues(t, n, one[int64](t, b, `SELECT recalled FROM belfry.jobs WHERE id = $1`, id))
		})
	}
}

// Whenever a recall ends, by cancellation or because its connections are killed, the
// job's row says exactly what is recalled, and calling again goes on to the end.
func TestRecall_GoesOnAfterItWasKilled(t *testing.T) {
	t.Parallel()
	recallKilled(t, outbox.TypePush)
}

// That of notifications does as well.
func TestFault_RecallOfNotificationsGoesOnAfterItWasKilled(t *testing.T) {
	t.Parallel()
	recallKilled(t, outbox.TypeInbox)
}

// recallKilled recalls a job of some kind, and is cut off three times between steps and once in one.
func recallKilled(t *testing.T, kind string) {
	t.Helper()
	b := setup(t, 0)
	id := b.Rest(t, kind, 27000, job.Aborted)
	taken := `SELECT (SELECT count(*) FROM belfry.messages WHERE job_id = $1 AND status = 'CANCELLED')
		+ (SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1 AND withdrawn_at IS NOT NULL)`
	var sum int64
	for try := 0; ; try++ {
		ctx, cancel := context.WithCancel(t.Context())
		got, err := delivery.Recall(ctx, b.DB.Pool, id, ann, func(delivery.RecallProgress) {
			switch {
			case try < 3:
				cancel()
			case try == 3: // while the next step is under way, or before
				b.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
			}
		})
		cancel()
		sum += got.Messages + got.Notifications
		require.Equal(t, sum, one[int64](t, b, taken, id))
		require.Equal(t, sum, one[int64](t, b, `SELECT recalled FROM belfry.jobs WHERE id = $1`, id))
		if err == nil {
			require.Greater(t, try, 2)
			break
		}
		require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, job.ErrUnreachable), "%v", err)
	}
	require.EqualValues(t, 27000, sum)
	numbers := b.recallEvents(t, id)
	require.Equal(t, int64(27000), numbers[len(numbers)-1][1])
	for i := 1; i < len(numbers); i++ {
		require.Equal(t, numbers[i-1][1], numbers[i][0], "each event goes on from the one before")
	}
}

// What a recall and its job's resume do to each other: what was recalled stays so,
// what is still to come is sent.
func TestRecall_StaysWhenTheJobIsResumed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 10, job.Aborted)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, nil)
	require.NoError(t, err)
	_, err = b.Jobs.Resume(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 11, now())`, id)
	rows, err := b.DB.Pool.Query(t.Context(), `SELECT channel_id FROM belfry.sendable_messages`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.Equal(t, []int64{11}, ids)
}

package recipients_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
)

// Nothing in any table tells of a channel that was forgotten; what was counted stays counted,
// and audits agree. The act is recorded, and not of whom.
func TestForget_LeavesNothingOfTheChannel(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	require.NoError(t, d.Run("channels opt-out", "channel", "3", "category", "popular_content", "reason", "u3 asked"))
	require.Equal(t, []string{"activities", "attempts", "channels", "events", "invalid_addresses", "job_values", "messages", "notifications", "opt_outs", "segment_members"}, d.Kept())
	d.Audited(1)
	require.NoError(t, d.Run("channels forget", "external_id", "u3", "reason", "ticket 815"))
	require.Equal(t, "erased: 1 channel, 2 opt-outs, 1 invalid address, 1 membership, 2 messages, 1 attempt, 1 notification, 1 activity\n", d.Out)
	require.EqualValues(t, 10, d.Receipt().Concerned)
	require.Empty(t, d.Kept())
	require.Equal(t, "|ann@host|", d.One(`SELECT concat_ws('|', name, actor, reason) FROM belfry.events WHERE kind = 'opted_out'`))

	for id, rows := range map[int64]int64{1: 7, 2: 7} {
		r := d.Audited(id)
		require.Equal(t, rows, r.Rows)
		require.EqualValues(t, 1, r.Job.Erased)
		require.EqualValues(t, 8, r.Job.RowsWritten)
	}
	require.Equal(t, "8|1|7", d.One(`SELECT concat_ws('|', messages, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 1`))
	require.Equal(t, "ann@host|ticket 815|1|2", d.One(`SELECT concat_ws('|', actor, reason, detail #>> '{deleted,channels}', detail #>> '{deleted,messages}')
		FROM belfry.events WHERE subject = 'channel' AND kind = 'forgotten'`))
	require.ErrorIs(t, d.Run("channels forget", "external_id", "u3"), channels.ErrNoChannel)
	require.NoError(t, d.Run("channels forget", "channel", "3"), "what is gone has left nothing")
	require.Equal(t, "erased: none\n", d.Out)
	require.NoError(t, d.Run("jobs show", "id", "1"))
	require.Regexp(t, `(?m)^erased +1 row of forgotten recipients$`, d.Out)
}

// What is counted beforehand is what is erased, and another count is refused.
func TestForget_PlanCountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	before := d.Kept()
	require.NoError(t, d.Run("channels forget", "channel", "3", "dry_run", "on"))
	var answer struct{ Plan operation.Plan }
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &answer))
	require.EqualValues(t, 9, answer.Plan.Count)
	require.Contains(t, d.Out, "one channel: would be erased: 9 rows\n")
	require.NotContains(t, d.JSON, "receipt")
	other := int64(8)
	err := d.Run("channels forget", "channel", "3", "plan", admintest.Retoken(t, answer.Plan.Token, &other, nil))
	require.Equal(t, db.KindConflict, db.KindOf(err))
	require.ErrorContains(t, err, "9 rows would be erased as of ")
	require.Equal(t, before, d.Kept())
	require.Empty(t, d.One(`SELECT coalesce(max(kind), '') FROM belfry.events WHERE kind = 'forgotten'`))
	require.NoError(t, d.Run("channels forget", "channel", "3", "plan", answer.Plan.Token))
	require.Empty(t, d.Kept())
}

// An external id goes out of lists, whatever the job's status, of what was said of them in
// revisions and events, and of schedules. Who else is listed stays, and the jobs still run.
func TestForget_LeavesNoListWithTheExternalID(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 8) n`)
	list := `'{"kind": "channels", "external_ids": ["u3", "u4"]}'`
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'push', 'operator_notice', 'x', ` + list + ` FROM generate_series(1, 3)`)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "external_ids": ["u3"]}')`)
	d.Exec(fmt.Sprintf(admintest.Walked, 1))
	d.Exec(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 1`)
	d.Exec(fmt.Sprintf(admintest.Walked, 2)) // runs, beyond the channel
	d.Exec(`SELECT belfry.abort(3)`)
	d.Exec(`SELECT belfry.set(3, '{"audience": {"kind": "channels", "external_ids": ["u3", "u5"]}}')`)
	d.Exec(`INSERT INTO belfry.schedules (name, every, template) VALUES ('daily', '1 day', '{"type": "push", "category": "operator_notice", "title": "x", "audience": {"kind": "channels", "external_ids": ["u3", "u4"]}}')`)
	d.Exec(`INSERT INTO belfry.job_revisions (job_id, revision, cursor, title, body, data, audience, edited_by) VALUES (3, 1, '1', 'x', '', '{}', ` + list + `, 'ann')`)
	require.Equal(t, []string{"channels", "events", "job_events", "job_revisions", "jobs", "schedules"}, d.Kept())
	p := d.Planned("channels forget", "external_id", "u3")
	require.Contains(t, d.Out, "6 rows")
	require.NoError(t, d.Run("channels forget", append([]string{"external_id", "u3"}, admintest.As(p)...)...))
	require.Empty(t, d.Kept())
	require.Equal(t, `["u4"]["u4"]["u5"]["(erased)"]`, d.One(`SELECT string_agg((audience -> 'external_ids')::text, '' ORDER BY id) FROM belfry.jobs`))
	require.Equal(t, "0|RUNNING", d.One(`SELECT revision || '|' || status FROM belfry.jobs WHERE id = 2`), "it is no correction")
	require.Equal(t, "4", d.One(`SELECT count(*)::text FROM belfry.job_events WHERE detail ->> 'erased' = 'audience.external_ids'`), "and is recorded without whom")
}

// The path that takes an id out of a list does nothing else, whoever takes it.
func TestForget_ItsWayIntoJobsIsNoOther(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "external_ids": ["u3", "u4"]}')`)
	d.Exec(fmt.Sprintf(admintest.Walked, 3))
	for _, audience := range []string{`{"kind": "channels", "external_ids": ["u5"]}`, `{"kind": "everyone"}`, `{"kind": "channels", "external_ids": ["u3"]}`} {
		_, err := d.DB.Pool.Exec(t.Context(), `WITH s AS MATERIALIZED (SELECT set_config('belfry.forget', 'u3', false)) UPDATE belfry.jobs SET audience = '`+audience+`' FROM s WHERE id = 3`)
		require.ErrorContains(t, err, "job 3 is RUNNING; allowed changes: none", audience)
	}

	// Nor does the setting give a role that corrects audiences the right to erase.
	operator := d.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.jobs TO :role`)
	const shrink = `WITH s AS MATERIALIZED (SELECT set_config('belfry.forget', 'u3', false)) UPDATE belfry.jobs SET audience = '{"kind": "channels", "external_ids": ["u4"]}' FROM s WHERE id = 3`
	_, err := operator.Pool.Exec(t.Context(), shrink)
	require.ErrorContains(t, err, "job 3 is RUNNING; allowed changes: none")
	member := d.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE ON belfry.jobs TO :role`,
		`GRANT EXECUTE ON FUNCTION belfry.forget_listed(text, text[], integer, interval, boolean) TO :role`)
	_, err = member.Pool.Exec(t.Context(), shrink)
	require.NoError(t, err)
}

// An erasure finds messages, values and attempts by their job or activity, so that one with any is not deleted. An
// attempt without a message, which a role that delivers can write, is found too.
func TestForget_FindsWhatHasAJob(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	for _, c := range [][2]string{{"messages", "message_rows"}, {"values", "job_values"}, {"attempts", "attempts"}} {
		_, err := d.DB.Pool.Exec(t.Context(), `DELETE FROM belfry.jobs WHERE id = 1`)
		require.ErrorContains(t, err, "job 1 has "+c[0]+" and cannot be deleted")
		d.Exec(`DELETE FROM belfry.` + c[1] + ` WHERE job_id = 1`)
	}
	d.Exec(`DELETE FROM belfry.jobs WHERE id = 1`)
	for _, then := range []string{
		`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT id, 3, 0, 1, 'push', 'unknown' FROM belfry.activities;
			DELETE FROM belfry.message_rows WHERE job_id < 0`,
		`DELETE FROM belfry.attempts WHERE job_id < 0`,
	} {
		_, err := d.DB.Pool.Exec(t.Context(), `DELETE FROM belfry.activities`)
		require.ErrorContains(t, err, "has a message or attempts and cannot be deleted")
		d.Exec(then)
	}
	d.Exec(`DELETE FROM belfry.activities`)
	d.Exec(`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome, error) VALUES (2, 3, 0, 1, 'push', 'unknown', 'busy: token')`)
	p := d.Planned("channels forget", "external_id", "u3")
	require.Regexp(t, `attempts +erased +1\n`, d.Out)
	require.NoError(t, d.Run("channels forget", append([]string{"external_id", "u3"}, admintest.As(p)...)...))
	require.Empty(t, d.Kept())
}

// A role that delivers may write any number of attempts of one message: they are erased in steps. They were erased in one
// statement, which timed out each time.
func TestForget_ErasesAttemptsInSteps(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(fmt.Sprintf(`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome)
		SELECT k, 3, 0, 1, 'push', 'unknown' FROM generate_series(1, %d), (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT id FROM belfry.activities) t (k)`,
		recipients.ForgetTries+1))
	dbtest.Bound(t, d.DB.Pool, "DELETE", "attempts", recipients.ForgetTries)
	p := d.Planned("channels forget", "external_id", "u3")
	require.Regexp(t, `attempts +erased +30,004\n`, d.Out)
	require.NoError(t, d.Run("channels forget", append([]string{"external_id", "u3"}, admintest.As(p)...)...))
	require.Contains(t, d.Out, "2 messages, 30,004 attempts, 1 notification, 1 activity")
	require.Empty(t, d.Kept())
	d.Audited(1)
}

// A role that enqueues may list a person in any number of jobs, of a megabyte each: a step ends with the list after which
// its time is over, and the next one continues there. A step took all lists of 1,000 jobs, and timed out each time.
func TestForget_TakesListsOneByOne(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	const list = `{"kind": "channels", "external_ids": ["u3", "u4"]}`
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'push', 'operator_notice', 'x', '` + list + `' FROM generate_series(1, 5)`)
	d.Exec(`UPDATE belfry.jobs SET priority = 1 WHERE id = 1`)
	d.Exec(`SELECT belfry.set(2, '{"audience": {"kind": "channels", "external_ids": ["u3", "u5"]}}'), belfry.set(2, '{"audience": {"kind": "everyone"}}')`)
	d.Exec(`INSERT INTO belfry.job_revisions (job_id, revision, cursor, title, body, data, audience, edited_by) SELECT 2, n, '1', 'x', '', '{}', '` + list + `', 'ann' FROM generate_series(1, 2) n`)
	d.Exec(`INSERT INTO belfry.schedules (name, every, template) SELECT 's' || n, '1 day', '{"type": "push", "category": "operator_notice", "title": "x", "audience": ` + list + `}' FROM generate_series(1, 3) n`)
	d.Exec(`UPDATE belfry.schedules SET every = '2 days'; DELETE FROM belfry.schedules WHERE name = 's2'`)
	// listing returns by table the number of rows that list the id.
	listing := func() (n []int64) {
		require.NoError(t, d.DB.Pool.QueryRow(t.Context(), `SELECT ARRAY[(SELECT count(*) FROM belfry.jobs WHERE audience::text ~ 'u3'),
			(SELECT count(*) FROM belfry.job_revisions WHERE audience::text ~ 'u3'), (SELECT count(*) FROM belfry.job_events WHERE detail::text ~ 'u3'),
			(SELECT count(*) FROM belfry.schedules WHERE template::text ~ 'u3'), (SELECT count(*) FROM belfry.events WHERE detail::text ~ 'u3')]`).Scan(&n))
		return n
	}
	walk := func(keys int, dry bool) (sum int64) {
		for after := []string{}; after != nil; {
			before := listing()
			var changed int64
			require.NoError(t, d.DB.Pool.QueryRow(t.Context(), recipients.Statement("ForgetListed"), pgx.StrictNamedArgs{
				"external_id": "u3", "after": after, "keys": keys, "seconds": 0.0, "dry_run": dry,
			}).Scan(&after, &changed))
			sum += changed
			for i, n := range listing() {
				if dry {
					require.Equal(t, before[i], n)
				} else {
					require.LessOrEqual(t, before[i]-n, int64(1), "one list, at %v", after)
				}
			}
		}
		return sum
	}
	require.Equal(t, []int64{4, 2, 2, 2, 4}, listing())
	require.EqualValues(t, 7, walk(1000, true), "each job and schedule once")
	require.EqualValues(t, 7, walk(1, true))
	require.EqualValues(t, 7, walk(1000, false))
	require.Equal(t, make([]int64, 5), listing())
	require.Zero(t, walk(1, false))
}

// A person's events are as many as the opt-outs and messages to the person: they are changed in steps.
func TestForget_ChangesEventsInSteps(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'channel', '3', 'opted_out', 'ann' FROM generate_series(1, 2500)`)
	dbtest.Bound(t, d.DB.Pool, "UPDATE", "events", 1000)
	require.NoError(t, d.Run("channels forget", "external_id", "u3"))
	require.Empty(t, d.Kept())
}

// A message that a relay has in flight is not taken from it: it is waited for, and until then
// the channel is found by its external id.
func TestForget_WaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r', now() + interval '1 hour', '{1}', '{3}')`)
	d.Exec(`UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 7 WHERE job_id = 1 AND channel_id = 3`)
	store := d.Env.Channels
	done, err := recipients.Forget(t.Context(), d.DB.Pool, store, 3, "u3", recipients.ForgetOptions{})
	require.ErrorIs(t, err, recipients.ErrStillSent)
	require.EqualValues(t, 1, done.Messages, "the activity's")
	require.Equal(t, []string{"attempts", "channels", "invalid_addresses", "messages", "opt_outs", "segment_members"}, d.Kept())
	require.Equal(t, "false{}", d.One(`SELECT active::text || addresses::text FROM belfry.channels WHERE id = 3`), "nothing more reaches it")

	d.Exec(`UPDATE belfry.message_rows SET status = 'SENT', sent_at = now(), lease_id = NULL WHERE job_id = 1 AND channel_id = 3`)
	d.Exec(`INSERT INTO belfry.job_deliveries (job_id, relay, sent) VALUES (1, 'r', 1)`)
	require.NoError(t, d.Run("channels forget", "external_id", "u3"))
	require.Empty(t, d.Kept())
	require.Equal(t, "8|1|0|7", d.One(`SELECT concat_ws('|', messages, sent, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 1`))
	d.Audited(1)
}

// A chunk that read the channel before it was emptied may still write its row: that is erased
// as well.
func TestForget_ErasesWhatAChunkInProgressWrites(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Enqueue("push")
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 3`)
	_, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{})
	require.ErrorIs(t, err, recipients.ErrStillSent)
	require.ErrorContains(t, err, "the run of job 3 has not ended its chunk")
	seen := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		first := true
		_, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{Act: job.Act{}, Patience: admintest.Patience, Observe: func(recipients.Forgotten) {
			if first {
				first = false
				close(seen)
			}
		}})
		ended <- err
	}()
	<-seen
	d.Exec(`BEGIN; INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT 3, n, now() FROM generate_series(1, 8) n;
		INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (3, '', 8);
		UPDATE belfry.jobs SET cursor = '8', bound = '8', chunks = 1, channels_read = 8, channels_matched = 8, rows_written = 8 WHERE id = 3; COMMIT`)
	require.NoError(t, <-ended)
	require.Empty(t, d.Kept())
	require.Equal(t, "8|1|7", d.One(`SELECT concat_ws('|', messages, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 3`))
}

// A call of the notification centre beside an erasure left the marks of the erased channel: they were written, or
// committed, after the erasure had deleted them.
func TestForget_LeavesNoMarksOfACallBesideIt(t *testing.T) {
	t.Parallel()
	beside := func(t *testing.T, d *admintest.Desk, first string, second func() error) {
		t.Helper()
		tx, err := d.DB.Pool.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(t.Context()) //nolint:errcheck // after a failure
		_, err = tx.Exec(t.Context(), first)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- second() }()
		require.Eventually(t, func() bool {
			return len(ended) > 0 || d.One(`SELECT (EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
				OR EXISTS (SELECT FROM belfry.events WHERE kind = 'forgotten'))::text`) == "true"
		}, admintest.Patience, time.Millisecond)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-ended)
	}
	for _, call := range []string{`SELECT belfry.inbox_seen(3)`, `SELECT belfry.inbox_read_all(3)`} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			d := admintest.Crowd(t)
			beside(t, d, call, func() error {
				_, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{Patience: admintest.Patience})
				return err
			})
			require.Empty(t, d.Kept(), "the call began first")

			d = admintest.Crowd(t)
			d.Exec(call)
			require.Contains(t, d.Kept(), "inbox")
			beside(t, d, `WITH n AS (DELETE FROM belfry.notifications WHERE channel_id = 3) DELETE FROM belfry.inbox WHERE channel_id = 3`, func() error {
				_, err := d.DB.Pool.Exec(t.Context(), call)
				return err
			})
			require.NotContains(t, d.Kept(), "inbox", "the erasure deleted first")
		})
	}
}

// forgetting starts the erasure of the third channel, and returns its result when the erasure has blanked the channel.
func forgetting(t *testing.T, d *admintest.Desk) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{Patience: admintest.Patience})
		ended <- err
	}()
	require.Eventually(t, func() bool { return d.One(`SELECT count(*)::text FROM belfry.channels WHERE id = 3 AND active`) == "0" },
		admintest.Patience, time.Millisecond)
	return ended
}

// A retry of a skipped recipient may have read the channel before the erasure: the job's cursor is beyond the channel.
func TestForget_WaitsForTheRetryOfASkip(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Enqueue("inbox")
	d.Exec(`INSERT INTO belfry.job_skips (job_id, key, after, error, retry) VALUES (3, '3', '2', 'x', true), (3, '5', '4', 'x', true)`)
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now(), cursor = '8', bound = '8' WHERE id = 3`)
	ended := forgetting(t, d)
	select { // the run has read the channel and locked nothing yet
	case err := <-ended:
		require.FailNow(t, "it does not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	d.Exec(`WITH s AS (DELETE FROM belfry.job_skips WHERE job_id = 3 AND key = '3'), n AS (INSERT INTO belfry.notifications (channel_id, arrival) SELECT 3, arrival FROM belfry.jobs WHERE id = 3)
		UPDATE belfry.jobs SET heartbeat_at = now() WHERE id = 3`)
	require.NoError(t, <-ended, "the other skip is not waited for")
	require.Empty(t, d.Kept())
	require.Equal(t, "1", d.One(`SELECT erased::text FROM belfry.jobs WHERE id = 3`))
}

// A transaction that has read the channel or its source, and writes rows of the channel later: a firing with values, an
// activity. One that does not end is an error, and the erasure can be repeated by the external id.
func TestForget_WaitsForTransactionsThatBeganBefore(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`INSERT INTO belfry.schedules (name, every, template) VALUES ('s', '1 day', '{"type": "push", "category": "operator_notice", "title": "x"}')`)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())                                                            //nolint:errcheck // after a failure
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.schedules WHERE name = 's' FOR UPDATE`) // then its query
	require.NoError(t, err)
	reader, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer reader.Rollback(t.Context()) //nolint:errcheck // it only reads
	_, err = reader.Exec(t.Context(), `SELECT FROM belfry.jobs`)
	require.NoError(t, err)

	done, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{})
	require.ErrorIs(t, err, recipients.ErrStillSent)
	require.ErrorContains(t, err, fmt.Sprintf("a transaction (pid %d) that writes belfry's tables began before and has not ended", tx.Conn().PgConn().PID()))
	require.EqualValues(t, 2, done.Messages, "what was there is erased")

	ended := forgetting(t, d)
	_, err = tx.Exec(t.Context(), `WITH j AS (INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', '{{value.a}}') RETURNING id)
		SELECT FROM j`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO belfry.job_values (job_id, channel_id, value) SELECT max(id), 3, '{"a": "u3"}' FROM belfry.jobs`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.notify(3, 'activity', 'x')`)
	require.NoError(t, err)
	require.Empty(t, ended)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-ended, "a transaction that only reads is not waited for")
	require.Empty(t, d.Kept())
}

// A transaction held its locks of belfry's tables no longer after a rollback to a savepoint, and wrote the channel's rows when
// the erasure had ended.
func TestForget_WaitsForATransactionThatRolledBackToASavepoint(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // after a failure
	sub, err := tx.Begin(t.Context())
	require.NoError(t, err)
	_, err = sub.Exec(t.Context(), `SELECT belfry.notify(3, 'activity', 'x')`)
	require.NoError(t, err)
	ended := forgetting(t, d)
	waits(t, ended)
	require.NoError(t, sub.Rollback(t.Context()))
	waits(t, ended)
	_, err = tx.Exec(t.Context(), `SELECT belfry.notify(3, 'activity', 'x')`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-ended)
	require.Empty(t, d.Kept())
}

// waits requires that an erasure takes no notice of what has changed.
func waits(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		require.FailNow(t, "it does not wait", "%v", err)
	case <-time.After(250 * time.Millisecond): // it looks each 100 ms
	}
}

// A prepared transaction has another virtual id than the session that prepared it, and no process.
func TestFault_ForgetWaitsForAPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, false)
	base, ctx := dbtest.NewOn(t, server), t.Context()
	_, err := base.Pool.Exec(ctx, `ALTER SYSTEM SET max_prepared_transactions = 5`)
	require.NoError(t, err)
	base.Pool.Reset()
	require.NoError(t, server.Stop(ctx, pgserver.Fast))
	require.NoError(t, server.Start(ctx))
	store, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	_, err = base.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 8) n`)
	require.NoError(t, err)

	// One writes before the erasure looks, the other has only locked a table then, and has no id.
	for channel, first := range map[int64]string{
		3: `SELECT belfry.notify(3, 'activity', 'x')`,
		4: `LOCK TABLE belfry.activities IN ROW EXCLUSIVE MODE`,
	} {
		conn, err := base.Pool.Acquire(ctx)
		require.NoError(t, err)
		t.Cleanup(conn.Release)
		exec := func(sql string) {
			_, err := conn.Exec(ctx, sql)
			require.NoError(t, err, sql)
		}
		exec(`BEGIN; SET LOCAL belfry.bell = off; ` + first)
		ended := make(chan error, 1)
		go func() {
			_, err := recipients.Forget(ctx, base.Pool, store, channel, "", recipients.ForgetOptions{Patience: admintest.Patience})
			ended <- err
		}()
		waits(t, ended)
		exec(fmt.Sprintf(`SELECT belfry.notify(%d, 'activity', 'x'); PREPARE TRANSACTION 'x%[1]d'`, channel))
		waits(t, ended)
		exec(fmt.Sprintf(`COMMIT PREPARED 'x%d'`, channel))
		require.NoError(t, <-ended)
		var left int
		require.NoError(t, base.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.activities WHERE channel_id = $1)
			+ (SELECT count(*) FROM belfry.notifications WHERE channel_id = $1)
			+ (SELECT count(*) FROM belfry.messages WHERE channel_id = $1) + (SELECT count(*) FROM belfry.channels WHERE id = $1)`, channel).Scan(&left))
		require.Zero(t, left, first)
	}
}

// An application that still notifies the channel leaves no notification whose activity was erased.
func TestForget_LeavesNoNotificationWithoutItsActivity(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	for at := 1; at <= 12; at++ { // between each two of its steps
		steps := 0
		_, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, 3, "u3", recipients.ForgetOptions{Observe: func(recipients.Forgotten) {
			if steps++; steps == at {
				d.Exec(`SELECT belfry.notify(3, 'activity', 'x', route => '{}')`)
			}
		}})
		require.NoError(t, err)
		require.Equal(t, "0", d.One(`SELECT count(*)::text FROM belfry.notifications n WHERE n.channel_id = 3
			AND NOT EXISTS (SELECT FROM belfry.activities a WHERE a.id = -n.arrival) AND NOT EXISTS (SELECT FROM belfry.jobs j WHERE j.arrival = n.arrival)`), at)
	}
}

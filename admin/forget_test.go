package admin_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// one reads a single text.
func (d *desk) one(statement string) (text string) {
	d.t.Helper()
	require.NoError(d.t, d.db.Pool.QueryRow(d.t.Context(), statement).Scan(&text))
	return text
}

// walked pretends that a run has walked a job of eight channels, with a row for each.
const walked = `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = %[1]d;
UPDATE belfry.jobs SET cursor = '8', bound = '8', chunks = 1, channels_read = 8, channels_matched = 8, rows_written = 8 WHERE id = %[1]d`

// crowd makes eight channels, of whom the third has everything that somebody may have.
func crowd(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t)
	d.exec(`INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'u' || n, 'ios', '{"push": "token"}' FROM generate_series(1, 8) n`)
	d.exec(`UPDATE belfry.channels SET created_at = now() - interval '1 day', updated_at = now() - interval '1 day'`)
	d.enqueue("push") // 1: walked, delivered in part
	d.enqueue("inbox")
	for id := 1; id <= 2; id++ {
		d.exec(fmt.Sprintf(walked, id))
		d.exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = %d`, id))
	}
	d.exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 1, n, now() FROM generate_series(1, 8) n`)
	d.exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (1, '', 8)`)
	d.exec(`INSERT INTO belfry.notifications (job_id, channel_id) SELECT 2, n FROM generate_series(1, 8) n`)
	d.exec(`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome, error) VALUES (1, 3, 0, 1, 'push', 'retryable', 'busy: token')`)
	d.exec(`SELECT belfry.opt_out(3, '*', 'sms', 'asked for it')`)
	d.exec(`INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (3, 'push', decode(repeat('00', 32), 'hex'))`)
	d.exec(`INSERT INTO belfry.segments (name) VALUES ('beta')`)
	d.exec(`INSERT INTO belfry.segment_members VALUES ('beta', 3), ('beta', 4)`)
	d.exec(`SELECT belfry.send(3, 'activity', 'Kim likes your answer')`)
	return d
}

// kept are the rows in which a table mentions the third channel or its external id.
func (d *desk) kept() (list []string) {
	d.t.Helper()
	rows, err := d.db.Pool.Query(d.t.Context(), `
SELECT t.what FROM (
    SELECT 'channels' AS what, to_jsonb(x) AS r FROM belfry.channels x UNION ALL SELECT 'opt_outs', to_jsonb(x) FROM belfry.opt_outs x
    UNION ALL SELECT 'invalid_addresses', to_jsonb(x) FROM belfry.invalid_addresses x UNION ALL SELECT 'segment_members', to_jsonb(x) FROM belfry.segment_members x
    UNION ALL SELECT 'messages', to_jsonb(x) FROM belfry.messages x UNION ALL SELECT 'attempts', to_jsonb(x) FROM belfry.attempts x
    UNION ALL SELECT 'notifications', to_jsonb(x) FROM belfry.notifications x UNION ALL SELECT 'activities', to_jsonb(x) FROM belfry.activities x
    UNION ALL SELECT 'jobs', to_jsonb(x) FROM belfry.jobs x UNION ALL SELECT 'job_revisions', to_jsonb(x) FROM belfry.job_revisions x
    UNION ALL SELECT 'job_events', to_jsonb(x) FROM belfry.job_events x UNION ALL SELECT 'schedules', to_jsonb(x) FROM belfry.schedules x
    UNION ALL SELECT 'events', to_jsonb(x) FROM belfry.events x) t
 WHERE t.r ->> 'channel_id' = '3' OR t.r ->> 'name' = '3' OR t.r ->> 'reason' LIKE 'u3 %' OR t.r::text LIKE '%"u3"%' OR t.r::text LIKE '%busy: token%' GROUP BY 1 ORDER BY 1`)
	require.NoError(d.t, err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(d.t, err)
	return list
}

// audited wants a job's accounts to agree with its rows.
func (d *desk) audited(id int64) delivery.Report {
	d.t.Helper()
	store, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(d.t, err)
	r, err := delivery.Audit(d.t.Context(), d.db.Pool, store, id, delivery.AuditOptions{})
	require.NoError(d.t, err)
	require.True(d.t, r.Agree, r.Disagreements)
	return r
}

// Nothing in any table tells of a channel that was forgotten; what was counted stays counted,
// and audits agree. The act is recorded, and not of whom.
func TestForget_LeavesNothingOfTheChannel(t *testing.T) {
	t.Parallel()
	d := crowd(t)
	require.NoError(t, d.run("channels opt-out", "channel", "3", "category", "popular_content", "reason", "u3 asked"))
	require.Equal(t, []string{"activities", "attempts", "channels", "events", "invalid_addresses", "messages", "notifications", "opt_outs", "segment_members"}, d.kept())
	d.audited(1)
	require.NoError(t, d.run("channels forget", "external_id", "u3", "reason", "ticket 815"))
	require.Equal(t, "erased: 1 channel, 2 opt-outs, 1 invalid address, 1 membership, 2 messages, 1 attempt, 1 notification, 1 activity\n", d.out)
	require.EqualValues(t, 10, d.receipt().Concerned)
	require.Empty(t, d.kept())
	require.Equal(t, "|ann@host|", d.one(`SELECT concat_ws('|', name, actor, reason) FROM belfry.events WHERE kind = 'opted_out'`))

	for id, rows := range map[int64]int64{1: 7, 2: 7} {
		r := d.audited(id)
		require.Equal(t, rows, r.Rows)
		require.EqualValues(t, 1, r.Job.Erased)
		require.EqualValues(t, 8, r.Job.RowsWritten)
	}
	require.Equal(t, "8|1|7", d.one(`SELECT concat_ws('|', messages, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 1`))
	require.Equal(t, "ann@host|ticket 815|1|2", d.one(`SELECT concat_ws('|', actor, reason, detail #>> '{deleted,channels}', detail #>> '{deleted,messages}')
		FROM belfry.events WHERE subject = 'channel' AND kind = 'forgotten'`))
	require.ErrorIs(t, d.run("channels forget", "external_id", "u3"), channels.ErrNoChannel)
	require.NoError(t, d.run("channels forget", "channel", "3"), "what is gone has left nothing")
	require.Equal(t, "erased: none\n", d.out)
	require.NoError(t, d.run("jobs show", "id", "1"))
	require.Regexp(t, `(?m)^erased +1 row of people who were forgotten$`, d.out)
}

// What is counted beforehand is what is erased, and another count is refused.
func TestForget_PlanCountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	d := crowd(t)
	before := d.kept()
	require.NoError(t, d.run("channels forget", "channel", "3", "dry_run", "on"))
	var answer struct{ Plan admin.Plan }
	require.NoError(t, json.Unmarshal([]byte(d.json), &answer))
	require.EqualValues(t, 9, answer.Plan.Count)
	require.Contains(t, d.out, "one channel: would be erased: 9 rows\n")
	require.NotContains(t, d.json, "receipt")
	other := int64(8)
	err := d.run("channels forget", "channel", "3", "plan", admin.Retoken(answer.Plan.Token, &other, nil))
	require.Equal(t, errkind.Conflict, errkind.Of(err))
	require.ErrorContains(t, err, "9 rows would be erased as of ")
	require.Equal(t, before, d.kept())
	require.Empty(t, d.one(`SELECT coalesce(max(kind), '') FROM belfry.events WHERE kind = 'forgotten'`))
	require.NoError(t, d.run("channels forget", "channel", "3", "plan", answer.Plan.Token))
	require.Empty(t, d.kept())
}

// An external id goes out of lists, whatever the job's status, of what was said of them in
// revisions and events, and of schedules. Who else is listed stays, and the jobs still run.
func TestForget_LeavesNoListWithTheExternalID(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 8) n`)
	list := `'{"kind": "channels", "external_ids": ["u3", "u4"]}'`
	d.exec(`INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'push', 'operator_notice', 'x', ` + list + ` FROM generate_series(1, 3)`)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "external_ids": ["u3"]}')`)
	d.exec(fmt.Sprintf(walked, 1))
	d.exec(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 1`)
	d.exec(fmt.Sprintf(walked, 2)) // runs, beyond the channel
	d.exec(`SELECT belfry.abort(3)`)
	d.exec(`SELECT belfry.set(3, '{"audience": {"kind": "channels", "external_ids": ["u3", "u5"]}}')`)
	d.exec(`INSERT INTO belfry.schedules (name, every, template) VALUES ('daily', '1 day', '{"type": "push", "category": "operator_notice", "title": "x", "audience": {"kind": "channels", "external_ids": ["u3", "u4"]}}')`)
	d.exec(`INSERT INTO belfry.job_revisions (job_id, revision, cursor, title, body, data, audience, edited_by) VALUES (3, 1, '1', 'x', '', '{}', ` + list + `, 'ann')`)
	require.Equal(t, []string{"channels", "events", "job_events", "job_revisions", "jobs", "schedules"}, d.kept())
	p := d.planned("channels forget", "external_id", "u3")
	require.Contains(t, d.out, "6 rows")
	require.NoError(t, d.run("channels forget", append([]string{"external_id", "u3"}, as(p)...)...))
	require.Empty(t, d.kept())
	require.Equal(t, `["u4"]["u4"]["u5"]["(erased)"]`, d.one(`SELECT string_agg((audience -> 'external_ids')::text, '' ORDER BY id) FROM belfry.jobs`))
	require.Equal(t, "0|RUNNING", d.one(`SELECT revision || '|' || status FROM belfry.jobs WHERE id = 2`), "it is no correction")
	require.Equal(t, "4", d.one(`SELECT count(*)::text FROM belfry.job_events WHERE detail ->> 'erased' = 'audience.external_ids'`), "and is recorded without whom")
}

// The path that takes an id out of a list does nothing else, whoever takes it.
func TestForget_ItsWayIntoJobsIsNoOther(t *testing.T) {
	t.Parallel()
	d := crowd(t)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "external_ids": ["u3", "u4"]}')`)
	d.exec(fmt.Sprintf(walked, 3))
	for _, audience := range []string{`{"kind": "channels", "external_ids": ["u5"]}`, `{"kind": "everyone"}`, `{"kind": "channels", "external_ids": ["u3"]}`} {
		_, err := d.db.Pool.Exec(t.Context(), `WITH s AS MATERIALIZED (SELECT set_config('belfry.forget', 'u3', false)) UPDATE belfry.jobs SET audience = '`+audience+`' FROM s WHERE id = 3`)
		require.ErrorContains(t, err, "job 3 is RUNNING; allowed changes: none", audience)
	}
}

// A message that a relay has in flight is not taken from it: it is waited for, and until then
// the channel is found by its external id.
func TestForget_WaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	d := crowd(t)
	d.exec(`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r', now() + interval '1 hour', '{1}', '{3}')`)
	d.exec(`UPDATE belfry.messages SET status = 'PROCESSING', lease_id = 7 WHERE job_id = 1 AND channel_id = 3`)
	store := d.env.Channels
	done, err := delivery.Forget(t.Context(), d.db.Pool, store, 3, "u3", delivery.ForgetOptions{})
	require.ErrorIs(t, err, delivery.ErrStillSent)
	require.EqualValues(t, 1, done.Messages, "the activity's")
	require.Equal(t, []string{"attempts", "channels", "invalid_addresses", "messages", "opt_outs", "segment_members"}, d.kept())
	require.Equal(t, "false{}", d.one(`SELECT active::text || addresses::text FROM belfry.channels WHERE id = 3`), "nothing more reaches it")

	d.exec(`UPDATE belfry.messages SET status = 'SENT', sent_at = now(), lease_id = NULL WHERE job_id = 1 AND channel_id = 3`)
	d.exec(`INSERT INTO belfry.job_deliveries (job_id, relay, sent) VALUES (1, 'r', 1)`)
	require.NoError(t, d.run("channels forget", "external_id", "u3"))
	require.Empty(t, d.kept())
	require.Equal(t, "8|1|0|7", d.one(`SELECT concat_ws('|', messages, sent, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 1`))
	d.audited(1)
}

// A chunk that read the channel before it was emptied may still write its row: that is erased
// as well.
func TestForget_ErasesWhatAChunkInProgressWrites(t *testing.T) {
	t.Parallel()
	d := crowd(t)
	d.enqueue("push")
	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 3`)
	_, err := delivery.Forget(t.Context(), d.db.Pool, d.env.Channels, 3, "u3", delivery.ForgetOptions{})
	require.ErrorIs(t, err, delivery.ErrStillSent)
	require.ErrorContains(t, err, "the run of job 3 has not ended its chunk")
	seen := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		first := true
		_, err := delivery.Forget(t.Context(), d.db.Pool, d.env.Channels, 3, "u3", delivery.ForgetOptions{Act: job.Act{}, Patience: patience, Observe: func(delivery.Forgotten) {
			if first {
				first = false
				close(seen)
			}
		}})
		ended <- err
	}()
	<-seen
	d.exec(`BEGIN; INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 3, n, now() FROM generate_series(1, 8) n;
		INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (3, '', 8);
		UPDATE belfry.jobs SET cursor = '8', bound = '8', chunks = 1, channels_read = 8, channels_matched = 8, rows_written = 8 WHERE id = 3; COMMIT`)
	require.NoError(t, <-ended)
	require.Empty(t, d.kept())
	require.Equal(t, "8|1|7", d.one(`SELECT concat_ws('|', messages, cancelled, waiting) FROM belfry.job_progress WHERE job_id = 3`))
}

// patience bounds every wait for a state; nothing normally takes that long.
const patience = time.Minute

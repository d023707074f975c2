package outbox_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// dueSQL is what a relay may take: due messages of every job that is not held, by due
// time within a job, in bounded number.
const dueSQL = `SELECT d.job_id, d.channel_id
  FROM belfry.sendable_jobs s
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.next_attempt_at
                       FROM belfry.sendable_messages m
                      WHERE m.job_id = s.job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.next_attempt_at <= statement_timestamp()
                      ORDER BY m.next_attempt_at, m.channel_id
                      LIMIT 100
                        FOR UPDATE SKIP LOCKED) d
 ORDER BY d.next_attempt_at
 LIMIT 100`

func (b *bundle) claimed(t *testing.T, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) (jobs map[int64]int) {
	t.Helper()
	rows, err := on.Query(t.Context(), dueSQL)
	require.NoError(t, err)
	jobs = make(map[int64]int)
	var id, channel int64
	_, err = pgx.ForEachRow(rows, []any{&id, &channel}, func() error {
		jobs[id]++
		return nil
	})
	require.NoError(t, err)
	return jobs
}

// I6: nothing of an ABORTED job is due, and all of it again when it is resumed.
func TestSendable_HoldsTheMessagesOfAbortedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	aborted := b.Rest(t, outbox.TypePush, 20, job.Aborted)
	done := b.Rest(t, outbox.TypePush, 7, job.Processed)
	failed := b.Rest(t, outbox.TypePush, 5, job.Failed)
	later := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1`, later)
	b.States(t, failed, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD")
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (1000000, 1, now())`) // of no job
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, b.DB.Pool))
	for id, n := range map[int64]int64{aborted: 0, failed: 3} { // the look right before the call
		require.Equal(t, n, one[int64](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id))
	}

	// A relay's claim keeps no job locked: an abort goes through beside it, and the
	// look right before the call finds the message held.
	relay, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, relay))
	b.Exec(t, `UPDATE belfry.jobs SET title = title WHERE id IN ($1, $2)`, done, failed)
	require.NoError(t, relay.Rollback(t.Context()))

	_, err = b.jobs.Resume(t.Context(), job.One(aborted), job.Act{})
	require.NoError(t, err)
	require.Equal(t, map[int64]int{aborted: 20, done: 7, failed: 1}, b.claimed(t, b.DB.Pool))
	_, err = b.jobs.Abort(t.Context(), job.One(aborted), job.Act{})
	require.NoError(t, err)
	require.Equal(t, map[int64]int{done: 7, failed: 1}, b.claimed(t, b.DB.Pool))
}

// I13: a relay's claim costs the same however many messages are held.
func TestLong_HeldMessagesCostAClaimNothing(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	b.Rest(t, outbox.TypePush, 50000, job.Aborted)
	done := b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.Exec(t, `ANALYZE belfry.message_rows`)
	b.Exec(t, `ANALYZE belfry.jobs`)
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(one[[]byte](t, b, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+dueSQL), &plan))
	require.Less(t, plan[0].Plan.Hit+plan[0].Plan.Read, 200)
	require.Equal(t, map[int64]int{done: 10}, b.claimed(t, b.DB.Pool))

	for range 3 { // among other jobs at rest
		b.Rest(t, outbox.TypeInbox, 10, job.Processed)
		b.Rest(t, outbox.TypePush, 10, job.Aborted)
	}
	b.JobsThatWait(t, 2000)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.message_rows", "belfry.jobs")
	var out strings.Builder
	outboxtest.Plan(t, b.DB.Pool, &out, "what is due", "EXPLAIN (COSTS OFF) "+dueSQL)
	outboxtest.Plan(t, b.DB.Pool, &out, "a relay's look before the call", `EXPLAIN (COSTS OFF) SELECT FROM belfry.sendable_messages WHERE job_id = 5 AND channel_id = 7 AND status = 'PROCESSING' AND lease_id = 3`)
	require.NotContains(t, out.String(), "Seq Scan on message_rows")
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain_sendable.golden", out.String())
	}
}

// Roles that deliver write the counts of a job. Counts that had no message left made an abort do
// nothing, and counts beyond a bigint made it, and every list of jobs, fail.
func TestAbort_DecidesByTheMessages(t *testing.T) {
	t.Parallel()
	for name, counts := range map[string]string{
		"none left": `INSERT INTO belfry.job_deliveries (job_id, relay, written, cancelled) VALUES ($1, 'evil', 0, 100000)`,
		"dead":      `INSERT INTO belfry.job_deliveries (job_id, relay, dead) VALUES ($1, 'evil', 1000000000000)`,
		"overflow":  `INSERT INTO belfry.job_deliveries (job_id, relay, written) SELECT $1, 'evil ' || g, 1000000000000 FROM generate_series(1, 3) g`,
		"full":      `UPDATE belfry.job_deliveries SET written = 1000000000000, cancelled = 1000000000000, dead = 1000000000000 WHERE job_id = $1`,
	} {
		for _, in := range []string{"PENDING", "QUEUED", "PROCESSING", "receipt", "no lease"} {
			t.Run(name+" "+in, func(t *testing.T) {
				t.Parallel()
				b := setup(t, 3)
				id := b.Rest(t, outbox.TypePush, 3, job.Processed)
				deliver := b.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE ON belfry.job_deliveries TO :role`)
				b.Exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now() WHERE job_id = $1 AND channel_id < 3`, id)
				switch in {
				case "QUEUED":
					b.Exec(t, `UPDATE belfry.message_rows SET status = 'QUEUED', push = 1 WHERE job_id = $1 AND channel_id = 3`, id)
				case "PROCESSING":
					b.Exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r', now() + interval '1 hour', ARRAY[$1::bigint], '{3}')`, id)
					b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 7 WHERE job_id = $1 AND channel_id = 3`, id)
				case "no lease":
					b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 4711 WHERE job_id = $1 AND channel_id = 3`, id)
				case "receipt":
					b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', receipt = 'x' WHERE job_id = $1 AND channel_id = 3`, id)
				}
				_, err := deliver.Pool.Exec(bg, `INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES ($1, 'evil', 9223372036854775807)`, id)
				require.ErrorContains(t, err, "job_deliveries_counts_check")
				_, err = deliver.Pool.Exec(bg, counts, id)
				require.NoError(t, err)

				one[int64](t, b, `SELECT sum(messages + sent + dead + cancelled + waiting)::bigint FROM belfry.job_progress`)
				require.Equal(t, "ABORTED", one[string](t, b, `SELECT status FROM belfry.abort($1, 'ann')`, id))
				require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id))
			})
		}
	}
}

// A role that delivers may lock the counts and the leases. An abort that cannot read them holds the job.
func TestAbort_HoldsAJobWhoseCountsAreLocked(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"job_deliveries", "leases"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 3)
			id := b.Rest(t, outbox.TypePush, 3, job.Processed)
			b.Exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r', now() + interval '1 hour', ARRAY[$1::bigint], '{3}')`, id)
			b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 7 WHERE job_id = $1`, id)
			b.Exec(t, `DELETE FROM belfry.job_deliveries`)
			deliver := b.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE ON belfry.job_deliveries, belfry.leases TO :role`)
			tx, err := deliver.Pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(bg)) }()
			_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.`+table)
			require.NoError(t, err)
			done, err := b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
			require.NoError(t, err)
			require.NotEmpty(t, done)
			require.Equal(t, "ABORTED", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, id))
		})
	}
}

// Rows that roles of runs and deliveries may write made operators' lists fail.
func TestTables_RejectRowsThatListsCannotRead(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Rest(t, outbox.TypePush, 0, job.Processed)
	for sql, constraint := range map[string]string{
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '{"a": 1}')`:                                                                                        "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[null]')`:                                                                                          "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[[{}]]')`:                                                                                          "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[{}, {"name": null}]')`:                                                                            "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[{"waiting": 0.5}]')`:                                                                              "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[{"waiting": []}]')`:                                                                               "relays_limits_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', '[{"name": "a", "sent_per_second": 1e1000}]')`:                                                      "relays_limits_check",
		`INSERT INTO belfry.relays (name, media) VALUES ('evil', '{NULL}')`:                                                                                           "relays_lists_check",
		`INSERT INTO belfry.relays (name, senders) SELECT 'evil', array_agg(g::text) FROM generate_series(1, 101) g`:                                                  "relays_lists_check",
		`INSERT INTO belfry.relays (name, media) SELECT 'evil', array_agg(g::text) FROM generate_series(1, 101) g`:                                                    "relays_lists_check",
		`INSERT INTO belfry.relays (name, limits) SELECT 'evil', jsonb_agg('{}'::jsonb) FROM generate_series(1, 101) g`:                                               "relays_limits_check",
		`INSERT INTO belfry.relays (name, transactions) VALUES ('evil', 9223372036854775807)`:                                                                         "relays_counts_check",
		`INSERT INTO belfry.relays (name, heartbeat_at) VALUES ('evil', 'infinity')`:                                                                                  "relays_times_check",
		`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) VALUES ('bulk', 'x', 'evil', '-infinity')`:                                              "queues_times_check",
		`UPDATE belfry.jobs SET started_at = '294276-12-31'`:                                                                                                          "jobs_times_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, step) VALUES (1, 1, now(), -1)`:                                                        "messages_counts_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (1, 1, '-infinity')`:                                                            "messages_times_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, sent_at) VALUES (1, 1, now(), 'infinity')`:                                             "messages_times_check",
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES (1, '{1}', '{1}', '{-1}')`:                                                       "handovers_steps_check",
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES (1, '{1, 1}', '{1, 2}', '{0, NULL}')`:                                            "handovers_steps_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, attempts) VALUES (1, 1, now(), 10001)`:                                                 "messages_counts_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, step) VALUES (1, 1, now(), 10001)`:                                                     "messages_counts_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, crashes) VALUES (1, 1, now(), 10001)`:                                                  "messages_counts_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, last_error) VALUES (1, 1, now(), repeat('x', 4001))`:                                   "messages_lengths_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, receipt) VALUES (1, 1, now(), repeat('x', 4001))`:                                      "messages_lengths_check",
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, sender) VALUES (1, 1, now(), repeat('x', 4001))`:                                       "messages_lengths_check",
		`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES (1, 1, 0, 0, repeat('x', 1001), 'crashed')`:                          "attempts_lengths_check",
		`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome, reason) VALUES (1, 1, 0, 0, 'push', 'crashed', repeat('x', 1001))`:          "attempts_lengths_check",
		`INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, error) VALUES (1, 'push', sha256('x'), repeat('x', 4001))`:                                 "invalid_addresses_lengths_check",
		`INSERT INTO belfry.job_deliveries (job_id, relay) VALUES (1, repeat('x', 1001))`:                                                                             "job_deliveries_relay_check",
		`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (1, repeat('x', 1001), now(), '{1}', '{1}')`:                                  "leases_relay_check",
		`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (1, 'evil', now() + interval '61 minutes', '{1}', '{1}')`:                     "leases_expires_at_check",
		`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) SELECT 1, 'evil', now(), array_agg(g), array_agg(g) FROM generate_series(1, 1001) g`: "leases_keys_check",
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) SELECT 1, array_agg(g), array_agg(g), array_agg(0) FROM generate_series(1, 11001) g`:    "handovers_keys_check",
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES (1, '{1}', '{1, 2}', '{0}')`:                                                     "handovers_keys_check",
		`INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons) VALUES (1, '{1}', '{1}', '{0}', '{a,b}')`:                                      "handovers_keys_check",
		`INSERT INTO belfry.relays (name, transport) VALUES ('evil', repeat('x', 64))`:                                                                                "is not the name of a transport",
		`INSERT INTO belfry.relays (name, transport) VALUES ('evil', '')`:                                                                                             "is not the name of a transport",
		`INSERT INTO belfry.relays (name) SELECT 'evil ' || g FROM generate_series(1, 2001) g`:                                                                        "2000 relays have a heartbeat",
		`INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (1, 'no medium', sha256('x'))`:                                                      "is not the name of a medium",
		`INSERT INTO belfry.relays (name, senders) VALUES ('evil', ARRAY[repeat('x', 20001)])`:                                                                        "relays_lengths_check",
		`INSERT INTO belfry.relays (name, limits) VALUES ('evil', jsonb_build_array(jsonb_build_object('name', repeat('x', 60001))))`:                                 "relays_lengths_check",
		`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) VALUES ('bulk', repeat('x', 1001), 'evil', now())`:                                      "queues_lengths_check",
	} {
		_, err := b.DB.Pool.Exec(bg, sql)
		require.ErrorContains(t, err, constraint, sql)
	}
	b.Exec(t, `INSERT INTO belfry.relays (name, limits) VALUES ('good', '[{"name": "a", "waiting": 3, "concurrency": 1e3, "rate_per_second": 0.5, "of another version": [1]}, {}]'), ('none', '[]')`)
	b.Exec(t, `INSERT INTO belfry.relays (name, heartbeat_at) SELECT 'silent ' || g, now() - interval '2 minutes' FROM generate_series(1, 1998) g`)
	b.Exec(t, `INSERT INTO belfry.relays (name) VALUES ('next')`)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.relays`), "relays without a heartbeat make room")
}

// Counts at their maximum, which a role that delivers can write, stop neither claims nor settlements nor
// recoveries.
func TestClaim_TakesMessagesWithTheHighestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 10000, attempts = 10000, crashes = 10000 WHERE channel_id < 3`)
	claimed := claim(t, l, id, 3)
	again := outbox.Settlement{
		Claimed: claimed[0], To: outbox.Pending, Reason: outbox.ReasonRetry, NextStep: claimed[0].Step, NextAttempts: claimed[0].Attempts + 1,
	}
	statuses, err := l.Settle(bg, []outbox.Settlement{again, sent(claimed[2])}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Pending, outbox.Sent}, statuses)
	handOver(t, l, claimed[1:2], nil)
	b.expire(t, claimed[0].LeaseID)
	require.NoError(t, recoverAll(l))
	require.Equal(t, map[string]int{"PENDING": 2, "SENT": 1}, b.Statuses(t, id))
}

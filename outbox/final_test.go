package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// deliverer returns a role that has of messages and jobs what docs/roles.md grants for `deliver`.
func deliverer(t *testing.T, db *dbtest.DB) *dbtest.DB {
	t.Helper()
	return db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO :role`,
		`GRANT UPDATE (abort_requested, delivered_at) ON belfry.jobs TO :role`,
		`GRANT UPDATE (status, next_attempt_at, attempts, sent_at, last_error, step, crashes, lease_id, receipt, reason, revision, sender, push) ON belfry.message_rows TO :role`)
}

// A role that delivers once set messages back to PENDING that were SENT, which relays then sent again.
func TestMessages_FinalOnesAreNotForRelaysToChange(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	deliver := deliverer(t, b.DB)
	for _, final := range []outbox.Status{outbox.Sent, outbox.Dead, outbox.Cancelled} {
		b.Exec(t, `UPDATE belfry.message_rows SET status = $2, reason = 'x', sent_at = now() WHERE job_id = $1`, id, string(final))
		for _, change := range []string{
			`status = 'PENDING'`, `status = 'QUEUED', push = 1`, `status = 'PROCESSING', lease_id = 1`, `status = 'PROCESSING', receipt = 'x'`,
			`status = CASE status WHEN 'SENT' THEN 'DEAD' ELSE 'SENT' END`, `sent_at = '2020-01-01'`, `sender = 'another'`,
		} {
			_, err := deliver.Pool.Exec(bg, `UPDATE belfry.message_rows SET `+change+` WHERE job_id = $1`, id)
			require.ErrorContains(t, err, "is "+string(final)+", which is final for "+deliver.User, "%s: %s", final, change)
		}
		require.Equal(t, string(final), one[string](t, b, `SELECT status FROM belfry.messages WHERE job_id = $1`, id))
	}
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'PENDING', reason = NULL WHERE job_id = $1`, id)
	for _, to := range []string{`'PROCESSING', lease_id = 1`, `'PENDING', attempts = 1`, `'QUEUED', push = 1`, `'PROCESSING', lease_id = 1`, `'DEAD', reason = 'x'`} {
		_, err := deliver.Pool.Exec(bg, `UPDATE belfry.message_rows SET status = `+to+` WHERE job_id = $1`, id)
		require.NoError(t, err, to)
	}
}

// A role that delivers may abort a job, and once cleared the abort of an operator.
func TestAbort_IsNotForRelaysToUndo(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	deliver := deliverer(t, b.DB)
	_, err := deliver.Pool.Exec(bg, `SELECT belfry.abort($1, 'relay')`, id)
	require.NoError(t, err)
	for _, undo := range []string{`UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, `SELECT belfry.resume($1, 'relay')`} {
		_, err = deliver.Pool.Exec(bg, undo, id)
		require.ErrorContains(t, err, "may abort jobs and not resume them")
	}
	require.Equal(t, "ABORTED", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, id))

	operate := b.DB.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE (abort_requested, status) ON belfry.jobs TO :role`)
	_, err = operate.Pool.Exec(bg, `SELECT belfry.resume($1, 'ann')`, id)
	require.NoError(t, err)
	require.Equal(t, "PROCESSED", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, id))
}

// A role that delivers could return a message that a provider had accepted to PENDING: it was sent twice, and no
// attempt told of it.
func TestMessages_AwaitedReceiptIsGivenUpWithARecordOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	deliver := deliverer(t, b.DB)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = NULL, receipt = 'r1' WHERE job_id = $1`, id)
	record := func(outcome string) {
		b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome)
			SELECT job_id, channel_id, 0, 1, 'push', $2 FROM belfry.messages WHERE job_id = $1`, id, outcome)
	}
	again := []string{`status = 'PENDING', receipt = NULL`, `receipt = NULL, lease_id = 1`, `receipt = 'r2'`, `status = 'DEAD', reason = 'x', receipt = NULL`}
	for _, accepted := range []bool{false, true} {
		if accepted {
			record("accepted")
		}
		for _, change := range again {
			_, err := deliver.Pool.Exec(bg, `UPDATE belfry.message_rows SET `+change+` WHERE job_id = $1`, id)
			require.ErrorContains(t, err, "awaits the result of receipt 'r1'", change)
		}
	}
	_, err := deliver.Pool.Exec(bg, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 minute' WHERE job_id = $1`, id)
	require.NoError(t, err)
	b.Exec(t, `GRANT INSERT (job_id, channel_id, step, attempt, medium, outcome) ON belfry.attempts TO "`+deliver.User+`"`)
	_, err = deliver.Pool.Exec(bg, `WITH changed AS (UPDATE belfry.message_rows SET status = 'PENDING', receipt = NULL, step = 1 WHERE job_id = $1 RETURNING job_id, channel_id)
		INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT job_id, channel_id, 0, 1, 'push', 'permanent' FROM changed`, id)
	require.NoError(t, err, "as a relay does")
}

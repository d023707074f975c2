package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
)

// Inbox writes one notification per channel. It is safe for concurrent use.
type Inbox struct{}

// Write implements job.Writer.
func (Inbox) Write(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
	rows := newCopyRows(len(ids), 2, 8+8)
	return rows.send(ctx, tx, queries.notificationCopy, func(i int, b []byte) []byte {
		b = appendInt64(b, ids[i])
		return appendInt64(b, j.Arrival)
	})
}

// Push writes one message per channel, PENDING and due at the job's deliver_at or at the time its chunk's
// transaction began (database clock), and counts them (belfry.job_progress). Custom job types call it to
// write messages. It is safe for concurrent use.
type Push struct{}

// Write implements job.Writer.
func (Push) Write(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
	due, err := dueAt(ctx, tx, j)
	if err != nil {
		return 0, err
	}
	at := due.UnixMicro() - postgresEpoch
	rows := newCopyRows(len(ids), 3, 8+8+8)
	n, err := rows.send(ctx, tx, queries.messageCopy, func(i int, b []byte) []byte {
		b = appendInt64(b, j.ID)
		b = appendInt64(b, ids[i])
		return appendInt64(b, at)
	})
	if err != nil {
		return n, err
	}
	return n, ChangeProgressTx(ctx, tx, map[int64]ProgressChange{j.ID: {Written: n}})
}

// dueAt returns the time from which the chunk's messages may be sent, and wakes relays then.
func dueAt(ctx context.Context, tx pgx.Tx, j job.Job) (due time.Time, err error) {
	err = tx.QueryRow(ctx, queries.chunkDue, pgx.StrictNamedArgs{"deliver_at": j.DeliverAt}).Scan(&due)
	return due, err
}

// postgresEpoch is 2000-01-01 00:00:00 UTC in microseconds of the Unix epoch: the
// zero of PostgreSQL's binary timestamptz.
const postgresEpoch = 946_684_800_000_000

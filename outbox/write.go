package outbox

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
)

// Inbox writes one notification per channel. It is safe for concurrent use.
type Inbox struct{}

// Write implements job.Writer.
func (Inbox) Write(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
	if j.Revision > 0 && late(j, ids) {
		rows := newCopyRows(len(ids), 3, 8+8+4)
		return rows.send(ctx, tx, queries.notificationCopyLate, func(i int, b []byte) []byte {
			b = appendInt64(b, ids[i])
			b = appendInt64(b, j.Arrival)
			return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(j.Revision)) //nolint:gosec // an integer of the database
		})
	}
	rows := newCopyRows(len(ids), 2, 8+8)
	return rows.send(ctx, tx, queries.notificationCopy, func(i int, b []byte) []byte {
		b = appendInt64(b, ids[i])
		return appendInt64(b, j.Arrival)
	})
}

// late reports whether the cursor has passed a channel, as it has when a skipped recipient is retried. The cursor of a
// correction no longer shows the content of its notification.
func late(j job.Job, ids []int64) bool {
	cursor, err := strconv.ParseInt(j.Cursor, 10, 64)
	return err == nil && slices.ContainsFunc(ids, func(id int64) bool { return id <= cursor })
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

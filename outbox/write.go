package outbox

import (
	"context"
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// Inbox writes one notification per channel. It is safe for concurrent use. It declines channels without a value
// in belfry.job_values, if a text of the job refers to one.
type Inbox struct{}

// Write implements job.Writer.
func (Inbox) Write(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
	ids, err := withValue(ctx, tx, j, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
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
// write messages. It is safe for concurrent use. It declines channels as Inbox does.
type Push struct{}

// Write implements job.Writer.
func (Push) Write(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
	ids, err := withValue(ctx, tx, j, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
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

// refersToValue matches a template with {{value.NAME}}, in a text or in the JSON of variants.
var refersToValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{[ \t]*value\.`) })

// RefersToValue reports whether a text of the job refers to a value in belfry.job_values, so that channels without
// one are declined.
func RefersToValue(j job.Job) bool {
	re := refersToValue()
	return re.MatchString(j.Title) || re.MatchString(j.Body) || re.Match(j.Variants)
}

// withValue returns the channels of ids that have a value in belfry.job_values, or ids if no text of the job refers
// to one. ids are ascending, and so is the result.
func withValue(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) ([]int64, error) {
	if !RefersToValue(j) {
		return ids, nil
	}
	kept := make([]int64, 0, len(ids))
	var id int64
	args := pgx.StrictNamedArgs{"job_id": j.ID, "low": ids[0], "high": ids[len(ids)-1]}
	err := db.Each(ctx, tx, queries.channelsWithValue, args, []any{&id}, func() error {
		for len(ids) > 0 && ids[0] < id {
			ids = ids[1:]
		}
		if len(ids) > 0 && ids[0] == id {
			kept = append(kept, id)
		}
		return nil
	})
	return kept, err
}

// dueAt returns the time from which the chunk's messages may be sent, and wakes relays then.
func dueAt(ctx context.Context, tx pgx.Tx, j job.Job) (due time.Time, err error) {
	err = tx.QueryRow(ctx, queries.chunkDue, pgx.StrictNamedArgs{"deliver_at": j.DeliverAt}).Scan(&due)
	return due, err
}

// postgresEpoch is 2000-01-01 00:00:00 UTC in microseconds of the Unix epoch: the
// zero of PostgreSQL's binary timestamptz.
const postgresEpoch = 946_684_800_000_000

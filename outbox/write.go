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
	due, behind, err := dueAt(ctx, tx, j, slices.Min(ids))
	if err != nil {
		return 0, err
	}
	at := due.UnixMicro() - postgresEpoch
	statement, columns := queries.messageCopy, 3
	if behind { // claims go in the order of the channels and may have passed these
		statement, columns = queries.messageCopyBehind, 4
	}
	rows := newCopyRows(len(ids), columns, 8*columns)
	n, err := rows.send(ctx, tx, statement, func(i int, b []byte) []byte {
		b = appendInt64(b, j.ID)
		b = appendInt64(b, ids[i])
		if b = appendInt64(b, at); behind {
			b = appendInt64(b, 0)
		}
		return b
	})
	if err != nil {
		return n, err
	}
	return n, ChangeProgressTx(ctx, tx, map[int64]ProgressChange{j.ID: {Written: n}})
}

// refersToValue matches a template with {{value.NAME}}, in a text or in the JSON of variants, where a tab is \t.
var refersToValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{(?:[ \t]|\\t)*value\.`) })

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

// dueAt returns the time from which the chunk's messages may be sent, and wakes relays then. behind reports whether
// first, the lowest channel of the chunk, is not after all earlier messages of the job.
func dueAt(ctx context.Context, tx pgx.Tx, j job.Job, first int64) (due time.Time, behind bool, err error) {
	args := pgx.StrictNamedArgs{"deliver_at": j.DeliverAt, "job_id": j.ID, "channel_id": first}
	err = tx.QueryRow(ctx, queries.chunkDue, args).Scan(&due, &behind)
	return due, behind, err
}

// postgresEpoch is 2000-01-01 00:00:00 UTC in microseconds of the Unix epoch: the
// zero of PostgreSQL's binary timestamptz.
const postgresEpoch = 946_684_800_000_000

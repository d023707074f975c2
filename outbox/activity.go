package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// Activity is a row of belfry.activities, one message to one channel that precedes all bulk messages, with
// the state of its message. Instants are in UTC.
type Activity struct {
	ID        int64           `json:"id" db:"id"` // negative
	ChannelID int64           `json:"channel_id" db:"channel_id"`
	Category  string          `json:"category" db:"category"`
	Title     string          `json:"title" db:"title" mask:"text"`
	Body      string          `json:"body" db:"body" mask:"text"`
	Data      json.RawMessage `json:"data" db:"data" mask:"text"`
	Variants  json.RawMessage `json:"variants" db:"variants" mask:"text"`
	Route     []string        `json:"route" db:"route" nullable:"true"`
	DeliverAt *time.Time      `json:"deliver_at" db:"deliver_at"` // of the message; null means at once
	// Inbox makes it a notification too; with an empty Route, and not a nil one, it is nothing else.
	Inbox bool `json:"inbox" db:"inbox"`
	// CollapseKey lets it take the place of the channel's unread notifications with this key, without a message.
	CollapseKey    *string   `json:"collapse_key" db:"collapse_key"`
	CollapsedTitle string    `json:"collapsed_title" db:"collapsed_title" mask:"text"` // of several; empty: Title
	IdempotencyKey *string   `json:"idempotency_key" db:"idempotency_key"`
	RequestedBy    string    `json:"requested_by" db:"requested_by"`
	CreatedAt      time.Time `json:"created_at" db:"created_at"`
	TestOf         *int64    `json:"test_of" db:"test_of"` // the job that it tests, if any
	Status         string    `json:"status" db:"status"`   // of its message; "": it has none, or that was deleted
	Reason         *string   `json:"reason" db:"reason"`   // null: none
}

// ReadActivity returns an activity that was sent.
func ReadActivity(ctx context.Context, pool *pgxpool.Pool, id int64) (a Activity, err error) {
	err = reading(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		a, err = db.One[Activity](ctx, tx, queries.activityGet, pgx.StrictNamedArgs{"id": id})
		return err
	})
	if err != nil {
		return a, fmt.Errorf("read activity %d: %w", id, err)
	}
	a.CreatedAt = a.CreatedAt.UTC()
	if a.DeliverAt != nil {
		*a.DeliverAt = a.DeliverAt.UTC()
	}
	return a, nil
}

// SendActivity sends a message and returns its activity with only the id set. For a known idempotency key it
// returns the first activity. Without a Route the category's route applies; without a DeliverAt it is due at
// once. An event records the requester and the channel; activities that are inserted, or sent by
// belfry.send or NotifyTx, have no event. It returns a *job.InvalidError for content that cannot be sent, and for a
// category that requires approval if mayApprove is false or the requester has reached the hourly limit.
func SendActivity(ctx context.Context, pool *pgxpool.Pool, a Activity, mayApprove bool) (sent Activity, err error) {
	err = db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Wait: job.KeyWait}, func(ctx context.Context, tx pgx.Tx) error {
		if err := approves(ctx, tx, mayApprove); err != nil {
			return err
		}
		if sent.ID, err = sendActivity(ctx, tx, a); err != nil {
			return err
		}
		return recordActivity(ctx, tx, sent.ID, a.RequestedBy)
	})
	if err != nil {
		return Activity{}, fmt.Errorf("send: %w", job.TranslateError(err, job.ErrKeyHeld, ""))
	}
	return sent, nil
}

// NotifyTx inserts a notification for the channel in the caller's transaction, with a message by its Route, and returns
// the id of its activity: in the channel's list it has the absolute value. Inbox is implied; the other fields are as
// for SendActivity. It calls belfry.notify, for which the role needs the rights of `belfry roles --for enqueue`, and
// returns a *job.InvalidError for bad input.
func NotifyTx(ctx context.Context, tx pgx.Tx, a Activity) (id int64, err error) {
	a.Inbox = true
	if id, err = sendActivity(ctx, tx, a); err != nil {
		return 0, fmt.Errorf("notify: %w", job.TranslateError(err, job.ErrKeyHeld, ""))
	}
	return id, nil
}

func sendActivity(ctx context.Context, tx pgx.Tx, a Activity) (id int64, err error) {
	object := func(raw json.RawMessage) *string {
		if raw == nil {
			return nil
		}
		text := string(raw)
		return &text
	}
	by := &a.RequestedBy
	if a.RequestedBy == "" {
		by = nil // the login
	}
	err = tx.QueryRow(ctx, queries.activitySend, pgx.StrictNamedArgs{
		"channel_id": a.ChannelID, "category": a.Category, "title": a.Title, "body": a.Body, "data": object(a.Data),
		"variants": object(a.Variants), "route": a.Route, "deliver_at": a.DeliverAt, "idempotency_key": a.IdempotencyKey,
		"requested_by": by, "inbox": a.Inbox, "collapse_key": a.CollapseKey, "collapsed_title": a.CollapsedTitle,
	}).Scan(&id)
	return id, err
}

// SendTest sends a job's content to one channel as a test. It returns job.ErrNotFound if the job does not
// exist, and a *job.InvalidError if the content cannot be sent. Each call sends a message. It is recorded
// and limited like SendActivity.
func SendTest(ctx context.Context, pool *pgxpool.Pool, jobID, channelID int64, requestedBy string, mayApprove bool) (Activity, error) {
	var id int64
	err := inTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := approves(ctx, tx, mayApprove); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, queries.activityTest,
			pgx.StrictNamedArgs{"job_id": jobID, "channel_id": channelID, "requested_by": requestedBy})
		if err != nil {
			return err
		}
		id, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		if errors.Is(err, pgx.ErrNoRows) {
			return job.ErrNotFound
		}
		if err != nil {
			return err
		}
		return recordActivity(ctx, tx, id, requestedBy)
	})
	if err != nil {
		return Activity{}, fmt.Errorf("send a test of job %d: %w", jobID, err)
	}
	return ReadActivity(ctx, pool, id)
}

// approves sets, for belfry.activities_limit, whether the requester may approve.
func approves(ctx context.Context, tx pgx.Tx, mayApprove bool) error {
	if mayApprove {
		return nil
	}
	_, err := tx.Exec(ctx, queries.activityUnapproved)
	return err
}

// recordActivity writes the event of an activity, if this transaction sent it.
func recordActivity(ctx context.Context, tx pgx.Tx, id int64, actor string) error {
	_, err := tx.Exec(ctx, queries.activityRecord, pgx.StrictNamedArgs{"id": id, "actor": actor})
	return err
}

package delivery

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// deliveriesTime is the time limit of Deliveries; deliveriesKeys is the number of keys per statement.
const (
	deliveriesTime = 2 * time.Second
	deliveriesKeys = 20000
)

// Counts counts the rows of a job by fate.
type Counts struct {
	// Messages by status.
	Pending    int64 `json:"pending"`
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	Sent       int64 `json:"sent"`
	Dead       int64 `json:"dead"`
	Cancelled  int64 `json:"cancelled"`
	// Held is the number of Pending and Queued messages that are not sent because the job is ABORTED or
	// its lane is paused: all or none.
	Held       int64 `json:"held"`
	LanePaused bool  `json:"lane_paused"`
	// Notifications. Withdrawn ones are in no other count.
	Unread    int64 `json:"unread"`
	Read      int64 `json:"read"`
	Withdrawn int64 `json:"withdrawn"`
	// Why counts messages with a reason by pending, sending, dead and cancelled, and then by reason.
	// pending includes Pending, Queued and held messages, sending the Processing messages whose receipt
	// is awaited. A message that waits for its first attempt has no reason.
	Why Tally `json:"why"`
	// Media counts all messages by medium, in the order of the job's route; Flow counts sent and dead
	// messages over time. Both are empty for notifications.
	Media []MediumCount `json:"media"`
	Flow  Flow          `json:"flow"`
	// Complete reports whether all rows were counted. Otherwise the time was over, and the counts include
	// only channels up to UpTo; an audit counts all rows.
	Complete bool  `json:"complete"`
	UpTo     int64 `json:"up_to"`
}

// Deliveries counts a job's messages and notifications for at most about two
// seconds, in statements of bounded size. Jobs of other types than inbox and push
// are counted for the messages they may have written. It returns job.ErrNotFound for an unknown job.
func Deliveries(ctx context.Context, pool *pgxpool.Pool, jobID int64) (Counts, error) {
	c, err := deliveries(ctx, pool, jobID, time.Now().Add(deliveriesTime))
	if err != nil {
		return c, fmt.Errorf("deliveries of job %d: %w", jobID, err)
	}
	return c, nil
}

func deliveries(ctx context.Context, pool *pgxpool.Pool, jobID int64, until time.Time) (c Counts, err error) {
	j, err := job.NewStore(pool).Get(ctx, jobID)
	if err != nil {
		return c, err
	}
	c.Why, c.Media, c.Flow = make(Tally), []MediumCount{}, Flow{Bins: []FlowBin{}}
	media, flow := make(mediaCounts), newFlow()
	step := func(ctx context.Context, tx pgx.Tx, c *Counts, args pgx.StrictNamedArgs, _ int64) (*int64, error) {
		return messageCounts(ctx, tx, c, media, flow, args)
	}
	high := int64(math.MaxInt64)
	if j.Type == outbox.TypeInbox {
		step = notificationCounts
		if high, err = strconv.ParseInt(j.Cursor, 10, 64); err != nil {
			c.Complete = true
			return c, nil //nolint:nilerr // no cursor, no row (I3)
		}
	}
	after := int64(math.MinInt64)
	for !c.Complete {
		var last *int64
		err := operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			last, err = step(ctx, tx, &c, pgx.StrictNamedArgs{"job_id": jobID, "after": after, "keys": deliveriesKeys}, high)
			return err
		})
		switch {
		case err != nil:
			return c, err
		case last == nil:
			c.Complete = true
		default:
			after, c.UpTo = *last, *last
		}
		if !c.Complete && time.Now().After(until) {
			break
		}
	}
	if j.Type != outbox.TypeInbox {
		c.Media, c.Flow = media.list(j.Route), flow.result()
		if err := pool.QueryRow(ctx, queries.lanePaused, pgx.StrictNamedArgs{"lane": j.Lane}).Scan(&c.LanePaused); err != nil {
			return c, operation.Answered(err)
		}
	}
	if j.Status == job.Aborted || j.AwaitsApproval() || c.LanePaused {
		c.Held = c.Pending + c.Queued
	}
	return c, nil
}

func messageCounts(ctx context.Context, tx pgx.Tx, c *Counts, media mediaCounts, flow *flow,
	args pgx.StrictNamedArgs) (last *int64, err error) {
	args["seconds"] = flow.step()
	var status, reason string
	var awaited bool
	var step int
	var at *int64
	var n, high int64
	err = db.Each(ctx, tx, queries.deliveryCounts, args, []any{&status, &reason, &awaited, &step, &at, &n, &high}, func() error {
		if last == nil || *last < high {
			last = new(high)
		}
		*c.of(outbox.Status(status)) += n
		r, why := ReasonOf(outbox.Status(status), outbox.Reason(reason), awaited, false)
		c.Why.Add(r, why, n)
		media[mediumKey{step, r, why}] += n
		if at != nil {
			flow.add(*at, outbox.Status(status), n)
		}
		return nil
	})
	return last, err
}

// of returns the count of a status.
func (c *Counts) of(s outbox.Status) *int64 {
	switch s {
	case outbox.Pending:
		return &c.Pending
	case outbox.Queued:
		return &c.Queued
	case outbox.Processing:
		return &c.Processing
	case outbox.Sent:
		return &c.Sent
	case outbox.Dead:
		return &c.Dead
	case outbox.Cancelled:
	}
	return &c.Cancelled
}

// NotificationSlice reads the next keys channels with notifications after one id, up to bound. Its rows have
// the columns of a slice of messages: the channel's id, the state of the job's notification or NULL, and four
// constants. args are job_id, after, bound and keys.
func NotificationSlice(ctx context.Context, tx pgx.Tx, args pgx.StrictNamedArgs) (pgx.Rows, error) {
	return tx.Query(ctx, queries.notificationSlice, args)
}

func notificationCounts(ctx context.Context, tx pgx.Tx, c *Counts, args pgx.StrictNamedArgs, high int64) (last *int64, err error) {
	args["bound"] = high
	rows, err := NotificationSlice(ctx, tx, args)
	if err != nil {
		return nil, err
	}
	var id int64
	var state *string
	_, err = pgx.ForEachRow(rows, []any{&id, &state, nil, nil, nil, nil}, func() error {
		key := id
		last = &key
		switch {
		case state == nil:
		case outbox.Reason(*state) == outbox.ReasonWithdrawn:
			c.Withdrawn++
		case outbox.Reason(*state) == outbox.ReasonRead:
			c.Read++
		default:
			c.Unread++
		}
		return nil
	})
	return last, err
}

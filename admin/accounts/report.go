package accounts

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox"
)

// ReportLine is the result of one message.
type ReportLine struct {
	ExternalID string        `json:"external_id" mask:"text"` // empty if the channel was deleted
	ChannelID  int64         `json:"channel_id"`
	Medium     string        `json:"medium"` // of the route, where the message is or ended
	Sender     string        `json:"sender"` // that accepted the message; may be empty
	Status     outbox.Status `json:"status"`
	Reason     string        `json:"reason"`   // why it is DEAD or CANCELLED, or why it waits
	Attempts   int           `json:"attempts"` // calls by that medium
	DueAt      *time.Time    `json:"due_at"`   // time of the next attempt; nil if the message is final or in flight
	SentAt     *time.Time    `json:"sent_at"`
	DeadAt     *time.Time    `json:"dead_at"`
	Revision   *int          `json:"revision"` // of the sent content: 0, then one for each correction; nil if it was not sent
	Locale     string        `json:"locale"`   // of the channel at the time of the report; may be empty
}

// reportPage is the number of messages that one statement reads.
const reportPage = 5000

// EachMessage calls each with every message of a job, in the order of the channels' ids, and stops at the
// first error. It reads pages, each as of its own time, and holds one page in memory. A message that changes
// meanwhile is reported once.
func EachMessage(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID int64, each func(ReportLine) error) error {
	for after, more := int64(math.MinInt64), true; more; {
		var page []ReportLine
		err := operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			page, err = readReport(ctx, tx, store, jobID, after)
			return err
		})
		if err != nil {
			return fmt.Errorf("report on job %d: %w", jobID, err)
		}
		for _, line := range page {
			if err := each(line); err != nil {
				return err
			}
			after = line.ChannelID
		}
		more = len(page) == reportPage
	}
	return nil
}

func readReport(ctx context.Context, tx pgx.Tx, store *channels.Store, jobID, after int64) ([]ReportLine, error) {
	args := pgx.StrictNamedArgs{"id": jobID, "after": after, "limit": reportPage}
	page, err := db.Collect(ctx, tx, queries.reportPage, args, func(row pgx.CollectableRow) (l ReportLine, err error) {
		var status string
		err = row.Scan(&l.ChannelID, &l.Medium, &l.Sender, &status, &l.Reason, &l.Attempts, &l.DueAt, &l.SentAt, &l.DeadAt, &l.Revision)
		l.Status = outbox.Status(status)
		return l, err
	})
	if err != nil || len(page) == 0 {
		return nil, err
	}
	ids := make([]int64, len(page))
	for i, l := range page {
		ids[i] = l.ChannelID
	}
	people, err := store.RecipientsBare(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]channels.Recipient, len(people))
	for _, p := range people {
		found[p.ID] = p
	}
	for i := range page {
		p := found[page[i].ChannelID]
		page[i].ExternalID, page[i].Locale = p.ExternalID, p.Locale
	}
	return page, nil
}

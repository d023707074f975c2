package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Awaited is a message that a provider has accepted and that awaits its result. Its LeaseID is 0; it is
// settled by its receipt.
type Awaited struct {
	Claimed
	Route   []string // of its job or activity; empty if that was deleted
	Receipt string
	Medium  string        // that accepted it; "" if not recorded
	Sender  string        // that accepted it; "" if not recorded
	Age     time.Duration // since it was accepted, in the database's clock
}

// ReceiptsDue takes up to limit messages whose receipt is due for a query, including messages of other
// relays' claims and of held jobs. Other relays do not get them for the duration hold, so that only one
// relay queries; if it dies, they are due again after hold. Messages of senders that this relay does not
// serve are returned only if no relay has queried for twice that time.
func (l *Ledger) ReceiptsDue(ctx context.Context, limit int, hold time.Duration) ([]Awaited, error) {
	if limit < 1 || limit > MaxBatch {
		return nil, fmt.Errorf("receipts due: %d messages are not allowed; allowed values: 1 to %d", limit, MaxBatch)
	}
	return take(ctx, l, "find receipts that are due", queries.receiptsDue, pgx.StrictNamedArgs{
		"keys": limit, "seconds": hold.Seconds(), "senders": l.senders,
	}, func(row pgx.CollectableRow) (a Awaited, err error) {
		var seconds float64
		err = row.Scan(&a.JobID, &a.ChannelID, &a.LeaseID, &a.Step, &a.Attempts, &a.Crashes, &a.Reason, &a.Ambiguous, &a.Route,
			&a.Receipt, &a.Medium, &a.Sender, &seconds)
		a.Age = max(0, time.Duration(seconds*float64(time.Second)))
		return a, err
	})
}

package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Awaited is a message that a provider has accepted and whose result comes later. Its
// LeaseID is 0: it is settled by its receipt.
type Awaited struct {
	Claimed
	Route   []string // of its job or activity, empty when that is gone
	Receipt string
	Medium  string        // by which it was accepted, "" when that is not recorded
	Sender  string        // by which it was accepted, "" when that is not recorded
	Age     time.Duration // since it was accepted, in the database's clock
}

// ReceiptsDue takes up to limit messages whose receipt is to be looked for now, of any
// relay's claims and of held jobs too. Nobody else gets them for hold, so that two relays
// do not both ask; a relay that dies with them holds them up no longer. Those of senders
// that are not served here come only when no relay has looked for twice that time.
func (l *Ledger) ReceiptsDue(ctx context.Context, limit int, hold time.Duration) ([]Awaited, error) {
	if limit < 1 || limit > MaxBatch {
		return nil, fmt.Errorf("receipts due: %d messages are not allowed; allowed are 1 to %d", limit, MaxBatch)
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

package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Over sets the transport of this relay, before the first heartbeat. The default is postgres.
func (l *Ledger) Over(transport string) { l.transport = transport }

// At sets the relay's delivery.place, before the first heartbeat (Installation.ErrAt).
func (l *Ledger) At(place string) { l.place = place }

// SenderLimits are the limits of a sender: an operator's override, or the configured value.
type SenderLimits struct {
	Name          string  `json:"name,omitempty"`
	RatePerSecond float64 `json:"rate_per_second"` // of all relays together; 0 means no limit
	Concurrency   int     `json:"concurrency"`     // concurrent calls per relay
}

// SenderWork is the present state of one relay's sender.
type SenderWork struct {
	SenderLimits

	Medium          string  `json:"medium"`
	Breaker         string  `json:"breaker"`           // closed, open, half_open or off
	Waiting         int     `json:"waiting"`           // messages in its queue
	Calling         int     `json:"calling"`           // calls in progress
	SentPerSecond   float64 `json:"sent_per_second"`   // accepted by the provider, over the last seconds
	FailedPerSecond float64 `json:"failed_per_second"` // rejected, or with an unknown result
}

// LiveSender is a sender of live relays.
type LiveSender struct {
	Relays int // the number of live relays with this sender
	SenderOverride
}

// SenderOverride is an operator's override for a sender at run time. The zero value overrides nothing.
type SenderOverride struct {
	RatePerSecond *float64 // nil means the configured value
	Concurrency   *int     // nil means the configured value
	Paused        bool
	PauseReason   string
}

// Beat renews this relay's heartbeat and records the state and limits of its senders and the number of
// messages in flight. It returns the state of each sender by name, this relay included, and whether messages
// may leave the database (Installation.ErrAt); if not, claims return nothing. besides is the number of the
// relay's transactions outside the ledger so far; a run subtracts belfry's own transactions from the
// server's load (job.HealthConfig). Call Beat about every second: a relay without a heartbeat for a third of
// the lease time counts as dead.
func (l *Ledger) Beat(ctx context.Context, senders []SenderWork, inFlight int, besides int64) (states map[string]LiveSender,
	delivers bool, err error) {
	if senders == nil {
		senders = []SenderWork{}
	}
	names := make([]string, len(senders))
	for i, s := range senders {
		names[i] = s.Name
	}
	limits, err := json.Marshal(senders) // text: without a session the parameter's type is not known
	if err != nil {
		return nil, false, fmt.Errorf("renew the relay's heartbeat: %w", err)
	}
	media := l.media
	if media == nil {
		media = []string{}
	}
	states = make(map[string]LiveSender, len(senders))
	_, err = list(ctx, l, "renew the relay's heartbeat", queries.relayHeartbeat, pgx.StrictNamedArgs{
		"relay": l.relay, "senders": names, "limits": string(limits), "media": media, "in_flight": inFlight,
		"transactions": l.made.Load() + besides, "transport": l.transport, "place": l.place, "seconds": l.leaseTime.Seconds() / 3,
	}, func(row pgx.CollectableRow) (s LiveSender, err error) {
		var sender string
		err = row.Scan(&sender, &s.Relays, &delivers, &s.RatePerSecond, &s.Concurrency, &s.Paused, &s.PauseReason)
		states[sender] = s
		return s, err
	})
	if err != nil {
		return nil, false, err
	}
	delete(states, "") // the row of a relay without senders
	return states, delivers, nil
}

// Deregister removes this relay when it has ended, and its leases without messages in flight. A lease can be
// left over if it was locked when its last message was recorded.
func (l *Ledger) Deregister(ctx context.Context) error {
	leases, err := list(ctx, l, "read the leases of a stopping relay", queries.leasesOf, pgx.StrictNamedArgs{"relay": l.relay},
		pgx.RowTo[int64])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var b pgx.Batch
	for ids := range slices.Chunk(leases, MaxBatch) {
		b.Queue(queries.leasesEnd, pgx.StrictNamedArgs{"ids": ids})
	}
	b.Queue(queries.relayLeave, pgx.StrictNamedArgs{"relay": l.relay})
	if err := l.send(ctx, &b); err != nil {
		return fmt.Errorf("remove relay %s: %w", l.relay, mapError(err))
	}
	return nil
}

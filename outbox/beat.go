package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Over says which transport this relay gets its messages from, before it beats; postgres
// unless it is said.
func (l *Ledger) Over(transport string) { l.transport = transport }

// At says what the place of this relay is called, before it beats (Installation.ErrAt).
func (l *Ledger) At(place string) { l.place = place }

// SenderLimits are what a relay works by: an operator's, where one set them, else its
// configuration's.
type SenderLimits struct {
	Name          string  `json:"name,omitempty"`
	RatePerSecond float64 `json:"rate_per_second"` // of all relays together; 0: no limit
	Concurrency   int     `json:"concurrency"`     // calls at once of each relay
}

// SenderWork is what a sender of one relay does.
type SenderWork struct {
	SenderLimits

	Medium          string  `json:"medium"`
	Breaker         string  `json:"breaker"`           // closed, open, half_open or off
	Waiting         int     `json:"waiting"`           // messages in its queue
	Calling         int     `json:"calling"`           // calls in progress
	SentPerSecond   float64 `json:"sent_per_second"`   // that the provider took, over the last seconds
	FailedPerSecond float64 `json:"failed_per_second"` // that it did not, or may not have
}

// LiveSender is a sender of relays that live, as the database knows it.
type LiveSender struct {
	Relays int // that have it
	SenderOverride
}

// SenderOverride is what an operator has set about a sender while relays run. The zero value
// is that nothing is set.
type SenderOverride struct {
	RatePerSecond *float64 // nil: the configuration's
	Concurrency   *int     // nil: the configuration's
	Paused        bool
	PauseReason   string
}

// Beat says that this relay lives, what its senders do and by what limits, and how many messages
// it holds, and returns by name how each of its senders stands, this relay counted, and whether
// messages may leave the database (Installation.ErrAt): otherwise claims find nothing. besides is
// how many transactions the relay has made so far beside the ledger's: a run takes all of them
// off what it sees of others on the server (job.HealthConfig). It is to
// come about every second: a relay that has not beaten for a third of the lease time counts as
// dead.
func (l *Ledger) Beat(ctx context.Context, senders []SenderWork, inFlight int, besides int64) (states map[string]LiveSender, delivers bool, err error) {
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
	_, err = list(ctx, l, "renew the relay's heartbeat", queries.relayBeat, pgx.StrictNamedArgs{
		"relay": l.relay, "senders": names, "limits": string(limits), "media": media, "in_flight": inFlight, "transactions": l.made.Load() + besides, "transport": l.transport, "place": l.place, "seconds": l.leaseTime.Seconds() / 3,
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

// Deregister forgets this relay, which has ended, and ends those of its leases under which nothing
// is in flight: a lease that was locked when its last message was recorded is left until then.
func (l *Ledger) Deregister(ctx context.Context) error {
	leases, err := list(ctx, l, "read the leases of a relay that ends", queries.leasesOf, pgx.StrictNamedArgs{"relay": l.relay}, pgx.RowTo[int64])
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
		return fmt.Errorf("forget relay %s: %w", l.relay, mapError(err))
	}
	return nil
}

package outbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Over says which transport this relay gets its messages from, before it beats; postgres
// unless it is said.
func (l *Ledger) Over(transport string) { l.transport = transport }

// Beat says that this relay lives, which senders it has, by what limits, and how many messages
// it holds, and returns for each of its senders how many relays with it live, this one
// included, and whether the database is adopted where it is (Installation): otherwise
// claims find nothing. It is to come about every second: a relay that has not beaten for a
// third of the lease time counts as dead.
func (l *Ledger) Beat(ctx context.Context, senders []SenderLimits, inFlight int) (live map[string]int, adopted bool, err error) {
	if senders == nil {
		senders = []SenderLimits{}
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
	live = make(map[string]int, len(senders))
	_, err = list(ctx, l, "renew the relay's heartbeat", queries.relayBeat, pgx.StrictNamedArgs{
		"relay": l.relay, "senders": names, "limits": string(limits), "media": media, "in_flight": inFlight, "transport": l.transport, "seconds": l.leaseTime.Seconds() / 3,
	}, func(row pgx.CollectableRow) (n int, err error) {
		var sender string
		err = row.Scan(&sender, &n, &adopted)
		live[sender] = n
		return n, err
	})
	if err != nil {
		return nil, false, err
	}
	delete(live, "") // the row of a relay without senders
	return live, adopted, nil
}

// Deregister forgets this relay: it has ended.
func (l *Ledger) Deregister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var b pgx.Batch
	b.Queue(queries.relayLeave, pgx.StrictNamedArgs{"relay": l.relay})
	if err := l.send(ctx, &b); err != nil {
		return fmt.Errorf("forget relay %s: %w", l.relay, mapError(err))
	}
	return nil
}

// SenderOverride is what an operator has set about a sender while relays run.
type SenderOverride struct {
	Name          string
	RatePerSecond *float64 // nil: the configuration's
	Concurrency   *int     // nil: the configuration's
	Paused        bool
	PauseReason   string
}

// Overrides lists what operators have set, by the names of senders.
func (l *Ledger) Overrides(ctx context.Context) ([]SenderOverride, error) {
	return list(ctx, l, "read what is set about senders", queries.senderOverrides, nil, func(row pgx.CollectableRow) (o SenderOverride, err error) {
		err = row.Scan(&o.Name, &o.RatePerSecond, &o.Concurrency, &o.Paused, &o.PauseReason)
		return o, err
	})
}

package doctor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// ServerHealth is the state of the database server, as far as the role may read it, and of the relays.
type ServerHealth struct {
	At             time.Time `json:"at" db:"at"`
	Server         string    `json:"server" db:"server"`   // its version
	Standby        bool      `json:"standby" db:"standby"` // of another server
	Connections    int       `json:"connections" db:"connections"`
	MaxConnections int       `json:"max_connections" db:"max_connections"`
	// OldestTransaction is the age of the oldest transaction of other sessions in seconds, 0 if there is
	// none. Vacuum cannot remove newer dead rows. Null means that the role may not read other sessions.
	OldestTransaction *float64 `json:"oldest_transaction_seconds" db:"oldest_transaction"`
	// ReplayLag is the lag of the last standby in seconds. Null means that there is no standby, it has
	// nothing to replay, or the role may not read it.
	ReplayLag *float64 `json:"replay_lag_seconds" db:"replay_lag"`
	// Relays is the number of live relays by transport: postgres or a carrier.
	Relays map[string]int `json:"relays" db:"relays"`
}

func healthOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "health", Short: "Show the state of the database server and the relays", Role: operation.Viewer,
		Long: `Show the state of the database server, as far as the role may read it: connections in use,
age of the oldest transaction, lag of the standbys; and the number of live relays.
` + "`belfry transport status`" + ` shows the carrier, ` + "`belfry senders list`" + ` the senders and relays,
and ` + "`belfry doctor`" + ` finds problems.`,
		Example: "  belfry health\n  belfry health --json | jq .oldest_transaction_seconds",
	}, readHealth, healthText)
}

func readHealth(ctx context.Context, env *operation.Env, _ operation.None) (h ServerHealth, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		h, err = db.One[ServerHealth](ctx, tx, queries.healthRead, pgx.StrictNamedArgs{"seconds": delivery.RelayAlive.Seconds()})
		h.At = h.At.UTC()
		return err
	})
	return h, err
}

func healthText(p *text.Doc, _ operation.None, h ServerHealth) {
	p.Field("as of", "%s", h.At)
	p.Field("postgresql", "%s%s", h.Server, map[bool]string{true: ", a standby"}[h.Standby])
	p.Field("connections", "%s of %s", text.Count(h.Connections), text.Count(h.MaxConnections))
	if h.OldestTransaction != nil {
		p.Field("oldest transaction", "%s", operation.SecondsSpan(h.OldestTransaction))
	}
	if h.ReplayLag != nil {
		p.Field("standbys", "%s behind", operation.SecondsSpan(h.ReplayLag))
	}
	for _, transport := range slices.Sorted(maps.Keys(h.Relays)) {
		p.Field("relays", "%s live, over %s", text.Count(h.Relays[transport]), transport)
	}
	if len(h.Relays) == 0 {
		p.Field("relays", "none live")
	}
}

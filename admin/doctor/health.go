package doctor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// ServerHealth is how the database server is, as far as the role may see it, and what messages move through.
type ServerHealth struct {
	At             time.Time `json:"at" db:"at"`
	Server         string    `json:"server" db:"server"`   // its version
	Standby        bool      `json:"standby" db:"standby"` // of another server
	Connections    int       `json:"connections" db:"connections"`
	MaxConnections int       `json:"max_connections" db:"max_connections"`
	// OldestTransaction is how old the oldest one of others is, in seconds, 0 without any; it keeps vacuum
	// from what was deleted since. Null: the role may not see the sessions of others.
	OldestTransaction *float64 `json:"oldest_transaction_seconds" db:"oldest_transaction"`
	// ReplayLag is how far the last standby is behind, in seconds; null: there is none, it has nothing to
	// replay, or the role may not see it.
	ReplayLag *float64 `json:"replay_lag_seconds" db:"replay_lag"`
	// Relays are how many live, by what they get their messages from: postgres or a carrier.
	Relays map[string]int `json:"relays" db:"relays"`
}

func healthOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "health", Short: "Show how the database server and the relays are, in a few lines", Role: operation.Viewer,
		Long: `Show how the database server is, as far as the role may see it: how many of its connections
are taken, how old its oldest transaction is, how far its standbys are behind; and how many
relays live. ` + "`belfry transport status`" + ` asks the carrier, ` + "`belfry senders list`" + ` shows what relays do,
and ` + "`belfry doctor`" + ` finds what is wrong.`,
		Example: "  belfry health\n  belfry health --json | jq .oldest_transaction_seconds",
	}, readHealth, healthText)
}

func readHealth(ctx context.Context, env *operation.Env, _ operation.None) (h ServerHealth, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.healthRead, pgx.StrictNamedArgs{"seconds": delivery.RelayAlive.Seconds()})
		if err != nil {
			return err
		}
		h, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[ServerHealth])
		h.At = h.At.UTC()
		return err
	})
	return h, err
}

func healthText(p *text.Doc, _ operation.None, h ServerHealth) {
	p.Field("as of", "%s", p.Clock(h.At))
	p.Field("postgresql", "%s%s", h.Server, map[bool]string{true: ", a standby"}[h.Standby])
	p.Field("connections", "%s of %s", text.Grouped(int64(h.Connections)), text.Grouped(int64(h.MaxConnections)))
	if h.OldestTransaction != nil {
		p.Field("oldest transaction", "%s", text.Short(operation.SecondsSpan(h.OldestTransaction)))
	}
	if h.ReplayLag != nil {
		p.Field("standbys", "%s behind", text.Short(operation.SecondsSpan(h.ReplayLag)))
	}
	for _, transport := range slices.Sorted(maps.Keys(h.Relays)) {
		p.Field("relays", "%s live, over %s", text.Grouped(int64(h.Relays[transport])), transport)
	}
	if len(h.Relays) == 0 {
		p.Field("relays", "none live")
	}
}

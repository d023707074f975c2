package channels

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Forgotten counts what these tables had of one channel.
type Forgotten struct {
	Channels         int64 `json:"channels"` // its row of belfry.channels
	OptOuts          int64 `json:"opt_outs"`
	InvalidAddresses int64 `json:"invalid_addresses"`
	SegmentMembers   int64 `json:"segment_members"`
}

// Own reports whether the relation is belfry.channels, and not the application's.
func (s *Store) Own() bool { return s.name == DefaultRelation }

// Blank empties a channel's row of belfry.channels but for its external id, so that no
// audience has it any more and nothing reaches it. Of a relation of the application nothing
// is changed.
func (s *Store) Blank(ctx context.Context, tx pgx.Tx, id int64) error {
	if !s.Own() {
		return nil
	}
	if _, err := tx.Exec(ctx, queries.channelBlank, pgx.StrictNamedArgs{"id": id}); err != nil {
		return s.wrap("blank a channel", err)
	}
	return nil
}

// Forget deletes a channel of belfry.channels with its opt-outs, invalid addresses and
// memberships, or with dryRun counts them. A row of a relation of the application stays.
func (s *Store) Forget(ctx context.Context, tx pgx.Tx, id int64, dryRun bool) (f Forgotten, err error) {
	err = tx.QueryRow(ctx, queries.channelForget, pgx.StrictNamedArgs{"id": id, "own": s.Own(), "dry_run": dryRun}).
		Scan(&f.Channels, &f.OptOuts, &f.InvalidAddresses, &f.SegmentMembers)
	if err != nil {
		return f, s.wrap("forget a channel", err)
	}
	return f, nil
}

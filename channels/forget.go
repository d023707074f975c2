package channels

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Forgotten counts the rows of one channel by table.
type Forgotten struct {
	Channels         int64 `json:"channels"` // its row in belfry.channels
	OptOuts          int64 `json:"opt_outs"`
	InvalidAddresses int64 `json:"invalid_addresses"`
	SegmentMembers   int64 `json:"segment_members"`
}

// Own reports whether the relation is belfry.channels.
func (s *Store) Own() bool { return s.name == DefaultRelation }

// Blank deactivates a channel of belfry.channels and empties its columns except external_id, so that no
// audience contains it. A relation of the application is not written.
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
// memberships, or with dryRun counts them. A row in a relation of the application remains.
func (s *Store) Forget(ctx context.Context, tx pgx.Tx, id int64, dryRun bool) (f Forgotten, err error) {
	err = tx.QueryRow(ctx, queries.channelForget, pgx.StrictNamedArgs{"id": id, "own": s.Own(), "dry_run": dryRun}).
		Scan(&f.Channels, &f.OptOuts, &f.InvalidAddresses, &f.SegmentMembers)
	if err != nil {
		return f, s.wrap("forget a channel", err)
	}
	return f, nil
}

package job

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/cursor"
)

// Recipients is the Source that walks the recipient channels of the job's
// audience and hands the Writer each channel whole. A run of a relation that does not
// keep the contract (channels.Store.Vet) FAILS and says what to do.
func Recipients(store *channels.Store) Source[channels.Channel] {
	return recipients[channels.Channel]{store, (*channels.Walk).Channels}
}

// RecipientIDs is Recipients for a Writer that needs no more than the channels'
// ids: the fastest walk.
func RecipientIDs(store *channels.Store) Source[int64] {
	return recipients[int64]{store, (*channels.Walk).IDs}
}

type pageFunc[R any] func(w *channels.Walk, ctx context.Context, q channels.Querier, after cursor.Position,
	limit int) (cursor.Page[R], error)

type recipients[R any] struct {
	store *channels.Store
	page  pageFunc[R]
}

var channelKeyset = cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.Bigint})

func (r recipients[R]) Keyset() cursor.Keyset { return channelKeyset }

func (r recipients[R]) Bound(ctx context.Context, tx pgx.Tx, _ Job) (cursor.Position, error) {
	if err := r.store.Vet(ctx, tx); err != nil {
		return cursor.Position{}, err // before the bound is read, which an unfit relation may have to be sorted for
	}
	return r.store.Bound(ctx, tx)
}

func (r recipients[R]) Open(ctx context.Context, tx pgx.Tx, j Job, after, bound cursor.Position) (Walk[R], error) {
	if !after.IsZero() { // a new run of a job whose bound was read at another time
		if err := r.store.Vet(ctx, tx); err != nil {
			return nil, err
		}
	}
	walk, err := r.store.Open(ctx, tx, j.Audience, after, bound)
	if err != nil {
		return nil, err
	}
	return recipientWalk[R]{walk, r.page}, nil
}

type recipientWalk[R any] struct {
	walk *channels.Walk
	page pageFunc[R]
}

func (w recipientWalk[R]) Total() int64 { return w.walk.Total() }

func (w recipientWalk[R]) Page(ctx context.Context, tx pgx.Tx, after cursor.Position, limit int) (cursor.Page[R], error) {
	return w.page(w.walk, ctx, tx, after, limit)
}

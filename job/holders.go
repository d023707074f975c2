package job

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// holdersLimit bounds the query for lock holders. The act has failed by then.
const holdersLimit = 2 * time.Second

// Holders describes the sessions that lock rows of these jobs now, or of all RUNNING jobs without ids, such
// as "job 17 by session 4711 of app_web (psql)", or the sessions that lock the whole table or wait for such a lock, if
// there are any. It is empty if there are none, if several sessions share a row's lock, or if the database does not answer.
func (s *Store) Holders(ctx context.Context, ids ...int64) string {
	return db.DescribeHolders(lockHolders(ctx, s.pool, []string{"jobs", "job_deliveries"}, pgx.StrictNamedArgs{"ids": ids, "waiting": false}))
}

// WaitingHolders is Holders of the first thousand due jobs, which no runner claims while they are locked.
func (s *Store) WaitingHolders(ctx context.Context) string {
	return db.DescribeHolders(lockHolders(ctx, s.pool, []string{"jobs"}, pgx.StrictNamedArgs{"ids": nil, "waiting": true}))
}

// lockHolders returns the sessions that lock tables of schema belfry, any of them if tables is nil, or wait for such a lock;
// or those that lock rows of the jobs of RowHolders. It returns none if the database does not answer.
func lockHolders(ctx context.Context, pool *pgxpool.Pool, tables []string, jobs pgx.StrictNamedArgs) (list []db.LockHolder) {
	if list = db.TableHolders(ctx, pool, tables...); len(list) > 0 {
		return list
	}
	_ = db.InTx(context.WithoutCancel(ctx), pool,
		db.Options{Limit: holdersLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, err = db.Collect(ctx, tx, queries.rowHolders, jobs, pgx.RowToStructByName[db.LockHolder])
			return err
		})
	return list
}

// blamed adds the sessions that lock tables, or the row of the job, to a lock error of a run.
func (u *run) blamed(ctx context.Context, cause error) error {
	if db.ClassOf(cause) != db.Locked {
		return cause
	}
	if list := lockHolders(ctx, u.pool, nil, pgx.StrictNamedArgs{"ids": []int64{u.id}, "waiting": false}); len(list) > 0 {
		return &db.LockedError{Object: list[0].Locked, Holders: list, Err: cause}
	}
	return cause
}

// NameHolders adds the sessions that lock the rows of these jobs to an ErrLocked. Other errors stay as they are.
func (s *Store) NameHolders(ctx context.Context, err error, ids ...int64) error {
	if !errors.Is(err, ErrLocked) || len(ids) == 0 {
		return err
	}
	if holders := s.Holders(ctx, ids...); holders != "" {
		//sql:allow text for people
		return &db.HeldError{Err: err, By: holders + "; SELECT pg_terminate_backend(number) ends a session; `belfry halt`, or a " +
			"pause of the job's lane, holds its messages meanwhile"}
	}
	return err
}

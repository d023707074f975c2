// Command jobtype has a job type of its own: each recipient of a job gets a row in coupons. It
// runs until the job that it enqueues is done. Who is next, how far, stop and resume are
// belfry's.
//
//	DATABASE_URL=postgres://… go run ./_examples/jobtype
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// coupons is the job type: who (the recipients of channels), and what (a row for each).
func coupons(who *channels.Store) job.Type {
	return job.NewType("coupons", "a coupon for each recipient", job.Recipients(who), job.WriterFunc[channels.Channel](
		func(ctx context.Context, tx pgx.Tx, j job.Job, recipients []channels.Channel) (int64, error) {
			return tx.CopyFrom(ctx, pgx.Identifier{"coupons"}, []string{"job_id", "user_id", "code"},
				pgx.CopyFromSlice(len(recipients), func(i int) ([]any, error) {
					user := recipients[i].ExternalID
					return []any{j.ID, user, fmt.Sprintf("%s-%d-%s", j.Title, j.ID, user)}, nil
				}))
		}))
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	const table = "CREATE TABLE IF NOT EXISTS coupons (job_id bigint, user_id text, code text NOT NULL, PRIMARY KEY (job_id, user_id))"
	if _, err := pool.Exec(ctx, table); err != nil {
		return err
	}

	config := belfry.DefaultConfig()
	config.Database.URL = os.Getenv("DATABASE_URL")
	who, err := channels.New(config.Channels)
	if err != nil {
		return err
	}
	instance, err := belfry.New(config, belfry.WithTypes(coupons(who)))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- instance.Run(ctx)
		stop()
	}()
	err = enqueueAndWait(ctx, pool)
	stop()
	return errors.Join(<-ended, err)
}

// enqueueAndWait enqueues a coupon for all recipients. In production another program enqueues.
func enqueueAndWait(ctx context.Context, pool *pgxpool.Pool) error {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	var id int64
	for store := job.NewStore(pool); ; {
		if id == 0 { // the database knows the type once the instance runs
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				id, err = job.EnqueueTx(ctx, tx, job.Spec{Type: "coupons", Category: "operator_notice", Title: "SPRING"})
				return err
			})
			if err != nil && !errors.As(err, new(*job.InvalidError)) {
				return err
			}
		} else if j, err := store.Get(ctx, id); err != nil || j.FinishedAt != nil {
			if err == nil {
				fmt.Printf("job %d %s: %d coupons\n", j.ID, j.Status, j.RowsWritten)
			}
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

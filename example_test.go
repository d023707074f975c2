package belfry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// A service runs belfry beside its own work, on its own pool, and enqueues a job in the
// transaction that its own rows are in.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()

	config := belfry.DefaultConfig()
	config.Runner.PollInterval = 100 * time.Millisecond
	instance, err := belfry.New(config, belfry.WithPool(db.Pool))
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- instance.Run(ctx) }()

	var id int64
	err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, "INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios'), ('ben', 'web')"); err != nil {
			return err
		}
		id, err = job.EnqueueTx(ctx, tx, job.Spec{Type: "inbox", Category: "operator_notice", Title: "Maintenance at nine"})
		return err
	})
	if err != nil {
		panic(err)
	}
	for store := job.NewStore(db.Pool); ; {
		j, err := store.Get(ctx, id)
		if err != nil {
			panic(err)
		}
		if j.Status == job.Processed {
			fmt.Println(j.Status, j.RowsWritten)
			break
		}
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// PROCESSED 2
	// <nil>
}

package job_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The job is enqueued by the transaction that does the service's own work: both
// happen, or neither.
func ExampleEnqueueTx() {
	ctx := context.Background()
	db, drop := dbtest.Open()
	defer drop()
	must(db.Pool.Exec(ctx, `CREATE TABLE questions (id bigint, text text)`))

	err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO questions VALUES (4711, 'Where is a good dentist?')`); err != nil {
			return err
		}
		_, err := job.EnqueueTx(ctx, tx, job.Spec{
			Type: outbox.TypePush, Category: "question_content", Title: "A question near you",
			Audience: channels.Within(37.5665, 126.978, 30_000), IdempotencyKey: "question-4711",
		})
		return err
	})
	fmt.Println(err)
	for _, j := range must(job.NewStore(db.Pool).List(ctx, job.Filter{})) {
		fmt.Println(j.Type, j.Status, j.Audience)
	}
	// Output:
	// <nil>
	// push PENDING within 30 km of 37.5665, 126.978
}

// An abort has an actor and a reason, a resume goes on from the cursor.
func ExampleStore_Abort() {
	ctx := context.Background()
	db, drop := dbtest.Open()
	defer drop()
	store := job.NewStore(db.Pool)
	id := must(store.Enqueue(ctx, job.Spec{Type: outbox.TypeInbox, Category: "operator_notice", Title: "Maintenance at 2"}))

	fmt.Println(must(store.Abort(ctx, job.One(id), job.Act{Actor: "kim", Reason: "wrong hour"}))[0].Status)
	fmt.Println(must(store.Resume(ctx, job.One(id), job.Act{Actor: "kim", Reason: "it was right"}))[0].Status)
	for _, e := range must(store.Events(ctx, id, 0, 0))[1:] {
		fmt.Println(e.Kind, "by", e.Actor+":", e.Reason)
	}
	// Output:
	// ABORTED
	// PENDING
	// aborted by kim: wrong hour
	// resume_requested by kim: it was right
}

// A runner claims what is due, runs it and comes back; Run stays instead.
func ExampleRunner_RunDue() {
	ctx := context.Background()
	db, drop := dbtest.Open()
	defer drop()
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios'), ('ben', 'android')`))
	must(db.Pool.Exec(ctx, `SELECT belfry.enqueue_group('{inbox,push}', 'popular_content', 'Ten things today')`))

	who := must(channels.New(channels.DefaultConfig()))
	runner := must(job.NewRunner(db.Pool, job.DefaultConfig(), outbox.Types(who)))
	for _, j := range must(runner.RunDue(ctx)).Jobs {
		fmt.Println(j.Type, j.Status, j.RowsWritten)
	}
	// Output:
	// inbox PROCESSED 2
	// push PROCESSED 2
}

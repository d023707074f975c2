package delivery_test

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A provider refused its key for a while. What died of it is counted, and returned to
// the queue; what has no address is discarded.
func ExampleRedrive() {
	ctx := context.Background()
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios'), ('ben', 'android'), ('cleo', 'ios')`))
	jobs := job.NewStore(db.Pool)
	must(jobs.Enqueue(ctx, job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "hello", Audience: channels.Everyone()}))
	must(must(job.NewRunner(db.Pool, job.DefaultConfig(), outbox.Types(must(channels.New(channels.DefaultConfig()))))).RunDue(ctx))
	must(db.Pool.Exec(ctx, `UPDATE belfry.message_rows SET status = 'DEAD', reason = CASE channel_id WHEN 2 THEN 'no_address' ELSE 'permanent' END`)) // as a relay does

	for _, c := range must(delivery.DeadCounts(ctx, db.Pool, delivery.DeadFilter{})) {
		fmt.Println(c.Medium, c.Reason, c.Letters)
	}
	who := delivery.DeadOptions{Act: job.Act{Actor: "ann", Reason: "key renewed"}}
	redriven := must(delivery.Redrive(ctx, db.Pool, delivery.DeadFilter{Reason: outbox.ReasonPermanent}, who))
	discarded := must(delivery.Discard(ctx, db.Pool, delivery.DeadFilter{Reason: outbox.ReasonNoAddress}, who))
	fmt.Println("redriven:", redriven.Changed, "discarded:", discarded.Changed)
	// Output:
	// push no_address 1
	// push permanent 2
	// redriven: 2 discarded: 1
}

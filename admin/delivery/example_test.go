package delivery_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

// One job from the first channel to the last row deleted: who got it, what has become
// of the messages, taking back what is not sent, and retention.
func Example() {
	ctx := context.Background()
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform, active)
		VALUES ('ann', 'ios', true), ('ben', 'android', true), ('cleo', 'ios', false), ('dan', 'ios', true)`))
	who := must(channels.New(channels.DefaultConfig()))
	jobs := job.NewStore(db.Pool)
	id := must(jobs.Enqueue(ctx, job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "hello", Audience: channels.OnPlatforms("ios")}))
	must(must(job.NewRunner(db.Pool, job.DefaultConfig(), outbox.Types(who))).RunDue(ctx))

	report := must(accounts.Audit(ctx, db.Pool, who, id, accounts.AuditOptions{Each: func(e accounts.Entry) error {
		fmt.Printf("channel %d %s\n", e.ChannelID, e.Reason.Text())
		return nil
	}}))
	fmt.Println("the sums agree:", report.Agree)
	counts := must(delivery.Deliveries(ctx, db.Pool, id))
	fmt.Println("to be sent:", counts.Pending)

	recalled := must(delivery.Recall(ctx, db.Pool, id, job.Act{Actor: "ann", Reason: "wrong text"}, nil))
	fmt.Println("cancelled:", recalled.Messages)

	must(db.Pool.Exec(ctx, `UPDATE belfry.jobs SET finished_at = finished_at - interval '90 days'`))
	must(db.Pool.Exec(ctx, `UPDATE belfry.message_rows SET next_attempt_at = next_attempt_at - interval '90 days'`))
	keep := outbox.DefaultRetention()
	keep.Messages, keep.Jobs = 30*24*time.Hour, 60*24*time.Hour
	pruned := must(retention.Prune(ctx, db.Pool, keep, retention.Options{Act: job.Act{Actor: "ann"}}))
	fmt.Println("deleted:", pruned.Messages, "messages,", pruned.Jobs, "job")
	// Output:
	// channel 1 has a message that is still to be sent
	// channel 2 is not in the audience
	// channel 3 is in the audience but not active
	// channel 4 has a message that is still to be sent
	// the sums agree: true
	// to be sent: 2
	// cancelled: 2
	// deleted: 2 messages, 1 job
}

// must keeps the example short.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

package relay_test

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// printer is a provider client that prints.
type printer struct{}

func (printer) MaxBatch() int { return 1 }

func (printer) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	fmt.Printf("to %s: %s\n", batch[0].Address, batch[0].Title)
	return []sender.Result{{Class: sender.Accepted}}
}

// A relay with one sender delivers what is due, once.
func ExampleRelay_Drain() {
	ctx := context.Background()
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (id, external_id, platform, addresses) VALUES (1, 'ann', 'ios', '{"push": "token-of-ann"}')`))
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'ben likes your answer')`))

	composer := must(compose.New(db.Pool, must(channels.New(channels.DefaultConfig())), compose.DefaultConfig(), nil))
	apns := relay.DefaultSenderConfig()
	apns.Name, apns.Medium = "apns", "push"
	r := must(relay.New(db.Pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: apns, Client: printer{}}}))
	stats := must(r.Drain(ctx))
	fmt.Println("sent:", stats.Sent)
	// Output:
	// to token-of-ann: ben likes your answer
	// sent: 1
}

// must keeps the example short.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

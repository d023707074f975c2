package compose_test

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

// A like is one INSERT in the service's own transaction; a relay that has claimed its
// message composes it.
func ExampleComposer_Compose() {
	ctx := context.Background()
	db, drop := dbtest.Open()
	defer drop()
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (id, external_id, platform, locale, attributes, addresses)
		VALUES (7, 'mina', 'ios', 'ko-KR', '{"name": "Mina"}', '{"push": "token", "sms": "+82 10"}')`))
	must(db.Pool.Exec(ctx, `SELECT belfry.send(7, 'activity', 'Hello {{attributes.name}}', variants => '{"ko": {"title": "{{attributes.name}}님"}}', route => '{push,sms}')`))
	must(db.Pool.Exec(ctx, `SELECT belfry.opt_out(7, 'activity', 'push')`))

	composer := must(compose.New(db.Pool, must(channels.New(channels.DefaultConfig())), compose.DefaultConfig(), nil))
	claimed := outbox.Claimed{Key: outbox.Key{JobID: -1, ChannelID: 7}}
	for _, c := range must(composer.Compose(ctx, []outbox.Claimed{claimed})) {
		fmt.Println(c.Action, c.Delivery.Medium, c.Delivery.Address, c.Delivery.Title)
		for _, a := range c.Record {
			fmt.Println(a.Medium, a.Outcome, a.Reason)
		}
	}
	// Output:
	// send sms +82 10 Mina님
	// push refused opted_out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

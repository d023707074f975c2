package channels_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/cursor"
)

func ExampleWithin() {
	a := channels.Within(37.566, 126.9784, 30000) // Seoul
	a.Platforms = []string{"ios"}
	text, err := json.Marshal(a)
	fmt.Println(a)
	fmt.Println(string(text), err)
	// Output:
	// within 30 km of 37.566, 126.9784 on ios
	// {"kind":"radius","latitude":37.566,"longitude":126.9784,"radius_m":30000,"platforms":["ios"]} <nil>
}

func ExampleParseAudience() {
	a, err := channels.ParseAudience([]byte(`{"kind": "segment", "segment": "vip"}`))
	fmt.Println(a, err)
	_, err = channels.ParseAudience([]byte(`{"kind": "radius", "latitude": 37.57, "radius_m": 30000}`))
	fmt.Println(err)
	_, err = channels.ParseAudience([]byte(`{"kind": "everyone", "platform": "ios"}`))
	fmt.Println(err)
	// Output:
	// segment vip <nil>
	// audience.longitude: is required with kind radius
	// audience.platform: is not allowed with kind everyone; allowed keys: kind
}

// A walk over everybody, a thousand keys at a time. The position after each
// page is all that has to be kept to go on later.
//
//nolint:testableexamples // needs a database
func ExampleStore_Open() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("BELFRY_DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := channels.New(channels.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	bound, err := store.Bound(ctx, pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	var at cursor.Position
	walk, err := store.Open(ctx, pool, channels.Everyone(), at, bound)
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		page, err := walk.Channels(ctx, pool, at, 1000)
		if err != nil || page.Read == 0 {
			fmt.Println(err)
			return
		}
		for _, c := range page.Rows {
			fmt.Println(c.ExternalID, c.Locale)
		}
		at = page.Next
	}
}

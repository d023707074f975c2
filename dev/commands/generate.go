package commands

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
)

// GenerateHelp is the description of `belfry channels generate`.
const GenerateHelp = `Make N channels at real cities, in proportion to the cities' population. About 1 %
are inactive and 0.5 % have no location. The addresses are invented. Browsers get Web Push
subscriptions at ` + "`belfry fake`" + `, which accepts all of them. All channels are written in one
transaction.`

// MaxGenerated limits the effect of a typing error.
const MaxGenerated = 1_000_000_000

// Generate makes count channels at real cities. fakes is the address of the fake providers.
func Generate(ctx context.Context, out Output, config channels.Config, pool *pgxpool.Pool, count int64, seed uint64, fakes string,
	json bool) error {
	store, err := channels.New(config)
	if err != nil {
		return err
	}
	progress := out.Ticker()
	result, err := cities.Generate(ctx, store, pool, count, cities.Options{
		Seed:         seed,
		Subscription: func(externalID string) string { return fake.Subscription("http://"+fakes, externalID) },
		Progress: func(made int64) {
			progress.Show("%s / %s channels, %d%%, %s", text.Grouped(made), text.Grouped(count), 100*made/count, progress.PerSecond(made))
		},
	})
	took := progress.End()
	if err != nil {
		return err
	}
	if json {
		return out.PrintJSON(result)
	}
	out.Printf("%s in %s\n", text.Counted(result.Channels, "channel"), took)
	return nil
}

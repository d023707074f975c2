package main

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

// maxGenerated limits the effect of a typing error.
const maxGenerated = 1_000_000_000

func newGenerateCommand(a *app) *cobra.Command {
	o := &generateOptions{}
	cmd := &cobra.Command{
		Use:   "generate N",
		Short: "Make N channels at real cities, for trials and benchmarks",
		Long: `Make N channels at real cities, in proportion to the cities' population. About 1 %
are inactive and 0.5 % have no location. The addresses are made up and reach
nobody: those of browsers are Web Push subscriptions at ` + "`belfry fake`" + `, which takes
all of them. All channels are written, or none.`,
		Example: `  belfry channels generate 300000
  belfry channels generate 1000000 --seed 7`,
		Args: exactArgs("N"),
	}
	o.seed = flagOf(cmd.Flags(), "seed", "N", "the same seed makes the same channels, named gen-SEED-1 and on (default 0)", intBetween(0, math.MaxInt64))
	o.fake = flagOf(cmd.Flags(), "fake", "HOST:PORT", fmt.Sprintf("where the fake will listen to which the subscriptions of browsers lead (default %s)", fakeListen), checked(fake.CheckAddress))
	o.out = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.commandOptions = a.options(cmd)
		if o.count, err = strconv.ParseInt(args[0], 10, 64); err != nil || o.count < 1 || o.count > maxGenerated {
			return usagef("%q channels cannot be generated; allowed values: 1 to %d", text.OneLine(args[0], 60), maxGenerated)
		}
		return runGenerate(cmd.Context(), o)
	}
	return cmd
}

// generateOptions are the options of `belfry channels generate`.
type generateOptions struct {
	commandOptions

	count int64
	seed  *parsed[int64]
	fake  *parsed[string]
	out   *output
}

// runGenerate makes channels at real cities.
func runGenerate(ctx context.Context, o *generateOptions) error {
	return o.withDatabase(ctx, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		progress := newTicker(o.streams)
		result, err := cities.Generate(ctx, store, db.Pool, o.count, cities.Options{
			Seed:         uint64(o.seed.or(0)), //nolint:gosec // not negative
			Subscription: func(externalID string) string { return fake.Subscription("http://"+o.fake.or(fakeListen), externalID) },
			Progress: func(made int64) {
				progress.show("%s / %s channels, %d%%, %s", text.Grouped(made), text.Grouped(o.count), 100*made/o.count, progress.perSecond(made))
			},
		})
		took := progress.end()
		if err != nil {
			return err
		}
		if o.out.json() {
			return o.printJSON(result)
		}
		o.printf("%s in %s\n", text.Counted(result.Channels, "channel"), took)
		return nil
	})
}

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
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/node/settings"
)

// maxGenerated keeps a slip of the finger from filling the disk.
const maxGenerated = 1_000_000_000

func newChannelsGenerateCommand(a *app) *cobra.Command {
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
	seed := flagOf(cmd.Flags(), "seed", "N", "the same seed makes the same channels, named gen-SEED-1 and on (default 0)", intBetween(0, math.MaxInt64))
	at := flagOf(cmd.Flags(), "fake", "HOST:PORT", fmt.Sprintf("where the fake will listen to which the subscriptions of browsers lead (default %s)", fakeListen),
		func(text string) (string, error) { return text, fake.CheckAddress(text) })
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || n < 1 || n > maxGenerated {
			return usagef("%q channels cannot be generated; allowed values: 1 to %d", printer.OneLine(args[0], 60), maxGenerated)
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			store, err := channels.New(s.Channels)
			if err != nil {
				return err
			}
			show := a.newTicker()

			result, err := cities.Generate(ctx, store, db.Pool, n, cities.Options{
				Seed:         uint64(seed.or(0)), //nolint:gosec // not negative
				Subscription: func(externalID string) string { return fake.Subscription("http://"+at.or(fakeListen), externalID) },
				Progress: func(made int64) {
					show.tell("%s / %s channels, %d%%, %s", printer.Grouped(made), printer.Grouped(n), 100*made/n, show.perSecond(made))
				},
			})
			took := show.end()
			if err != nil {
				return err
			}
			if out.json() {
				return a.printJSON(result)
			}
			a.printf("%s in %s\n", printer.Counted(result.Channels, "channel"), took)
			return nil
		})
	}
	return cmd
}

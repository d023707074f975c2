package main

import (
	"context"
	"errors"

	"github.com/belfryhq/belfry/internal/bench"
)

const goalStock = 0.95 // of the speed on a tuned server

// stock compares the relay on the server that everything else is measured on with the
// relay on one that is tuned as belfry's own is, in turns.
func stock(ctx context.Context, e *env, r *bench.Result) (err error) {
	tuned, err := openEnv(ctx, e.config, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tuned.close()) }()
	for _, server := range []*env{e, tuned} {
		if err := server.fill(ctx); err != nil {
			return err
		}
	}
	asIs, better, ratio, err := e.inTurns(
		func() (float64, error) { return e.speed(ctx) },
		func() (float64, error) { return tuned.speed(ctx) },
		func(round int, asIs, better, ratio float64) {
			e.tell("  %d/%d: stock %.0f messages/s, tuned %.0f messages/s, ratio %.2f", round, e.rounds, asIs, better, ratio)
		})
	if err != nil {
		return err
	}
	figure(r, "stock_speed", "stock", percentile(asIs, 50), unitSpeed, nil)
	figure(r, "tuned_speed", "tuned", percentile(better, 50), unitSpeed, nil)
	figure(r, "ratio", "ratio", percentile(ratio, 50), unitRatio, atLeast(goalStock))
	r.Notes = append(r.Notes, "Stock: PostgreSQL's defaults, jit on. Tuned: what belfry sets for its private server (internal/pgserver). Both durable.")
	return nil
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// memory runs inbox jobs of a tenth, one time and twice the channels, each in a process of
// its own with the default configuration, and compares their peak resident memory. Of the
// two ratios the second is the one that growth with the size of a job would show in: the
// small job ends before the chunks have grown to their full size and before the Go runtime
// has collected garbage for the first time, which it does at 4 MiB.
func memory(ctx context.Context, e *env, r *result) {
	small, large := e.size/10, e.size*2
	e.makeRelation(ctx, "public.channels_small", small)
	e.makeRelation(ctx, "public.channels_large", large)
	peaks := e.inTurns("MiB",
		turn{"small", func() float64 { return e.weigh(ctx, "public.channels_small", small) }},
		turn{"middle", func() float64 { return e.weigh(ctx, channels.DefaultRelation, e.active) }},
		turn{"large", func() float64 { return e.weigh(ctx, "public.channels_large", large) }})
	peak := func(name string, channels int64, peaks []float64) { // the worst of the rounds and not their median
		r.figure(name+"_peak", fmt.Sprintf("peak, %s channels", grouped(channels)), percentile(peaks, 100), "MiB", atMost(64))
	}
	peak("small", small, peaks[0])
	peak("middle", e.active, peaks[1])
	peak("large", large, peaks[2])
	r.figure("large_to_small", "largest to smallest", ratio(peaks[2], peaks[0]), unitRatio, atMost(1.2))
	r.figure("large_to_middle", "largest to middle", ratio(peaks[2], peaks[1]), unitRatio, atMost(1.2))
}

// makeRelation makes recipients of another number.
func (e *env) makeRelation(ctx context.Context, relation string, size int64) {
	e.say("  making a relation of %s channels", grouped(size))
	of := func(sql string) string { return strings.ReplaceAll(sql, "{{relation}}", relation) }
	_, err := e.pool.Exec(ctx, of(queries.relationCreate))
	e.check(err)
	_, err = e.pool.Exec(ctx, of(queries.relationFill), pgx.StrictNamedArgs{"n": size})
	e.check(err)
}

// weigh returns the peak resident memory, in MiB, of a process that runs one job over the
// relation.
func (e *env) weigh(ctx context.Context, relation string, want int64) float64 {
	e.clear(ctx)
	id := e.enqueue(ctx, everyone(outbox.TypeInbox))
	peak, err := e.runApart(ctx, relation, job.DefaultConfig(), nil)
	e.check(err)
	e.demand(peak > 0, "the runner process did not report its memory")
	e.checkRows(ctx, id, want)
	return float64(peak) / (1 << 20)
}

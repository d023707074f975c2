package main

import (
	"context"
	"errors"
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
func memory(ctx context.Context, e *env, r *result) error {
	sizes := []struct {
		name, relation string
		channels       int64
		peaks          []float64
	}{
		{name: "small", relation: "public.channels_small", channels: e.size / 10},
		{name: "middle", relation: channels.DefaultRelation, channels: e.active},
		{name: "large", relation: "public.channels_large", channels: e.size * 2},
	}
	for _, s := range sizes {
		if s.relation == channels.DefaultRelation {
			continue
		}
		e.say("  making a relation of %s channels", grouped(s.channels))
		of := func(sql string) string { return strings.ReplaceAll(sql, "{{relation}}", s.relation) }
		if _, err := e.pool.Exec(ctx, of(queries.relationCreate)); err != nil {
			return fmt.Errorf("make relation %s: %w", s.relation, err)
		}
		if _, err := e.pool.Exec(ctx, of(queries.relationFill), pgx.StrictNamedArgs{"n": s.channels}); err != nil {
			return fmt.Errorf("fill relation %s: %w", s.relation, err)
		}
	}
	var toSmall, toMiddle []float64
	for round := range e.rounds {
		var peak [3]float64
		for i, s := range sizes {
			var err error
			if peak[i], err = e.weigh(ctx, s.relation, s.channels); err != nil {
				return err
			}
			sizes[i].peaks = append(s.peaks, peak[i])
		}
		toSmall, toMiddle = append(toSmall, peak[2]/peak[0]), append(toMiddle, peak[2]/peak[1])
		e.say("  %d/%d: %s, %s and %s MiB", round+1, e.rounds, number(peak[0]), number(peak[1]), number(peak[2]))
	}
	for _, s := range sizes { // peaks, so the worst of the rounds and not their median
		r.figure(s.name+"_peak", fmt.Sprintf("peak, %s channels", grouped(s.channels)), percentile(s.peaks, 100), "MiB")
	}
	r.figure("large_to_small", "largest to smallest", median(toSmall), unitRatio)
	r.figure("large_to_middle", "largest to middle", median(toMiddle), unitRatio)
	return nil
}

// weigh returns the peak resident memory, in MiB, of a process that runs one job over the
// relation.
func (e *env) weigh(ctx context.Context, relation string, want int64) (float64, error) {
	id, err := e.enqueue(ctx, everyone(outbox.TypeInbox))
	if err != nil {
		return 0, err
	}
	c, err := e.startChild(ctx, relation, job.DefaultConfig())
	if err != nil {
		return 0, err
	}
	last, err := c.end()
	if err != nil {
		return 0, err
	}
	if !last.Ended || last.PeakBytes <= 0 {
		return 0, errors.New("the runner process did not report its memory")
	}
	return float64(last.PeakBytes) / (1 << 20), e.checkRows(ctx, id, want)
}

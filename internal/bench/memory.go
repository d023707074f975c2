package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	goalPeakMiB    = 64
	goalPeakGrowth = 1.2 // of the large job over the small one
	// The sizes of the smallest and the largest job, in --channels.
	smallPart, largeTimes = 10, 2
)

// memory runs inbox jobs of a tenth, one time and twice the channels, each in a
// process of its own with the default configuration, and compares their peak
// resident memory. Of the two ratios the second is the one that growth with the
// size of a job would show in: the small job ends before the chunks have grown to
// their full size and before the Go runtime has collected garbage for the first
// time, which it does at 4 MiB.
func memory(ctx context.Context, e *env, r *Result) error {
	smallest, largest := e.Channels/smallPart, e.Channels*largeTimes
	if err := e.makeRelations(ctx, smallest, largest); err != nil {
		return err
	}
	sizes := []struct {
		name, relation string
		channels       int64
		peaks          []float64
	}{
		{name: "small", relation: "bench.channels_small", channels: smallest},
		{name: "middle", relation: channels.DefaultRelation, channels: e.active},
		{name: "large", relation: "bench.channels_large", channels: largest},
	}
	var toSmall, toMiddle []float64
	for round := range e.Rounds {
		for i := range sizes {
			peak, err := e.weigh(ctx, sizes[i].relation, sizes[i].channels)
			if err != nil {
				return err
			}
			sizes[i].peaks = append(sizes[i].peaks, peak)
		}
		small, middle, large := sizes[0].peaks[round], sizes[1].peaks[round], sizes[2].peaks[round]
		toSmall, toMiddle = append(toSmall, large/small), append(toMiddle, large/middle)
		e.progress("  %d/%d: %s, %s and %s MiB", round+1, e.Rounds, number(small), number(middle), number(large))
	}
	for _, s := range sizes {
		// Peaks, so the worst of the rounds and not their median.
		r.figure(s.name+"_peak", fmt.Sprintf("peak, %s channels", grouped(s.channels)), percentile(s.peaks, 100), unitMiB, atMost(goalPeakMiB))
	}
	r.figure("large_to_small", "largest to smallest", median(toSmall), unitRatio, atMost(goalPeakGrowth))
	r.figure("large_to_middle", "largest to middle", median(toMiddle), unitRatio, atMost(goalPeakGrowth))
	return nil
}

// makeRelations makes the tables that are walked beside belfry.channels.
func (e *env) makeRelations(ctx context.Context, small, large int64) error {
	e.progress("  making relations of %s and %s channels", grouped(small), grouped(large))
	if _, err := e.pool.Exec(ctx, queries.SQL("RelationCreate")); err != nil {
		return fmt.Errorf("make relations: %w", err)
	}
	if _, err := e.pool.Exec(ctx, queries.SQL("RelationFillSmall"), pgx.StrictNamedArgs{"n": small}); err != nil {
		return fmt.Errorf("fill relation: %w", err)
	}
	if _, err := e.pool.Exec(ctx, queries.SQL("RelationFillLarge"), pgx.StrictNamedArgs{"n": large}); err != nil {
		return fmt.Errorf("fill relation: %w", err)
	}
	return nil
}

// weigh returns the peak resident memory, in MiB, of a process that runs one job
// over the relation.
func (e *env) weigh(ctx context.Context, relation string, want int64) (float64, error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	id, err := job.NewStore(e.pool).Enqueue(ctx, everyone(outbox.TypeInbox))
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
	return float64(last.PeakBytes) / (1 << 20), e.checkRows(ctx, job.Job{ID: id, Type: outbox.TypeInbox}, want)
}

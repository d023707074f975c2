package bench

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/outbox"
)

const goalLastToFirst = 1.1

// level runs an inbox job with chunks of one size, a hundred at least, and compares
// the last tenth of them with the first: the keyset walk does not slow down as it
// goes on. The tenths of all rounds are pooled, because one checkpoint in one
// tenth of one round would decide a ratio otherwise.
func level(ctx context.Context, e *env, r *Result) error {
	var firsts, lasts []float64
	for round := range e.Rounds {
		t, err := e.runEveryone(ctx, outbox.TypeInbox, constant(e.pageRows()))
		if err != nil {
			return err
		}
		// The very last chunk is short unless the channels divide evenly.
		first, last := tenths(whole(t.chunks, e.pageRows()))
		firsts, lasts = append(firsts, first...), append(lasts, last...)
		e.progress("  %d/%d: first tenth %s ms, last %s ms", round+1, e.Rounds, number(median(first)), number(median(last)))
	}
	r.figure("first_tenth", fmt.Sprintf("chunks of %s rows: first tenth, p50", grouped(e.pageRows())), median(firsts), unitMS, nil)
	r.figure("last_tenth", "last tenth, p50", median(lasts), unitMS, nil)
	r.figure("last_to_first", "last to first", median(lasts)/median(firsts), unitRatio, atMost(goalLastToFirst))
	return nil
}

// whole are the durations of the chunks that examined as many keys as they might.
func whole(chunks []chunk, keys int64) (ms []float64) {
	for _, c := range chunks {
		if c.keys == keys {
			ms = append(ms, milliseconds(c.took))
		}
	}
	return ms
}

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	goalWalkRatio  = 0.95 // of the speed of one INSERT … SELECT
	goalChunkP99MS = 250
)

// walk runs a job to everyone with the default configuration against the one
// statement that writes the same rows into the same table, for both job types.
func walk(ctx context.Context, e *env, r *Result) error {
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		var walked, plain, ratio, chunks []float64
		for round := range e.Rounds {
			t, took, err := e.walkPair(ctx, kind, round%2 == 1)
			if err != nil {
				return err
			}
			speed := perSecond(e.active, took)
			walked, plain = append(walked, t.speed()), append(plain, speed)
			ratio = append(ratio, t.speed()/speed)
			chunks = append(chunks, t.chunkMS()...)
			e.progress("  %s %d/%d: job %s rows/s, INSERT … SELECT %s, ratio %.3f, %d chunks",
				kind, round+1, e.Rounds, number(t.speed()), number(speed), t.speed()/speed, len(t.chunks))
		}
		r.figure(kind+"_speed", kind+": the job", median(walked), unitSpeed, nil)
		r.figure(kind+"_insert_select_speed", kind+": one INSERT … SELECT", median(plain), unitSpeed, nil)
		r.figure(kind+"_ratio", kind+": ratio", median(ratio), unitRatio, atLeast(goalWalkRatio))
		r.figure(kind+"_chunk_p50", kind+": chunk p50", percentile(chunks, 50), unitMS, nil)
		r.figure(kind+"_chunk_p99", kind+": chunk p99", percentile(chunks, 99), unitMS, atMost(goalChunkP99MS))
	}
	return nil
}

// walkPair runs the job and the one statement, in this order or the other. The
// order alternates from round to round: a machine that gets slower as it works
// would favour whichever always comes first.
func (e *env) walkPair(ctx context.Context, kind string, statementFirst bool) (t tenure, took time.Duration, err error) {
	if statementFirst {
		if took, err = e.insertAll(ctx, kind); err != nil {
			return t, 0, err
		}
	}
	if t, err = e.runEveryone(ctx, kind, job.DefaultConfig()); err != nil || statementFirst {
		return t, took, err
	}
	took, err = e.insertAll(ctx, kind)
	return t, took, err
}

// insertAll writes the rows of a job to everyone by one statement.
func (e *env) insertAll(ctx context.Context, kind string) (time.Duration, error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	sql := queries.SQL("NotificationInsertAll")
	if kind == outbox.TypePush {
		sql = queries.SQL("MessageInsertAll")
	}
	// A prepared statement and an open connection, as the job has.
	began := time.Now()
	tag, err := e.pool.Exec(ctx, sql, pgx.StrictNamedArgs{"job_id": int64(1)})
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("write all rows by one statement: %w", err)
	}
	if tag.RowsAffected() != e.active {
		return 0, fmt.Errorf("one statement wrote %d rows, not %d", tag.RowsAffected(), e.active)
	}
	return took, nil
}

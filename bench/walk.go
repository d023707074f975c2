package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// walk runs a job to everyone with the default configuration against the one statement that
// writes the same rows into the same table, for both job types.
func walk(ctx context.Context, e *env, r *result) {
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		var chunks []float64
		speeds := e.inTurns(unitSpeed, turn{kind + ": job", func() float64 {
			t := e.runEveryone(ctx, kind, job.DefaultConfig())
			chunks = append(chunks, t.whole(0)...)
			return t.speed()
		}}, turn{"one statement", func() float64 { return e.insertAll(ctx, kind) }})
		r.figure(kind+"_speed", kind+": the job", median(speeds[0]), unitSpeed)
		r.figure(kind+"_insert_select_speed", kind+": one INSERT … SELECT", median(speeds[1]), unitSpeed)
		r.figure(kind+"_ratio", kind+": ratio", ratio(speeds[0], speeds[1]), unitRatio, atLeast(0.95))
		r.figure(kind+"_chunk_p50", kind+": chunk p50", percentile(chunks, 50), unitMS)
		r.figure(kind+"_chunk_p99", kind+": chunk p99", percentile(chunks, 99), unitMS, atMost(250))
	}
}

// insertAll writes the rows of a job to everyone by one statement, on an open connection and
// prepared, as the job's are, and returns rows/s.
func (e *env) insertAll(ctx context.Context, kind string) float64 {
	e.clear(ctx)
	sql := queries.notificationInsertAll
	if kind == outbox.TypePush {
		sql = queries.messageInsertAll
	}
	began := time.Now()
	tag, err := e.pool.Exec(ctx, sql, pgx.StrictNamedArgs{"job_id": int64(1)})
	took := time.Since(began)
	e.check(err)
	e.demand(tag.RowsAffected() == e.active, "one statement wrote %d rows, not %d", tag.RowsAffected(), e.active)
	return perSecond(e.active, took)
}

const (
	// One INSERT per row is measured on a sample: up to so many rows, for so long.
	sampleRows = 20_000
	sampleTime = 5 * time.Second
	// mostPageRows is the size of pages and chunks where it is constant, with a hundred of them
	// at least, so that tenths mean something.
	mostPageRows = 10_000
)

func (e *env) pageRows() int64 { return min(mostPageRows, e.size/100) }

// alternatives runs an inbox job against the two loops that such code usually begins with:
// INSERT row by row, and pages by LIMIT and OFFSET.
func alternatives(ctx context.Context, e *env, r *result) {
	var decay []float64
	speeds := e.inTurns(unitSpeed,
		turn{"job", func() float64 { return e.runEveryone(ctx, outbox.TypeInbox, job.DefaultConfig()).speed() }},
		turn{"row by row", func() float64 { return e.insertOneByOne(ctx) }},
		turn{"OFFSET", func() float64 {
			pages, speed := e.insertByOffset(ctx)
			first, last := tenths(pages)
			decay = append(decay, median(last)/median(first))
			return speed
		}})
	r.figure("job_speed", "the job", median(speeds[0]), unitSpeed)
	r.figure("insert_per_row_speed", "one INSERT per row, each committed", median(speeds[1]), unitSpeed)
	r.figure("insert_per_row_ratio", "the job is faster", ratio(speeds[0], speeds[1]), unitTimes)
	r.figure("offset_speed", fmt.Sprintf("OFFSET paging, %s rows a page", grouped(e.pageRows())), median(speeds[2]), unitSpeed)
	r.figure("offset_ratio", "the job is faster", ratio(speeds[0], speeds[2]), unitTimes)
	r.figure("offset_last_to_first", "OFFSET paging: last tenth of pages to first", median(decay), unitRatio)
}

// insertOneByOne returns rows/s of one INSERT per row, each its own transaction.
func (e *env) insertOneByOne(ctx context.Context) float64 {
	e.clear(ctx)
	var ids []int64
	e.look(ctx, e.pool, queries.channelSample, pgx.StrictNamedArgs{"limit": sampleRows}, &ids)
	var done int64
	began := time.Now()
	for _, id := range ids {
		_, err := e.pool.Exec(ctx, queries.notificationInsertOne, pgx.StrictNamedArgs{"channel_id": id, "job_id": int64(1)})
		e.check(err)
		if done++; time.Since(began) > sampleTime {
			break
		}
	}
	speed := perSecond(done, time.Since(began))
	e.checkRows(ctx, 1, done)
	return speed
}

// insertByOffset writes all rows by OFFSET pages and returns what each took, in ms, and rows/s.
func (e *env) insertByOffset(ctx context.Context) (pages []float64, speed float64) {
	e.clear(ctx)
	began := time.Now()
	for offset := int64(0); ; offset += e.pageRows() {
		var read int64
		page := time.Now()
		args := pgx.StrictNamedArgs{"limit": e.pageRows(), "offset": offset, "job_id": int64(1)}
		e.look(ctx, e.pool, queries.notificationInsertOffset, args, &read)
		if read == 0 {
			break
		}
		pages = append(pages, milliseconds(time.Since(page)))
	}
	speed = perSecond(e.active, time.Since(began))
	e.checkRows(ctx, 1, e.active)
	return pages, speed
}

// level runs an inbox job with chunks of one size and compares the last tenth of them with
// the first: the keyset walk does not slow down as it goes on. The tenths of all rounds are
// pooled, because one checkpoint in one tenth of one round would decide a ratio otherwise.
func level(ctx context.Context, e *env, r *result) {
	var firsts, lasts []float64
	for round := range e.rounds {
		t := e.runEveryone(ctx, outbox.TypeInbox, constant(job.DefaultConfig(), e.pageRows()))
		first, last := tenths(t.whole(e.pageRows())) // the very last chunk may be short
		firsts, lasts = append(firsts, first...), append(lasts, last...)
		e.say("  %d/%d: first tenth %s ms, last %s ms", round+1, e.rounds, number(median(first)), number(median(last)))
	}
	r.figure("first_tenth", fmt.Sprintf("chunks of %s rows: first tenth, p50", grouped(e.pageRows())), median(firsts), unitMS)
	r.figure("last_tenth", "last tenth, p50", median(lasts), unitMS)
	r.figure("last_to_first", "last to first", median(lasts)/median(firsts), unitRatio, atMost(1.1))
}

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
func walk(ctx context.Context, e *env, r *result) error {
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		var chunks []float64
		p, err := e.inTurns(kind+": job", func() (float64, error) {
			t, err := e.runEveryone(ctx, kind, job.DefaultConfig())
			chunks = append(chunks, t.whole(0)...)
			return t.speed(), err
		}, "one statement", func() (float64, error) { return e.insertAll(ctx, kind) })
		if err != nil {
			return err
		}
		r.figure(kind+"_speed", kind+": the job", median(p.a), unitSpeed)
		r.figure(kind+"_insert_select_speed", kind+": one INSERT … SELECT", median(p.b), unitSpeed)
		r.figure(kind+"_ratio", kind+": ratio", median(p.ratio), unitRatio)
		r.figure(kind+"_chunk_p50", kind+": chunk p50", percentile(chunks, 50), unitMS)
		r.figure(kind+"_chunk_p99", kind+": chunk p99", percentile(chunks, 99), unitMS)
	}
	return nil
}

// insertAll writes the rows of a job to everyone by one statement, on an open connection and
// prepared, as the job's are.
func (e *env) insertAll(ctx context.Context, kind string) (speed float64, err error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	sql := queries.notificationInsertAll
	if kind == outbox.TypePush {
		sql = queries.messageInsertAll
	}
	began := time.Now()
	tag, err := e.pool.Exec(ctx, sql, pgx.StrictNamedArgs{"job_id": int64(1)})
	took := time.Since(began)
	if err == nil && tag.RowsAffected() != e.active {
		err = fmt.Errorf("one statement wrote %d rows, not %d", tag.RowsAffected(), e.active)
	}
	return perSecond(e.active, took), err
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
func alternatives(ctx context.Context, e *env, r *result) error {
	var walked, single, paged, perRow, perPage, decay []float64
	for round := range e.rounds {
		t, err := e.runEveryone(ctx, outbox.TypeInbox, job.DefaultConfig())
		if err != nil {
			return err
		}
		one, err := e.insertOneByOne(ctx)
		if err != nil {
			return err
		}
		pages, offset, err := e.insertByOffset(ctx)
		if err != nil {
			return err
		}
		first, last := tenths(pages)
		walked, single, paged = append(walked, t.speed()), append(single, one), append(paged, offset)
		perRow, perPage = append(perRow, t.speed()/one), append(perPage, t.speed()/offset)
		decay = append(decay, median(last)/median(first))
		e.say("  %d/%d: job %s rows/s, row by row %s, OFFSET %s", round+1, e.rounds, number(t.speed()), number(one), number(offset))
	}
	r.figure("job_speed", "the job", median(walked), unitSpeed)
	r.figure("insert_per_row_speed", "one INSERT per row, each committed", median(single), unitSpeed)
	r.figure("insert_per_row_ratio", "the job is faster", median(perRow), unitTimes)
	r.figure("offset_speed", fmt.Sprintf("OFFSET paging, %s rows a page", grouped(e.pageRows())), median(paged), unitSpeed)
	r.figure("offset_ratio", "the job is faster", median(perPage), unitTimes)
	r.figure("offset_last_to_first", "OFFSET paging: last tenth of pages to first", median(decay), unitRatio)
	return nil
}

// insertOneByOne returns rows/s of one INSERT per row, each its own transaction.
func (e *env) insertOneByOne(ctx context.Context) (float64, error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	rows, err := e.pool.Query(ctx, queries.channelSample, pgx.StrictNamedArgs{"limit": sampleRows})
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	var done int64
	began := time.Now()
	for _, id := range ids {
		if err := do(ctx, e.pool, queries.notificationInsertOne, pgx.StrictNamedArgs{"channel_id": id, "job_id": int64(1)}); err != nil {
			return 0, err
		}
		if done++; time.Since(began) > sampleTime {
			break
		}
	}
	speed := perSecond(done, time.Since(began))
	return speed, e.checkRows(ctx, 1, done)
}

// insertByOffset writes all rows by OFFSET pages and returns what each took, in ms, and rows/s.
func (e *env) insertByOffset(ctx context.Context) (pages []float64, speed float64, err error) {
	if err := e.clear(ctx); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	for offset := int64(0); ; offset += e.pageRows() {
		var read int64
		page := time.Now()
		args := pgx.StrictNamedArgs{"limit": e.pageRows(), "offset": offset, "job_id": int64(1)}
		if err := look(ctx, e.pool, queries.notificationInsertOffset, args, &read); err != nil {
			return nil, 0, err
		}
		if read == 0 {
			break
		}
		pages = append(pages, milliseconds(time.Since(page)))
	}
	speed = perSecond(e.active, time.Since(began))
	return pages, speed, e.checkRows(ctx, 1, e.active)
}

// level runs an inbox job with chunks of one size and compares the last tenth of them with
// the first: the keyset walk does not slow down as it goes on. The tenths of all rounds are
// pooled, because one checkpoint in one tenth of one round would decide a ratio otherwise.
func level(ctx context.Context, e *env, r *result) error {
	var firsts, lasts []float64
	for round := range e.rounds {
		t, err := e.runEveryone(ctx, outbox.TypeInbox, constant(job.DefaultConfig(), e.pageRows()))
		if err != nil {
			return err
		}
		first, last := tenths(t.whole(e.pageRows())) // the very last chunk may be short
		firsts, lasts = append(firsts, first...), append(lasts, last...)
		e.say("  %d/%d: first tenth %s ms, last %s ms", round+1, e.rounds, number(median(first)), number(median(last)))
	}
	r.figure("first_tenth", fmt.Sprintf("chunks of %s rows: first tenth, p50", grouped(e.pageRows())), median(firsts), unitMS)
	r.figure("last_tenth", "last tenth, p50", median(lasts), unitMS)
	r.figure("last_to_first", "last to first", median(lasts)/median(firsts), unitRatio)
	return nil
}

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
	// One INSERT per row is measured on a sample: up to so many rows, for so long.
	sampleRows = 20_000
	sampleTime = 5 * time.Second
	// offsetRows is the size of an OFFSET page, the one at which level measures.
	offsetRows = 10_000
)

// alternatives runs an inbox job against the two loops that such code usually
// begins with: INSERT row by row, and pages by LIMIT and OFFSET.
func alternatives(ctx context.Context, e *env, r *Result) error {
	var walked, single, paged, perRow, perPage, decay []float64
	for round := range e.Rounds {
		t, err := e.runEveryone(ctx, outbox.TypeInbox, job.DefaultConfig())
		if err != nil {
			return err
		}
		one, err := e.insertOneByOne(ctx)
		if err != nil {
			return err
		}
		pages, err := e.insertByOffset(ctx)
		if err != nil {
			return err
		}
		offset := perSecond(e.active, total(pages))
		walked, single, paged = append(walked, t.speed()), append(single, one), append(paged, offset)
		perRow, perPage = append(perRow, t.speed()/one), append(perPage, t.speed()/offset)
		decay = append(decay, lastToFirst(pages))
		e.progress("  %d/%d: job %s rows/s, row by row %s, OFFSET %s", round+1, e.Rounds, number(t.speed()), number(one), number(offset))
	}
	r.figure("job_speed", "the job", median(walked), unitSpeed, nil)
	r.figure("insert_per_row_speed", "one INSERT per row, each committed", median(single), unitSpeed, nil)
	r.figure("insert_per_row_ratio", "the job is faster", median(perRow), unitTimes, nil)
	r.figure("offset_speed", fmt.Sprintf("OFFSET paging, %s rows a page", grouped(e.pageRows())), median(paged), unitSpeed, nil)
	r.figure("offset_ratio", "the job is faster", median(perPage), unitTimes, nil)
	r.figure("offset_last_to_first", "OFFSET paging: last tenth of pages to first", median(decay), unitRatio, nil)
	return nil
}

// insertOneByOne returns rows/s of one INSERT per row, each its own transaction.
func (e *env) insertOneByOne(ctx context.Context) (float64, error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	rows, err := e.pool.Query(ctx, queries.SQL("ChannelSample"), pgx.StrictNamedArgs{"limit": min(sampleRows, e.Channels)})
	if err != nil {
		return 0, fmt.Errorf("sample channels: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("sample channels: %w", err)
	}
	const jobID = 1
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	sql := queries.SQL("NotificationInsertOne")
	var done int64
	began := time.Now()
	for _, id := range ids {
		if _, err := conn.Exec(ctx, sql, pgx.StrictNamedArgs{"channel_id": id, "job_id": int64(jobID)}); err != nil {
			return 0, fmt.Errorf("insert one row: %w", err)
		}
		if done++; time.Since(began) > sampleTime {
			break
		}
	}
	took := time.Since(began)
	return perSecond(done, took), e.checkRows(ctx, job.Job{ID: jobID, Type: outbox.TypeInbox}, done)
}

// pageRows is the size of pages and chunks where it is constant: a hundred of
// them at least, so that tenths mean something.
func (e *env) pageRows() int64 { return min(offsetRows, e.Channels/100) }

// insertByOffset writes all rows by OFFSET pages and returns what each took.
func (e *env) insertByOffset(ctx context.Context) ([]time.Duration, error) {
	if err := e.clear(ctx); err != nil {
		return nil, err
	}
	const jobID = 1
	var pages []time.Duration
	for offset := int64(0); ; offset += e.pageRows() {
		var read int64
		began := time.Now()
		err := e.pool.QueryRow(ctx, queries.SQL("NotificationInsertOffset"), pgx.StrictNamedArgs{
			"limit": e.pageRows(), "offset": offset, "job_id": int64(jobID),
		}).Scan(&read)
		if err != nil {
			return nil, fmt.Errorf("page at offset %d: %w", offset, err)
		}
		if read == 0 {
			break
		}
		pages = append(pages, time.Since(began))
	}
	return pages, e.checkRows(ctx, job.Job{ID: jobID, Type: outbox.TypeInbox}, e.active)
}

func total(durations []time.Duration) (sum time.Duration) {
	for _, d := range durations {
		sum += d
	}
	return sum
}

// lastToFirst is the median of the last tenth over that of the first.
func lastToFirst(durations []time.Duration) float64 {
	ms := make([]float64, 0, len(durations))
	for _, d := range durations {
		ms = append(ms, milliseconds(d))
	}
	first, last := tenths(ms)
	return median(last) / median(first)
}

package job_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// races is one job that is aborted and resumed again and again.
type races struct {
	b       *bundle
	id      int64
	checked int64 // rows up to this channel have been counted
	others  []time.Duration
}

// halted is what an abort must leave as it is.
type halted struct {
	Status          job.Status
	Cursor          int64
	Fence, Chunks   int64
	Written         int64
	Ahead           int64 // rows above the cursor
	Since, Channels int64 // rows, and channels, up to the cursor that were not counted yet
}

func (r *races) look(t *testing.T) (h halted) {
	t.Helper()
	require.NoError(t, r.b.db.Pool.QueryRow(t.Context(), `
		SELECT j.status, k.at, j.fence, j.chunks, j.rows_written,
		       (SELECT count(*) FROM belfry.messages m WHERE m.job_id = j.id AND m.channel_id > k.at),
		       (SELECT count(*) FROM belfry.messages m WHERE m.job_id = j.id AND m.channel_id > $2 AND m.channel_id <= k.at),
		       (SELECT count(*) FROM belfry.channels c WHERE c.id > $2 AND c.id <= k.at)
		  FROM belfry.jobs j, LATERAL (SELECT coalesce(nullif(j."cursor", ''), '0')::bigint AS at) k
		 WHERE j.id = $1`, r.id, r.checked).
		Scan(&h.Status, &h.Cursor, &h.Fence, &h.Chunks, &h.Written, &h.Ahead, &h.Since, &h.Channels))
	return h
}

// raceMode is how the abort meets the chunks.
type raceMode struct {
	name   string
	rows   int           // keys per chunk at first
	target time.Duration // of a chunk
	window time.Duration // the abort comes at random within it
	after  string        // from this point of a chunk on; empty: from the claim on
}

// I6: an operator's UPDATE races with the chunks of a run, many times: anywhere in
// chunks of a quarter of a second, and within a millisecond or two of a small chunk's
// last statement. When it has returned there is no further row and no further
// move of the cursor, at once, and when the run has noticed as well. The
// acknowledgement waits for one COMMIT at most, and for its own, which has the server
// flush what the chunk has written so far. With BELFRY_TEST_ABORTS=2000 that many
// times, on a server that writes through to its disk, and the times are worth
// reporting.
func TestChaos_AbortRacesWithTheCommit(t *testing.T) {
	t.Parallel()
	const few = 60
	n := count(t, "BELFRY_TEST_ABORTS", few)
	channels := 200_000
	var b *bundle
	if n == few {
		b = setup(t, channels)
	} else {
		channels = 1_000_000
		b = setupOn(t, dbtest.NewOn(t, dbtest.NewServer(t, true)), channels)
	}
	b.keepLedger(t)
	b.exec(t, `CREATE TABLE public.other AS SELECT 0 AS n`)
	modes := []raceMode{
		{"anywhere in chunks of 250 ms", 25_000, 250 * time.Millisecond, 500 * time.Millisecond, ""},
		{"around a small chunk's COMMIT", 500, 5 * time.Millisecond, 3 * time.Millisecond, job.PointWritten},
		{"after a small chunk's last statement", 500, 5 * time.Millisecond, time.Millisecond, job.PointMoved},
	}
	took := make([][]time.Duration, len(modes))
	r := &races{b: b}
	unfinished := 0
	for i := range n {
		m := i % len(modes)
		if d, ran := r.race(t, modes[m], i); ran {
			took[m] = append(took[m], d)
		} else {
			unfinished++
		}
	}
	b.requireLedger(t)
	for m, mode := range modes {
		t.Logf("acknowledgement of an abort %s, %s", mode.name, percentiles(took[m]))
	}
	t.Logf("COMMIT of another row, in the same moments as the first, %s", percentiles(r.others))
	require.Less(t, unfinished, n/2, "the job was done too often before its abort")
}

// race resumes the job, aborts it at random, and returns how long that took; false
// when the job was done before.
func (r *races) race(t *testing.T, mode raceMode, i int) (took time.Duration, ran bool) {
	t.Helper()
	b := r.b
	if r.id == 0 {
		b.exec(t, `TRUNCATE belfry.message_rows`)
		r.id, r.checked = b.enqueue(t, job.Spec{Type: outbox.TypePush}), 0
	} else {
		_, err := b.jobs.Resume(t.Context(), job.One(r.id), job.Act{Actor: "races"})
		require.NoError(t, err)
	}
	c := config("r")
	c.Chunk = governor.ChunkConfig{InitialRows: mode.rows, MinRows: mode.rows, MaxRows: 200_000, Target: mode.target}
	c.Load.Health.Enabled = false
	arrived := make(chan struct{}, 1)
	skip := rand.IntN(4)
	s := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(_ context.Context, point string) error {
		if point == mode.after {
			if skip--; skip < 0 {
				select {
				case arrived <- struct{}{}:
				default:
				}
			}
		}
		return nil
	})))
	b.eventually(t, `SELECT status <> 'PENDING' FROM belfry.jobs WHERE id = $1`, r.id)
	if mode.after != "" {
		select {
		case <-arrived:
		case <-s.ended:
		}
	} else {
		r.other(t, time.Duration(rand.Int64N(int64(mode.window))))
	}
	rest(t, time.Duration(rand.Int64N(int64(mode.window))))
	began := time.Now()
	b.abort(t, r.id)
	took = time.Since(began)
	acknowledged := r.look(t)
	s.wait(t)
	require.Equal(t, acknowledged, r.look(t), "race %d, %s: something was committed after the acknowledgement", i, mode.name)
	require.Zero(t, acknowledged.Ahead, "race %d, %s: rows above the cursor", i, mode.name)
	require.Equal(t, acknowledged.Channels, acknowledged.Since, "race %d, %s: rows up to the cursor", i, mode.name)
	r.checked = acknowledged.Cursor
	if acknowledged.Status == job.Processed {
		r.id = 0
		return 0, false
	}
	require.Equal(t, job.Aborted, acknowledged.Status)
	return took, true
}

// other measures what a COMMIT costs that has nothing to do with the job: the server
// flushes what the chunk has written so far with it.
func (r *races) other(t *testing.T, after time.Duration) {
	t.Helper()
	rest(t, after)
	began := time.Now()
	r.b.exec(t, `UPDATE public.other SET n = n + 1`)
	r.others = append(r.others, time.Since(began))
}

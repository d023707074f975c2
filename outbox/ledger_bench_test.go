package outbox_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// One relay's way of 200,000 messages from PENDING to SENT, durable, in batches of 500,
// without any provider. Run it with -benchtime 1x: each iteration is a whole job.
func BenchmarkLedger(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			const messages, batch = 200_000, 500
			db := dbtest.NewOn(b, dbtest.NewServer(b, true))
			bench := &bundle{Database: &outboxtest.Database{DB: db}, jobs: job.NewStore(db.Pool)}
			for b.Loop() {
				b.StopTimer()
				id := bench.Rest(b, outbox.TypePush, messages, job.Processed)
				bench.Exec(b, `VACUUM (ANALYZE) belfry.message_rows`)
				bench.Exec(b, `CHECKPOINT`)
				b.StartTimer()
				began := time.Now()
				sendAll(b, db.Pool, id, workers, batch)
				b.ReportMetric(messages/1000/time.Since(began).Seconds(), "krows/s")
			}
		})
	}
}

// sendAll has workers send a job's messages: one claims, and gives each batch to a
// worker.
func sendAll(b *testing.B, pool *pgxpool.Pool, id int64, workers, batch int) {
	b.Helper()
	l := outbox.NewLedger(pool, "bench", time.Minute)
	batches := make(chan []outbox.Claimed, workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for claimed := range batches {
				handOver(b, l, claimed, nil)
				_, err := l.Recheck(b.Context(), claimed)
				require.NoError(b, err)
				_, err = l.Settle(b.Context(), each(claimed, sent), []int64{claimed[0].LeaseID})
				require.NoError(b, err)
			}
		})
	}
	var position outbox.Position
	for {
		claimed, next, err := l.ClaimJob(b.Context(), id, position, batch, outbox.AnyTry)
		require.NoError(b, err)
		if len(claimed) == 0 {
			break
		}
		position = next
		batches <- claimed
	}
	close(batches)
	wg.Wait()
}

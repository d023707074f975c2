// Package samples stores figures per minute in belfry.samples, and reads them for charts.
//
//	job.Progress ───────────► Recorder ── after each minute, one statement ──► belfry.samples ──► Series
//	outbox.Observer's events ─►    └─ the present minute, in memory
//
// A Recorder is one process's. It counts the events that a runner and a relay report after their COMMIT:
//
//   - a lane or a job: the rows of committed chunks;
//   - a job: messages that became SENT, became dead letters, or were deferred;
//   - a sender: messages that became SENT through it, failed attempts and deferred messages, its longest
//     queue, and the 95th percentile of its calls.
//
// # Guarantees
//
//   - At most one statement for each minute with an event, and none for a minute without. It has a
//     transaction of its own with a deadline. It never runs in the transaction of a chunk or a settlement,
//     and nothing waits for it except the end of the process.
//   - No figure is stored twice. If the answer to a COMMIT is lost, the figures of that statement are dropped.
//     After any other error they are stored with the next minute's, for ten minutes at most.
//   - A killed process loses the figures that it has not stored: the present minute, and the minutes that
//     could not be stored.
//   - Each minute has the 200 busiest subjects of a kind and process. The rest is added up under [Rest], so
//     that the sums of a kind remain exact.
//
// A receipt that two relays read at the same time counts for both.
//
// The database's clock decides which minute a figure belongs to: the process sends ages, and aligns its
// minutes with the clock that the last statement returned.
package samples

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct {
	samplesAdd, sampleSeries, sampleSeriesOfKind string
}

package samples

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// MostPoints is the maximum number of points of a Series.
const MostPoints = 500

// readTimeout bounds the query of a Series.
const readTimeout = 10 * time.Second

// Point has the figures of one step, by the meaning of belfry.samples. All are zero in a step without samples.
type Point struct {
	At          time.Time `json:"at" db:"at"` // the step's beginning, in UTC
	RowsWritten int64     `json:"rows_written" db:"rows_written"`
	Sent        int64     `json:"sent" db:"sent"`
	Failed      int64     `json:"failed" db:"failed"`
	Deferred    int64     `json:"deferred" db:"deferred"`
	QueueDepth  int64     `json:"queue_depth" db:"queue_depth"` // the greatest
	P95MS       int64     `json:"p95_ms" db:"p95_ms"`           // the greatest
}

// Series returns the figures of a subject from one time to before another, one point for each step. An empty
// name means all subjects of the kind together, Rest included. from and to are rounded down to minutes, and the
// step must be whole minutes. The last step may end after to. It is an error if there would be no point, or more
// than MostPoints.
func Series(ctx context.Context, pool *pgxpool.Pool, kind Kind, name string, from, to time.Time, step time.Duration) ([]Point, error) {
	from, to = from.UTC().Truncate(time.Minute), to.UTC().Truncate(time.Minute)
	if step < time.Minute || step%time.Minute != 0 {
		return nil, fmt.Errorf("samples: a step of %s is not allowed; allowed values: whole minutes", step)
	}
	n := (to.Sub(from) + step - 1) / step
	if n < 1 || n > MostPoints {
		return nil, fmt.Errorf("samples: %d steps of %s from %s to %s are not allowed; allowed values: 1 to %d steps",
			n, step, from.Format(time.RFC3339), to.Format(time.RFC3339), MostPoints)
	}
	points := make([]Point, n)
	for i := range points {
		points[i].At = from.Add(time.Duration(i) * step)
	}
	statement := queries.sampleSeriesOfKind
	args := pgx.StrictNamedArgs{"kind": string(kind), "from": from, "to": to, "seconds": step.Seconds()}
	if name != "" {
		statement, args["name"] = queries.sampleSeries, name
	}
	err := db.InTx(ctx, pool, db.Options{Limit: readTimeout, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		found, err := db.All[Point](ctx, tx, statement, args)
		for _, p := range found {
			p.At = p.At.UTC()
			points[p.At.Sub(from)/step] = p
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", job.TranslateError(err, job.ErrLocked, ""))
	}
	return points, nil
}

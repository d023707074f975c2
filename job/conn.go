package job

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// conn is the server connection that a run holds from its claim to its end. Its backend is recorded in the
// job's row: when the runner's process dies, so does the backend, and any other runner detects that at once.
type conn struct {
	db.Held
	// recorded is the pid that was last written to the job's row; see moved.
	recorded int64
}

// moved reports whether the job's row contains another connection than this one. That connection is closed,
// so that the run seems dead.
func (l *conn) moved() bool { return l.PID() != l.recorded }

// act runs do in one short transaction on the connection (see db.InTx).
func (l *conn) act(ctx context.Context, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return l.inTx(ctx, db.Options{Limit: limit}, do)
}

// often is act for a claim, which caches its plans for one second.
func (l *conn) often(ctx context.Context, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return l.inTx(ctx, db.Options{Limit: limit, Often: true}, do)
}

func (l *conn) inTx(ctx context.Context, o db.Options, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	conn, err := l.Get(ctx)
	if err != nil {
		return err
	}
	return db.InTx(ctx, conn, o, do)
}

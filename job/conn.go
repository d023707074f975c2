package job

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// link is the server connection that a run holds from its claim to its end. Its
// backend is recorded in the job's row: when the runner's process dies, so does the
// backend, and any other runner sees that at once.
type conn struct {
	pool *pgxpool.Pool
	conn *pgxpool.Conn // nil: none now
	// recorded is the pid that the job's row was last told; see moved.
	recorded int64
}

// get returns the connection, a new one if the last was lost or dropped.
func (l *conn) get(ctx context.Context) (*pgxpool.Conn, error) {
	if l.conn != nil && l.conn.Conn().IsClosed() {
		l.drop()
	}
	if l.conn == nil {
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	return l.conn, nil
}

// drop gives the connection up; the next get takes another.
func (l *conn) drop() {
	if l.conn != nil {
		l.conn.Release()
		l.conn = nil
	}
}

// pid is what the connection believes its backend to be; 0 without a connection.
// Behind a pooler in transaction mode that is a number the server does not know.
func (l *conn) pid() int64 {
	if l.conn == nil {
		return 0
	}
	return int64(l.conn.Conn().PgConn().PID())
}

// moved reports whether the job's row names another connection than this one: the
// one that it names is gone, and the run looks dead.
func (l *conn) moved() bool { return l.pid() != l.recorded }

// act runs do in one short transaction on the connection (see db.InTx).
func (l *conn) act(ctx context.Context, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return l.inTx(ctx, db.Options{Limit: limit}, do)
}

// often is act for a claim. A run does not have its plans forgotten every second.
func (l *conn) often(ctx context.Context, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return l.inTx(ctx, db.Options{Limit: limit, Often: true}, do)
}

func (l *conn) inTx(ctx context.Context, o db.Options, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return db.InTx(ctx, conn, o, do)
}

package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// HeldError reports that another session held a lock that a migration needs for LockTimeout.
type HeldError struct {
	Waited time.Duration
	// OfTable means a lock of a table, which applications, runners and relays also take. Otherwise it is the
	// lock that serialises migrating nodes.
	OfTable bool
	// PID, Role and Application identify the session. A PID of 0 means that they could not be read.
	PID               int
	Role, Application string
	Err               error
}

// Error names the session, if it is known, and the remedy.
func (e *HeldError) Error() string {
	switch {
	case e.OfTable:
		return fmt.Sprintf("another session has locked a table for %s: stop the users of belfry, or migrate at a time of less load", e.Waited)
	case e.PID == 0:
		return fmt.Sprintf("another session has had the lock of the migrations for %s: wait for its end if it migrates, or end it", e.Waited)
	}
	return fmt.Sprintf(
		"session %d of %s (%s) has had the lock of the migrations for %s: wait for its end if it migrates, or end it: SELECT "+
			"pg_terminate_backend(%d)",
		e.PID, e.Role, e.Application, e.Waited, e.PID)
}

func (e *HeldError) Unwrap() error { return e.Err }

// wait returns the time to wait for a lock, so that a caller with a deadline still gets the reason.
func (c Config) wait(ctx context.Context) time.Duration {
	wait := c.LockTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	return max(wait.Round(time.Millisecond), time.Millisecond) // 0 means no limit
}

// explainLock returns a *HeldError for a timeout of lockKey or of a lock of a table.
func (c Config) explainLock(ctx context.Context, db *sql.DB, err error, ofKey bool) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "55P03" { // lock_not_available
		return err
	}
	held := &HeldError{Waited: c.LockTimeout, OfTable: !ofKey, Err: err}
	if !ofKey {
		return held
	}
	//sql:allow migrations stands alone
	errHolder := db.QueryRowContext(ctx, `SELECT l.pid, coalesce(a.usename::text, '?'), coalesce(nullif(a.application_name, ''), 'unnamed')
		  FROM pg_locks l
		  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
		   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		   AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295`, int64(lockKey)).Scan(&held.PID,
		&held.Role, &held.Application)
	if errHolder != nil { // it has ended, or this login may not read sessions
		held.PID = 0
	}
	return held
}

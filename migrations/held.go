package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A statement of the foreground that needs a table waits behind a migration that waits for its lock. One attempt
// to lock tables is therefore short, and the statements that have queued meanwhile run in the pause after it.
const (
	lockAttempt = 500 * time.Millisecond
	lockPause   = time.Second
	// PostgreSQL cancels an autovacuum that a session has waited for during deadlock_timeout, which is 1 s by
	// default. A role that may set it sets it to deadlockTimeout. For other roles, every fifth attempt lasts longer
	// than it if an autovacuum runs.
	deadlockTimeout = 100 * time.Millisecond
	vacuumAttempts  = 5
)

// retryLocks calls do with attempts to lock tables, until it returns another error than a lock timeout or
// c.LockTimeout is over.
func (c Config) retryLocks(ctx context.Context, db *sql.DB, do func(attempt Config) error) error {
	for began, n := time.Now(), 1; ; n++ {
		wait := lockAttempt
		if n%vacuumAttempts == 0 {
			var err error
			if wait, err = autovacuumWait(ctx, db); err != nil {
				return err
			}
		}
		attempt := c
		attempt.LockTimeout = min(wait, c.LockTimeout)
		err := do(attempt)
		if !lockedOut(err) || time.Since(began)+lockPause > c.LockTimeout {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPause):
		}
	}
}

// autovacuumWait returns the duration of an attempt in which PostgreSQL cancels the autovacuum of a table of belfry, if one
// runs and the role may not set deadlock_timeout, and lockAttempt otherwise. Autovacuum is a session without a role.
func autovacuumWait(ctx context.Context, db *sql.DB) (time.Duration, error) {
	var ms int64
	//sql:allow migrations stands alone
	err := db.QueryRowContext(ctx, `SELECT coalesce(max(s.setting::bigint + 200), 0)
		  FROM pg_settings s
		 WHERE s.name = 'deadlock_timeout' AND NOT has_parameter_privilege('deadlock_timeout', 'SET')
		   AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
		        WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND c.relnamespace = to_regnamespace('belfry') AND a.usesysid IS NULL
		          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))`).Scan(&ms)
	return max(time.Duration(ms)*time.Millisecond, lockAttempt), err
}

// lockedOut reports a lock timeout, or a deadlock, which a migration provokes if it locks tables in another order than
// a transaction of the foreground.
func lockedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == lockNotAvailable || pg.Code == "40P01")
}

// lockNotAvailable is the SQLSTATE of a lock timeout.
const lockNotAvailable = "55P03"

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
		return fmt.Sprintf("other sessions have kept a table locked at each attempt within %s: end long transactions on it, or migrate "+
			"at a time of less load with a longer --lock-timeout", e.Waited)
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
	if !errors.As(err, &pg) || pg.Code != lockNotAvailable && (ofKey || !lockedOut(err)) {
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

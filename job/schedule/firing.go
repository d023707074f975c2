package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// locked is a schedule whose row the transaction has locked, with the current time.
type locked struct {
	Schedule
	Now time.Time `db:"now"`
}

// lock runs a statement that locks a schedule. For pgx.ErrNoRows see the statement.
func lock(ctx context.Context, tx pgx.Tx, statement string, args pgx.StrictNamedArgs) (l locked, err error) {
	l, err = db.One[locked](ctx, tx, statement, args)
	if err != nil {
		return locked{}, err
	}
	l.tidy()
	l.Now = l.Now.UTC()
	return l, nil
}

// firing is the transaction that fires one schedule.
type firing struct {
	*Firer
	locked
	tx    pgx.Tx
	began time.Time // process clock, for the budget only
	done  Fired
	lost  error // a fault whose connection has ended
}

// process skips and fires all due occurrences.
func (f *firing) process(ctx context.Context) error {
	recurs, r, err := f.read()
	if err != nil {
		return f.failed(ctx, err)
	}
	var next time.Time
	if f.NextAt != nil {
		next = *f.NextAt
	} else if next = recurs.next(f.ArmedAt); next.IsZero() {
		return f.failed(ctx, errors.New("no occurrence within nine years"))
	} else if err := f.arm(ctx, next); err != nil {
		return err
	}
	if f.hopeless(next, r) {
		next = recurs.next(next)
		if err := f.skip(ctx, 1, next, fmt.Sprintf("gave up after %d attempts: %s", f.Failures, f.LastError)); err != nil {
			return err
		}
	}
	if next.IsZero() || next.After(f.Now) {
		return nil
	}
	d := decide(recurs, next, f.Now, r)
	if err := f.skip(ctx, d.expired, d.live, "older than template.expires_after"); err != nil {
		return err
	}
	if err := f.skip(ctx, d.missed, d.next, "missed"); err != nil {
		return err
	}
	for i, o := range d.fire {
		if i > 0 && time.Since(f.began) > fireBudget {
			break // the next tick continues
		}
		if goOn, err := f.fireOne(ctx, recurs, o); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// read parses the rules of the row. The caller stores its error in the row, because plain SQL permits definitions that Go
// rejects.
func (f *firing) read() (recurrence, rules, error) {
	recurs, err := f.recurrence(f.CreatedAt)
	if err != nil {
		return nil, rules{}, err
	}
	r := rules{missed: f.Missed}
	if r.missedAfter, err = parseSpan(f.After); err != nil {
		return nil, rules{}, fmt.Errorf("missed_after: %w", err)
	}
	if text := f.Template.ExpiresAfter; text != "" {
		if r.expiresAfter, err = parseSpan(text); err != nil {
			return nil, rules{}, fmt.Errorf("template.expires_after: %w", err)
		}
	}
	return recurs, r, nil
}

// hopeless reports whether the occurrence has been failing for missed_after.
func (f *firing) hopeless(next time.Time, r rules) bool {
	return f.FailingSince != nil && f.Now.Sub(*f.FailingSince) > r.missedAfter && f.Now.Sub(next) > r.missedAfter
}

func (f *firing) arm(ctx context.Context, next time.Time) error {
	_, err := f.tx.Exec(ctx, queries.scheduleArm, pgx.StrictNamedArgs{"name": f.Name, "next_at": next})
	return err
}

func (f *firing) skip(ctx context.Context, count int, next time.Time, reason string) error {
	if count == 0 {
		return nil
	}
	if err := actor(ctx, f.tx, job.Act{Actor: f.name, Reason: reason}); err != nil {
		return err
	}
	_, err := f.tx.Exec(ctx, queries.scheduleSkip, pgx.StrictNamedArgs{"name": f.Name, "count": count, "next_at": orNever(next)})
	f.done.Skipped += count
	return err
}

// fireOne enqueues one occurrence and stores the next one, or records the error and returns false.
func (f *firing) fireOne(ctx context.Context, recurs recurrence, o time.Time) (bool, error) {
	if err := actor(ctx, f.tx, job.Act{Actor: f.name}); err != nil {
		return false, err
	}
	var jobs []int64
	err := pgx.BeginFunc(ctx, f.tx, func(tx pgx.Tx) (err error) { // a savepoint
		jobs, err = f.enqueue(ctx, tx, o, "schedule:"+f.Name+":"+o.UTC().Format(time.RFC3339Nano))
		return err
	})
	if OwnFault(err) && f.tx.Conn().IsClosed() {
		f.lost = err
		return false, err
	} else if OwnFault(err) {
		return false, f.failed(ctx, err)
	}
	if err == nil {
		err = f.at(ctx, "enqueued")
	}
	if err != nil {
		return false, err
	}
	_, err = f.tx.Exec(ctx, queries.scheduleFired, pgx.StrictNamedArgs{
		"name": f.Name, "last_at": o, "now": f.Now, "jobs": jobs, "next_at": orNever(recurs.next(o)),
	})
	f.done.Occurrences = append(f.done.Occurrences, Occurrence{Schedule: f.Name, At: o, Jobs: jobs})
	return err == nil, err
}

// failed records the fault and the time of the next attempt.
func (f *firing) failed(ctx context.Context, cause error) error {
	if err := actor(ctx, f.tx, job.Act{Actor: f.name}); err != nil {
		return err
	}
	pause := min(time.Second<<min(f.Failures, 6), maxRetryPause)
	_, err := f.tx.Exec(ctx, queries.scheduleFailed, pgx.StrictNamedArgs{
		"name": f.Name, "error": cause.Error(), "retry_at": f.Now.Add(pause), "now": f.Now,
	})
	f.done.Failed = append(f.done.Failed, Failure{Schedule: f.Name, Err: cause})
	return err
}

// orNever returns next, or an instant in the far future if there is no next occurrence. NULL would restart the schedule.
func orNever(next time.Time) time.Time {
	if next.IsZero() {
		return time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC)
	}
	return next
}

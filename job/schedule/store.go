package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// storeTimeout bounds each transaction of a Store.
const storeTimeout = 15 * time.Second

// lockWait bounds the wait of a change for a lock of another session.
const lockWait = 5 * time.Second

// Source is the place of a schedule's definition.
type Source string

// The sources, with the values of schedules.source.
const (
	FromConfig   Source = "config"   // the configuration file
	FromDatabase Source = "database" // SQL, a command, Go
)

// Schedule is one row of belfry.schedules: a definition and how it goes. Instants are
// the database's, in UTC.
type Schedule struct {
	Definition
	Source       Source     `json:"source" db:"source"`
	QueryBy      string     `json:"query_by,omitempty" db:"query_by"` // the database role that stored the query; empty: not stored
	PausedAt     *time.Time `json:"paused_at" db:"paused_at"`         // nil: not paused
	PausedBy     string     `json:"paused_by,omitempty" db:"paused_by"`
	PauseReason  string     `json:"pause_reason,omitempty" db:"pause_reason"`
	ArmedAt      time.Time  `json:"armed_at" db:"armed_at"`                           // occurrences after it count
	NextAt       *time.Time `json:"next_at" db:"next_at"`                             // nil if paused, or not examined since its last change
	RetryAt      *time.Time `json:"retry_at" db:"retry_at"`                           // nil: not failing
	FailingSince *time.Time `json:"failing_since" db:"failing_since"`                 // of the occurrence at NextAt
	LastAt       *time.Time `json:"last_at" db:"last_at"`                             // the last occurrence that fired
	LastFiredAt  *time.Time `json:"last_fired_at" db:"last_fired_at"`                 // when it did, or RunNow
	LastJobs     []int64    `json:"last_jobs" db:"last_jobs"`                         // what that enqueued
	LastError    string     `json:"last_error,omitempty" db:"last_error" mask:"text"` // empty: the last attempt succeeded
	Failures     int        `json:"failures" db:"failures"`                           // attempts since the last firing
	Fired        int64      `json:"fired" db:"fired"`                                 // firings in all
	Skipped      int64      `json:"skipped" db:"skipped"`                             // occurrences dropped in all
	CreatedAt    time.Time  `json:"created_at" db:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at" db:"updated_at"` // of the definition
	// Version is the id of the event of the newest act on it: a change, a pause, a firing by hand.
	Version int64 `json:"version" db:"version"`
}

// ResourceVersion returns Version. It makes a Schedule a versioned result of an operation.
func (s Schedule) ResourceVersion() (version int64, one bool) { return s.Version, true }

// PausedSince returns PausedAt and the subject and name of the events.
func (s Schedule) PausedSince() (since *time.Time, subject, name string) {
	return s.PausedAt, job.SubjectSchedule, s.Name
}

// Next returns the schedule's first n occurrences after an instant, as if it were not
// paused.
func (s Schedule) Next(after time.Time, n int) ([]time.Time, error) {
	return s.Definition.next(s.CreatedAt, after, n)
}

// tidy brings a row as it was read into the form that people write.
func (s *Schedule) tidy() {
	for _, text := range []*string{&s.Every, &s.After, &s.QueryTimeout} {
		if d, err := time.ParseDuration(*text); err == nil {
			*text = spanText(d)
		}
	}
	s.Definition = s.withDefaults()
	s.ArmedAt, s.CreatedAt, s.UpdatedAt = s.ArmedAt.UTC(), s.CreatedAt.UTC(), s.UpdatedAt.UTC()
	for _, at := range []*time.Time{s.PausedAt, s.NextAt, s.RetryAt, s.FailingSince, s.LastAt, s.LastFiredAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
}

// Store reads schedules and executes operators' changes, each in a transaction with a timeout of 15 seconds; RunNow has 30
// seconds and the query's timeout. A change that returns job.ErrUnreachable may have been committed. A Store is safe for
// concurrent use.
type Store struct{ pool *pgxpool.Pool }

// NewStore returns a Store over pool, which the caller closes.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// CheckQuery returns an error if this user cannot run a schedule's query, because it cannot become query_role or the role
// lacks permissions. It plans the query and does not run it. Without a query it returns nil.
func (s *Store) CheckQuery(ctx context.Context, c Schedule) error {
	if c.Query == "" {
		return nil
	}
	return inTx(ctx, s.pool, checkTimeout, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.answer(ctx, tx, time.Now(), queries.queryPlan)
		return err
	})
}

// checkTimeout is the timeout of a check of a schedule's query.
const checkTimeout = 10 * time.Second

// inTx runs do in one short transaction.
func inTx(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, pool, db.Options{Limit: limit}, do))
}

// change is inTx for a change by an operator; it checks act.If first.
func (s *Store) change(ctx context.Context, limit time.Duration, act job.Act, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, s.pool, db.Options{Limit: limit, Wait: lockWait, If: act.If}, do))
}

// explainLock adds the session that locks a schedule's row to an error of a lock.
func (s *Store) explainLock(ctx context.Context, err error, name string) error {
	return db.ExplainLock(ctx, s.pool, err, "schedule "+name, "schedules", name)
}

// read runs do in one short transaction that only reads, as on a standby.
func (s *Store) read(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, s.pool, db.Options{Limit: storeTimeout, Reads: true}, do))
}

// actor sets the actor for the rest of the transaction.
func actor(ctx context.Context, tx pgx.Tx, act job.Act) error {
	_, err := tx.Exec(ctx, queries.actorSet, pgx.StrictNamedArgs{"actor": act.Actor, "reason": act.Reason})
	return err
}

// List returns every schedule, by name.
func (s *Store) List(ctx context.Context) (list []Schedule, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if list, err = db.All[Schedule](ctx, tx, queries.scheduleList); err != nil {
			return fmt.Errorf("list schedules: %w", err)
		}
		return nil
	})
	for i := range list {
		list[i].tidy()
	}
	return list, err
}

// Get returns one schedule, or ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (one Schedule, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		one, err = get(ctx, tx, name)
		return err
	})
	return one, s.explainLock(ctx, err, name)
}

func get(ctx context.Context, tx pgx.Tx, name string) (Schedule, error) {
	one, err := db.One[Schedule](ctx, tx, queries.scheduleGet, pgx.StrictNamedArgs{"name": name})
	if errors.Is(err, pgx.ErrNoRows) {
		return Schedule{}, fmt.Errorf("schedule %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	one.tidy()
	return one, nil
}

// Change is the result of Put.
type Change string

// What Put may have done.
const (
	Created   Change = "created"
	Changed   Change = "changed"
	Unchanged Change = "unchanged"
)

// Put stores d as the schedule of its name. A pause and the records of firings remain; a new recurrence applies from now
// on. If the schedule comes from another source, Put returns a *SourceError and changes nothing. Invalid input returns the
// error of Validate or a *job.InvalidError.
func (s *Store) Put(ctx context.Context, d Definition, source Source, act job.Act) (change Change, err error) {
	if err := d.Validate(""); err != nil {
		return "", fmt.Errorf("schedule %s: %w", d.Name, err)
	}
	d = d.withDefaults()
	template, err := json.Marshal(d.Template)
	if err != nil {
		return "", fmt.Errorf("schedule %s: %w", d.Name, err)
	}
	args := pgx.StrictNamedArgs{
		"name": d.Name, "source": string(source), "cron": d.Cron, "every": d.Every, "time_zone": d.TimeZone, "template": string(template),
		"query": d.Query, "query_timeout": d.QueryTimeout, "query_role": d.QueryRole, "missed": string(d.Missed), "missed_after": d.After,
	}
	err = s.change(ctx, storeTimeout, act, func(ctx context.Context, tx pgx.Tx) error {
		if err := actor(ctx, tx, act); err != nil {
			return err
		}
		var created bool
		err := tx.QueryRow(ctx, queries.schedulePut, args).Scan(&created)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			change = Unchanged
			is, err := get(ctx, tx, d.Name)
			if err == nil && is.Source != source {
				err = &SourceError{Name: d.Name, Is: is.Source}
			}
			return err
		case err != nil:
			return fmt.Errorf("schedule %s: %w", d.Name, err)
		case created:
			change = Created
		default:
			change = Changed
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return change, nil
}

// Synced is the result of SyncConfig, by name.
type Synced struct{ Created, Changed, Unchanged []string }

// SyncConfig makes the definitions of a configuration file schedules from FromConfig,
// each in a transaction of its own; the errors of those that are refused are joined.
// Schedules that are missing from the file stay: a node that runs without the file must
// not take them away. Any number of nodes may do so at once.
func (s *Store) SyncConfig(ctx context.Context, list []Definition, act job.Act) (done Synced, err error) {
	var problems []error
	for _, d := range list {
		change, err := s.Put(ctx, d, FromConfig, act)
		switch change {
		case Created:
			done.Created = append(done.Created, d.Name)
		case Changed:
			done.Changed = append(done.Changed, d.Name)
		case Unchanged:
			done.Unchanged = append(done.Unchanged, d.Name)
		}
		var invalid *job.InvalidError
		if errors.As(err, &invalid) { // which names the column only
			err = fmt.Errorf("schedule %s: %w", d.Name, err)
		}
		if err != nil {
			problems = append(problems, err)
		}
		if errors.Is(err, job.ErrUnreachable) || ctx.Err() != nil {
			break
		}
	}
	return done, errors.Join(problems...)
}

// Remove deletes a schedule, or is ErrNotFound. Its jobs and events stay. One from the
// configuration file comes back at the next SyncConfig unless it goes from there too.
func (s *Store) Remove(ctx context.Context, name string, act job.Act) error {
	return s.explainLock(ctx, s.change(ctx, storeTimeout, act, func(ctx context.Context, tx pgx.Tx) error {
		if err := actor(ctx, tx, act); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.scheduleRemove, pgx.StrictNamedArgs{"name": name})
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("remove schedule %s: %w", name, err)
		}
		return nil
	}), name)
}

// Pause holds a schedule: none of its occurrences fires until Resume. Pausing a paused
// schedule changes nothing. It waits for a firing in progress.
func (s *Store) Pause(ctx context.Context, name string, act job.Act) (Schedule, error) {
	return s.turn(ctx, queries.schedulePause, name, act)
}

// Resume continues a paused schedule with the first occurrence after now.
func (s *Store) Resume(ctx context.Context, name string, act job.Act) (Schedule, error) {
	return s.turn(ctx, queries.scheduleResume, name, act)
}

func (s *Store) turn(ctx context.Context, statement, name string, act job.Act) (one Schedule, err error) {
	err = s.change(ctx, storeTimeout, act, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, pgx.StrictNamedArgs{"name": name, "actor": act.Actor, "reason": act.Reason})
		if err != nil {
			return fmt.Errorf("schedule %s: %w", name, err)
		}
		one, err = get(ctx, tx, name)
		return err
	})
	return one, s.explainLock(ctx, err, name)
}

// RunNow fires a schedule once more, at once, paused or not, and returns the jobs it
// enqueued; none if the query has no rows. The next occurrence does not change.
// If the query or a row is wrong, RunNow returns the error and enqueues nothing. Repeated after
// job.ErrUnreachable it may fire twice.
func (s *Store) RunNow(ctx context.Context, name string, act job.Act) (jobs []int64, err error) {
	is, err := s.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("run %w", err)
	}
	limit, err := parseSpan(is.QueryTimeout)
	if err != nil {
		return nil, fmt.Errorf("run schedule %s: query_timeout: %w", name, err)
	}
	err = s.change(ctx, fireTimeout+limit, act, func(ctx context.Context, tx pgx.Tx) error {
		if err := actor(ctx, tx, act); err != nil {
			return err
		}
		l, err := lock(ctx, tx, queries.scheduleLockNow, pgx.StrictNamedArgs{"name": name})
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("run schedule %s: %w", name, ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("run schedule %s: %w", name, err)
		}
		key := "schedule:" + name + ":run:" + l.Now.UTC().Format("2006-01-02T15:04:05.000000Z")
		if jobs, err = l.enqueue(ctx, tx, l.Now, key); err != nil {
			return fmt.Errorf("run schedule %s: %w", name, err)
		}
		_, err = tx.Exec(ctx, queries.scheduleRan, pgx.StrictNamedArgs{"name": name, "now": l.Now, "jobs": jobs})
		return err
	})
	if err != nil {
		return nil, s.explainLock(ctx, err, name)
	}
	return jobs, nil
}

// errTried rolls back a trial.
var errTried = errors.New("tried")

// Try returns the jobs that a schedule, stored or not, would enqueue if it fired now, and rolls them back: the query runs
// in its role and for query_timeout at the most, and the database checks the job of each row. A
// fault of the definition, of its query or of a row satisfies [OwnFault].
func (s *Store) Try(ctx context.Context, one Schedule, act job.Act) (made []Made, err error) {
	d := one.withDefaults()
	if err := d.Validate(""); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", d.Name, err)
	}
	one.Definition = d
	limit, err := parseSpan(one.QueryTimeout)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: query_timeout: %w", d.Name, err)
	}
	err = s.change(ctx, fireTimeout+limit, act, func(ctx context.Context, tx pgx.Tx) error {
		if err := actor(ctx, tx, act); err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, queries.txNow).Scan(&now); err != nil {
			return err
		}
		key := "schedule:" + d.Name + ":try:" + now.UTC().Format(time.RFC3339Nano)
		if made, err = one.make(ctx, tx, now, key); err != nil {
			return err
		}
		if d.Query == "" { // its template is checked when it is stored
			return errTried
		}
		for i, m := range made {
			if _, err := enqueueOne(ctx, tx, m); err != nil {
				return one.rowFault(i, err)
			}
		}
		return errTried
	})
	if !errors.Is(err, errTried) {
		return nil, err
	}
	return made, nil
}

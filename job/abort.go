package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AbortCache keeps abort flags outside PostgreSQL, where they can be set and read
// while the database does not answer an UPDATE any more. It is an optional brake
// beside the abort itself, which is the UPDATE: runs look at it before each chunk.
type AbortCache interface {
	// Set flags the job; the newest call wins. The flag ends by itself after its time
	// to live.
	Set(ctx context.Context, jobID int64, act Act) error
	// Get returns the flag, or nil when there is none.
	Get(ctx context.Context, jobID int64) (*Act, error)
	// Clear removes the flag; removing none is no error.
	Clear(ctx context.Context, jobID int64) error
}

// WithAbortCache returns a Store whose Abort flags the job in cache first, and
// whose acts that let a job go on remove the flag first. Abort of a job that is
// ABORTED already is then no error: a run may have been faster.
func (s *Store) WithAbortCache(cache AbortCache) *Store { return &Store{pool: s.pool, cache: cache} }

// FlaggedError reports an abort that the database did not acknowledge, but whose
// flags are in the abort cache: runs stop before their next chunk and record the abort
// as soon as the database answers. It wraps the database's error.
type FlaggedError struct {
	JobIDs []int64 // one, or the members of a group
	Err    error
}

// Error says what holds and what does not.
func (e *FlaggedError) Error() string {
	names := make([]string, len(e.JobIDs))
	for i, id := range e.JobIDs {
		names[i] = strconv.FormatInt(id, 10)
	}
	who, verb := "job ", " is flagged in the abort cache and stops before its next chunk"
	if len(names) > 1 {
		who, verb = "jobs ", " are flagged in the abort cache and stop before their next chunk"
	}
	return fmt.Sprintf("%s%s%s; the database has not recorded the abort: %s", who, strings.Join(names, ", "), verb, e.Err)
}

// Unwrap returns the database's error.
func (e *FlaggedError) Unwrap() error { return e.Err }

// flagged runs an abort between setting the jobs' flags and removing them. The flags
// stay unless the database said what became of the abort: the operator gave up
// waiting, the disk is full, the connection was lost. A cache that does not answer
// never keeps the abort from the database.
func (s *Store) flagged(ctx context.Context, ids []int64, act Act, abort func() error) error {
	if s.cache == nil {
		return abort()
	}
	var errSet error
	for _, id := range ids {
		errSet = errors.Join(errSet, s.cache.Set(ctx, id, act))
	}
	err := abort()
	var wrong *WrongStatusError
	if errors.As(err, &wrong) && wrong.Status == Aborted && errSet == nil {
		err = nil // it may well be the flag that did it
	}
	decided := err == nil || errors.As(err, &wrong) || errors.Is(err, ErrNotFound)
	switch {
	case !decided && errSet == nil:
		return &FlaggedError{JobIDs: ids, Err: err}
	case !decided:
		return errors.Join(err, errSet)
	case errSet == nil:
		// A flag that stays behind stops nothing that is ABORTED, and letting the job go
		// on removes it.
		for _, id := range ids {
			_ = s.cache.Clear(context.WithoutCancel(ctx), id)
		}
	}
	return err
}

// unflag removes the job's flag before an act that lets it go on: a flag left
// behind would abort it again.
func (s *Store) unflag(ctx context.Context, id int64) error {
	if s.cache == nil {
		return nil
	}
	if err := s.cache.Clear(ctx, id); err != nil {
		return fmt.Errorf("job %d: its flag in the abort cache cannot be removed: %w", id, err)
	}
	return nil
}

// unflagAll is unflag of several jobs.
func (s *Store) unflagAll(ctx context.Context, jobs []Job) error {
	for _, j := range jobs {
		if err := s.unflag(ctx, j.ID); err != nil {
			return err
		}
	}
	return nil
}

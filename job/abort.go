package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AbortCache stores abort flags outside PostgreSQL, so that jobs can be stopped while the database cannot
// execute an UPDATE. It is optional. The abort itself is the UPDATE; runs also check the flag before each
// chunk.
type AbortCache interface {
	// Set flags the job; the newest call wins. The flag expires after its time to live.
	Set(ctx context.Context, jobID int64, act Act) error
	// Get returns the flag, or nil if there is none.
	Get(ctx context.Context, jobID int64) (*Act, error)
	// Clear removes the flag. It is no error if there is none.
	Clear(ctx context.Context, jobID int64) error
}

// WithAbortCache returns a Store whose Abort first sets the job's flag in cache, and whose Resume and Retry
// first remove it. Abort of an ABORTED job is then no error, because a run may have aborted it.
func (s *Store) WithAbortCache(cache AbortCache) *Store { return &Store{pool: s.pool, cache: cache} }

// FlaggedError reports an abort that the database did not acknowledge, but whose flags are in the abort
// cache. Runs stop before their next chunk and record the abort when the database is reachable again. It
// wraps the database's error.
type FlaggedError struct {
	JobIDs []int64 // one, or the members of a group
	Err    error
}

// Error describes the flags and the database's error.
func (e *FlaggedError) Error() string {
	var names []string
	for _, id := range e.JobIDs[:min(len(e.JobIDs), 20)] {
		names = append(names, strconv.FormatInt(id, 10))
	}
	if more := len(e.JobIDs) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	who, verb := "job ", " is flagged in the abort cache and stops before its next chunk"
	if len(names) > 1 {
		who, verb = "jobs ", " are flagged in the abort cache and stop before their next chunk"
	}
	return fmt.Sprintf("%s%s%s; the database has not recorded the abort: %s", who, strings.Join(names, ", "), verb, e.Err)
}

// Unwrap returns the database's error.
func (e *FlaggedError) Unwrap() error { return e.Err }

// flagged sets the jobs' flags, runs an abort and removes the flags. The flags remain if the outcome is
// unknown, for example because the operator stopped waiting, the disk is full, or the connection was lost, and
// those of jobs that other sessions lock (held).
// An unreachable cache never prevents the abort in the database.
func (s *Store) flagged(ctx context.Context, ids []int64, held *[]int64, act Act, abort func() error) error {
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
		err = nil // probably because of the flag
	}
	decided := err == nil || errors.As(err, &wrong) || errors.Is(err, ErrNotFound)
	switch {
	case !decided && errSet == nil:
		return &FlaggedError{JobIDs: ids, Err: err}
	case !decided:
		return errors.Join(err, errSet)
	case errSet == nil:
		// A remaining flag has no effect on an ABORTED job, and Resume removes it.
		for _, id := range ids {
			if held == nil || !slices.Contains(*held, id) {
				_ = s.cache.Clear(context.WithoutCancel(ctx), id)
			}
		}
	}
	return err
}

// unflag removes the job's flag before it is resumed. A remaining flag would abort it again.
func (s *Store) unflag(ctx context.Context, id int64) error {
	if s.cache == nil {
		return nil
	}
	if err := s.cache.Clear(ctx, id); err != nil {
		return fmt.Errorf("job %d: its flag in the abort cache cannot be removed: %w", id, err)
	}
	return nil
}

// unflagAll removes the flags of several jobs.
func (s *Store) unflagAll(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		if err := s.unflag(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

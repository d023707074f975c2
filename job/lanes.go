package job

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Lane is a group of jobs that exclude each other, with the counts of its jobs.
type Lane struct {
	Name        string     `json:"name" db:"name"`
	PausedAt    *time.Time `json:"paused_at" db:"paused_at"` // nil if open
	PausedBy    string     `json:"paused_by" db:"paused_by"`
	PauseReason string     `json:"pause_reason" db:"pause_reason"`
	Running     *int64     `json:"running" db:"running"` // id of its RUNNING job
	// Due and Later count the PENDING jobs that are due, and due later. The value LaneCounts+1 means more
	// than LaneCounts.
	Due   int64 `json:"due" db:"due"`
	Later int64 `json:"later" db:"later"`
	// Version is the id of the event of the newest act on it, or 0 if there was none.
	Version int64 `json:"version" db:"version"`
}

// ResourceVersion returns Version. It makes a Lane a versioned result of an operation.
func (l Lane) ResourceVersion() (version int64, one bool) { return l.Version, true }

// PausedSince returns PausedAt and the subject and name of the events.
func (l Lane) PausedSince() (since *time.Time, subject, name string) {
	return l.PausedAt, SubjectLane, l.Name
}

// LaneCounts is the maximum count of the waiting jobs of a lane.
const LaneCounts = 10_000

// Lanes returns every lane that was ever paused or has a job waiting or running, by
// name.
func (s *Store) Lanes(ctx context.Context) (list []Lane, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, err = lanes(ctx, tx)
		return err
	})
	return list, err
}

// PausedLanes returns the names of the lanes that are paused, in no order.
func (s *Store) PausedLanes(ctx context.Context) (names []string, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		names, err = db.Column[string](ctx, tx, queries.lanesPaused)
		if err != nil {
			return fmt.Errorf("list paused lanes: %w", err)
		}
		return nil
	})
	return names, err
}

func lanes(ctx context.Context, tx pgx.Tx) ([]Lane, error) {
	list, err := db.All[Lane](ctx, tx, queries.laneList, pgx.StrictNamedArgs{"most": LaneCounts + 1})
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	return list, nil
}

// PauseLane stops a lane: no job of it is claimed, and the one that runs goes back
// to PENDING after the chunk in progress. It returns the lane as it is then; a lane
// that is paused already stays as it is. A bad name is an *InvalidError.
func (s *Store) PauseLane(ctx context.Context, name string, act Act) (Lane, error) {
	return s.actLane(ctx, queries.lanePause, name, act)
}

// ResumeLane opens a paused lane; one that is open stays as it is.
func (s *Store) ResumeLane(ctx context.Context, name string, act Act) (Lane, error) {
	return s.actLane(ctx, queries.laneResume, name, act)
}

func (s *Store) actLane(ctx context.Context, statement, name string, act Act) (l Lane, err error) {
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, pgx.StrictNamedArgs{"name": name, "actor": optional(act.Actor), "reason": act.Reason})
		if err != nil {
			return fmt.Errorf("lane %s: %w", name, err)
		}
		list, err := lanes(ctx, tx)
		if err != nil {
			return err
		}
		l = Lane{Name: name}
		for _, one := range list {
			if one.Name == name {
				l = one
			}
		}
		return nil
	})
	return l, db.ExplainLock(ctx, s.pool, err, "lane "+name, "lanes", name)
}

// The subjects of a ControlEvent.
const (
	SubjectLane       = "lane"
	SubjectSchedule   = "schedule"
	SubjectDeadLetter = "dead_letter" // redrives and discards
)

// ControlEvent is one entry of the timeline of objects other than jobs.
type ControlEvent struct {
	ID      int64           `json:"id" db:"id"`
	At      time.Time       `json:"at" db:"at"`
	Subject string          `json:"subject" db:"subject"`
	Name    string          `json:"name" db:"name"`
	Kind    string          `json:"kind" db:"kind"`
	Actor   string          `json:"actor" db:"actor"`
	Reason  string          `json:"reason" db:"reason" mask:"reason"`
	Detail  json.RawMessage `json:"detail" db:"detail" mask:"keys"`
}

// JobID returns the id of the job that the event is about; zero if it is about something else.
func (e ControlEvent) JobID() int64 {
	id, err := strconv.ParseInt(e.Name, 10, 64)
	if e.Subject != SubjectJob || err != nil {
		return 0
	}
	return id
}

// ActsSince returns the acts on an object after event afterID, newest first, at most limit. The object is a
// job, with the subject "job" and its id as the name, or any object with ControlEvents. The newest act's id
// is the object's version.
func (s *Store) ActsSince(ctx context.Context, subject, name string, afterID int64, limit int) (list []ControlEvent, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"subject": subject, "name": name, "after": afterID, "limit": limit}
		if list, err = db.All[ControlEvent](ctx, tx, queries.actsSince, args); err != nil {
			return fmt.Errorf("acts on %s %s: %w", subject, name, err)
		}
		return nil
	})
	return list, err
}

// ControlEvents returns the events of one lane, schedule, or of the retention, newest first, below event
// beforeID (0: from the newest), at most limit (0: 100). An empty name means all objects of the subject.
func (s *Store) ControlEvents(ctx context.Context, subject, name string, beforeID int64, limit int) (list []ControlEvent, err error) {
	args := pgx.StrictNamedArgs{"subject": subject, "name": name, "before_id": int64(1<<63 - 1), "limit": 100}
	if beforeID > 0 {
		args["before_id"] = beforeID
	}
	if limit > 0 {
		args["limit"] = limit
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if list, err = db.All[ControlEvent](ctx, tx, queries.eventList, args); err != nil {
			return fmt.Errorf("events of %s %s: %w", subject, name, err)
		}
		return nil
	})
	return list, err
}

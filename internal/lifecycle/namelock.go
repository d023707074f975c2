package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// The kinds of process names.
const (
	RunnerName = "runner" // runner.name
	RelayName  = "relay"  // delivery.name
)

const (
	// heartbeatInterval is the time between two heartbeats of a NameLock.
	heartbeatInterval = 3 * time.Second
	// timeout is the age of the last heartbeat from which another process can take the name over.
	timeout = 2 * heartbeatInterval
	// pollInterval is the time between two checks of a process that waits for a name.
	pollInterval = 250 * time.Millisecond
	// statementTimeout bounds each statement.
	statementTimeout = 5 * time.Second
)

// Name is a configured name of a process.
type Name struct{ Kind, Name string }

// NameInUseError reports that another live process has the name.
type NameInUseError struct {
	Kind, Name string
	Host       string
	PID        int
	Since      time.Time
}

// Error names the process and the remedy.
func (e *NameInUseError) Error() string {
	return fmt.Sprintf(
		"%s %q is in use by process %d on %s, which has run since %s: give each process its own name, or none, or stop that process",
		map[string]string{RunnerName: "runner.name", RelayName: "delivery.name"}[e.Kind], e.Name, e.PID, e.Host,
		e.Since.Local().Format("2006-01-02 15:04:05-07:00"))
}

// NameLock ensures that a configured name belongs to one process at a time.
//
//	free ───────────────────────────────────► held: heartbeat every 3 s ──Release──► free
//	in use: another heartbeat follows ──────► NameInUseError      │
//	        none for 6 s ───────────────────► held                └─ taken over after 6 s: NameInUseError
//
// A killed process is thus distinguished from a live one whose server connection a pooler hides, and a
// restart right after a crash waits and succeeds. One statement renews all names of a process.
type NameLock struct {
	pool     *pgxpool.Pool
	instance uuid.UUID // of this process, in each row
	host     string
	held     []Name
}

// holder is a row of belfry.names.
type holder struct {
	instance uuid.UUID
	host     string
	pid      int
	since    time.Time
	beatAt   time.Time
}

// LockNames locks all names for this process, or none. It waits up to six seconds for another heartbeat of a
// process that has a name, and then returns a *NameInUseError. The row of the name records the attempt for
// `belfry doctor`.
func LockNames(ctx context.Context, pool *pgxpool.Pool, names ...Name) (*NameLock, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	h := &NameLock{pool: pool, instance: uuid.New(), host: host}
	for _, n := range names {
		if err := h.take(ctx, n); err != nil {
			return nil, errors.Join(err, h.Release(ctx))
		}
		h.held = append(h.held, n)
	}
	return h, nil
}

func (h *NameLock) take(ctx context.Context, n Name) error {
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	var first *holder
	for {
		took, err := h.try(ctx, n)
		if took || err != nil {
			return err
		}
		now, err := h.holder(ctx, n)
		switch {
		case err != nil:
			return err
		case now == nil: // it has just ended
			continue
		case first == nil:
			first = now
		case now.instance != first.instance || now.beatAt.After(first.beatAt):
			return h.refused(ctx, n, now)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try locks a name unless a live process has it.
func (h *NameLock) try(ctx context.Context, n Name) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := h.pool.Exec(ctx, queries.nameLock, pgx.StrictNamedArgs{
		"kind": n.Kind, "name": n.Name, "instance": h.instance, "host": h.host, "pid": os.Getpid(), "timeout": timeout,
	})
	if err != nil {
		return false, fmt.Errorf("lock the name %s: %w", n.Name, err)
	}
	return tag.RowsAffected() > 0, nil
}

// holder returns the process that has the name, or nil.
func (h *NameLock) holder(ctx context.Context, n Name) (*holder, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var o holder
	err := h.pool.QueryRow(ctx, queries.nameHolder, pgx.StrictNamedArgs{"kind": n.Kind, "name": n.Name}).
		Scan(&o.instance, &o.host, &o.pid, &o.since, &o.beatAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // the name is free
	}
	if err != nil {
		return nil, fmt.Errorf("read the holder of the name %s: %w", n.Name, err)
	}
	return &o, nil
}

// refused records in the holder's row that this process wanted the name.
func (h *NameLock) refused(ctx context.Context, n Name, by *holder) error {
	held := &NameInUseError{Kind: n.Kind, Name: n.Name, Host: by.host, PID: by.pid, Since: by.since}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := h.pool.Exec(ctx, queries.nameRefused, pgx.StrictNamedArgs{
		"kind": n.Kind, "name": n.Name, "instance": h.instance, "rival": fmt.Sprintf("%s:%d", h.host, os.Getpid()),
	})
	if err != nil {
		return errors.Join(held, fmt.Errorf("lock the name %s: %w", n.Name, err))
	}
	return held
}

// Any reports whether any name is locked.
func (h *NameLock) Any() bool { return len(h.held) > 0 }

// Run sends heartbeats until ctx ends. It returns a *NameInUseError if another process has taken a name over
// because heartbeats were missing. It continues to try while the database is unreachable. Without names it
// returns at once.
func (h *NameLock) Run(ctx context.Context) error {
	if len(h.held) == 0 {
		return nil
	}
	beat := time.NewTicker(heartbeatInterval)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		mine, err := h.beat(ctx)
		if err != nil {
			continue // the other loops of the process log the outage
		}
		for _, n := range h.held {
			if slices.Contains(mine, n) {
				continue
			}
			if took, err := h.try(ctx, n); took || err != nil {
				continue // the row was gone
			}
			if now, err := h.holder(ctx, n); err == nil && now != nil {
				return h.refused(ctx, n, now)
			}
		}
	}
}

// During runs do while it renews the names, and cancels do's context if a name is lost.
func (h *NameLock) During(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := h.Run(ctx)
		if err != nil {
			stop(err)
		}
		ended <- err
	}()
	err := do(ctx)
	stop(nil)
	if lost := <-ended; lost != nil {
		return lost // the rest follows from it
	}
	return err
}

// beat renews the heartbeat and returns the names that still belong to this process.
func (h *NameLock) beat(ctx context.Context) ([]Name, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return db.Collect(ctx, h.pool, queries.namesHeartbeat, h.keys(), pgx.RowToStructByPos[Name])
}

// Release frees the names. A name that it cannot free expires by its heartbeat.
func (h *NameLock) Release(ctx context.Context) error {
	if len(h.held) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if _, err := h.pool.Exec(ctx, queries.namesUnlock, h.keys()); err != nil {
		return fmt.Errorf("release names: %w", err)
	}
	return nil
}

// keys returns the keys of the held names and the instance, as arguments.
func (h *NameLock) keys() pgx.StrictNamedArgs {
	kinds, names := make([]string, len(h.held)), make([]string, len(h.held))
	for i, n := range h.held {
		kinds[i], names[i] = n.Kind, n.Name
	}
	return pgx.StrictNamedArgs{"kinds": kinds, "names": names, "instance": h.instance}
}

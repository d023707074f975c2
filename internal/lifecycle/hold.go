package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The kinds of names.
const (
	RunnerName = "runner" // runner.name
	RelayName  = "relay"  // delivery.name
)

const (
	// beatEvery is how often a Hold says that its process lives.
	beatEvery = 2 * time.Second
	// silence is how long a process may not have been heard of before another that was
	// given its name takes it for dead.
	silence = 3 * beatEvery
	// lookEvery is how often one that waits for that looks.
	lookEvery = 250 * time.Millisecond
	// holdTimeout bounds each statement about a name.
	holdTimeout = 5 * time.Second
)

// HeldError reports that a living process has the name already.
type HeldError struct {
	Kind, Name string
	Host       string
	PID        int
	Since      time.Time
}

// Error names the process, and says what to do.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s %q belongs to process %d on %s, which runs since %s: give each process a name of its own, or none, or stop that one",
		map[string]string{RunnerName: "runner.name", RelayName: "delivery.name"}[e.Kind], e.Name, e.PID, e.Host, e.Since.Local().Format("2006-01-02 15:04:05-07:00"))
}

// Hold keeps a name that was given to a process from being another's at once.
//
//	nobody has it ──────────────────────────► held: beats every 2 s ──Release──► nobody has it
//	another has it: it beats once more ─────► HeldError             │
//	                or is silent for 6 s ───► held                  └─ silent, and taken over: HeldError
//
// A process that was killed is so told from one that lives without its server connection,
// which a pooler hides, and a restart right after a crash waits, and is not refused.
type Hold struct {
	pool *pgxpool.Pool
	args pgx.StrictNamedArgs // kind, name, instance
	kind string
	name string
	host string
}

// holder is a row of belfry.names.
type holder struct {
	instance uuid.UUID
	host     string
	pid      int
	since    time.Time
	beatAt   time.Time
}

// Take takes a name for this process, of one of the kinds. It waits for up to six seconds to
// see whether one that has the name lives; then it is a *HeldError, which the other's row
// keeps for `belfry doctor`.
func Take(ctx context.Context, pool *pgxpool.Pool, kind, name string) (*Hold, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	h := &Hold{pool: pool, kind: kind, name: name, host: host, args: pgx.StrictNamedArgs{"kind": kind, "name": name, "instance": uuid.New()}}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var first *holder
	for {
		took, err := h.try(ctx)
		if took || err != nil {
			return h, err
		}
		now, err := h.holder(ctx)
		switch {
		case err != nil:
			return nil, err
		case now == nil: // it has ended in this moment
			continue
		case first == nil:
			first = now
		case now.instance != first.instance || now.beatAt.After(first.beatAt):
			return nil, h.refused(ctx, now)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try takes the name if nobody that lives has it.
func (h *Hold) try(ctx context.Context) (bool, error) {
	return h.row(ctx, "NameTake", pgx.StrictNamedArgs{"host": h.host, "pid": os.Getpid(), "silence": silence})
}

// row runs a statement and reports whether it found a row.
func (h *Hold) row(ctx context.Context, statement string, more pgx.StrictNamedArgs) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	var name string
	err := h.pool.QueryRow(ctx, queries.SQL(statement), h.with(more)).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("hold the name %s: %w", h.name, err)
	}
	return true, nil
}

func (h *Hold) with(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	all := pgx.StrictNamedArgs{}
	for _, args := range []pgx.StrictNamedArgs{h.args, more} {
		for k, v := range args {
			all[k] = v
		}
	}
	return all
}

// holder reads who has the name; nil: nobody.
func (h *Hold) holder(ctx context.Context) (*holder, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	var o holder
	err := h.pool.QueryRow(ctx, queries.SQL("NameHolder"), pgx.StrictNamedArgs{"kind": h.kind, "name": h.name}).
		Scan(&o.instance, &o.host, &o.pid, &o.since, &o.beatAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("who has the name %s: %w", h.name, err)
	}
	return &o, nil
}

// refused notes in the other's row that this process wanted its name.
func (h *Hold) refused(ctx context.Context, by *holder) error {
	held := &HeldError{Kind: h.kind, Name: h.name, Host: by.host, PID: by.pid, Since: by.since}
	if err := h.exec(ctx, "NameRefused", pgx.StrictNamedArgs{"rival": fmt.Sprintf("%s:%d", h.host, os.Getpid())}); err != nil {
		return errors.Join(held, err)
	}
	return held
}

func (h *Hold) exec(ctx context.Context, statement string, more pgx.StrictNamedArgs) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if _, err := h.pool.Exec(ctx, queries.SQL(statement), h.with(more)); err != nil {
		return fmt.Errorf("hold the name %s: %w", h.name, err)
	}
	return nil
}

// Run beats until ctx ends. It returns a *HeldError when another process has taken the name
// over, because this one was silent. While the database does not answer it goes on trying.
func (h *Hold) Run(ctx context.Context) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		if mine, err := h.row(ctx, "NameBeat", nil); mine || err != nil {
			continue // what else asks the database says what is wrong
		}
		if took, err := h.try(ctx); took || err != nil {
			continue // the row was gone
		}
		if now, err := h.holder(ctx); err == nil && now != nil {
			return h.refused(ctx, now)
		}
	}
}

// Release gives the name back. One that cannot be given back is taken over once it is silent.
func (h *Hold) Release(ctx context.Context) error {
	return h.exec(context.WithoutCancel(ctx), "NameRelease", nil)
}

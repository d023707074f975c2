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
)

// The kinds of names.
const (
	RunnerName = "runner" // runner.name
	RelayName  = "relay"  // delivery.name
)

const (
	// beatEvery is how often a Hold says that its process lives.
	beatEvery = 3 * time.Second
	// silence is how long a process may not have been heard of before another that was
	// given its name takes it for dead.
	silence = 2 * beatEvery
	// lookEvery is how often one that waits for that looks.
	lookEvery = 250 * time.Millisecond
	// holdTimeout bounds each statement about a name.
	holdTimeout = 5 * time.Second
)

// Given is a name that an operator gave to a process, of one of the kinds.
type Given struct{ Kind, Name string }

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

// Hold keeps the names that were given to a process from being another's at once.
//
//	nobody has it ──────────────────────────► held: beats every 3 s ──Release──► nobody has it
//	another has it: it beats once more ─────► HeldError             │
//	                or is silent for 6 s ───► held                  └─ silent, and taken over: HeldError
//
// A process that was killed is so told from one that lives without its server connection,
// which a pooler hides, and a restart right after a crash waits, and is not refused. However
// many names a process has, it beats by one statement.
type Hold struct {
	pool     *pgxpool.Pool
	instance uuid.UUID // of this process, in each row
	host     string
	held     []Given
}

// holder is a row of belfry.names.
type holder struct {
	instance uuid.UUID
	host     string
	pid      int
	since    time.Time
	beatAt   time.Time
}

// Take takes names for this process, one after the other, all or none. It waits for up to six
// seconds to see whether one that has a name lives; then it is a *HeldError, which the
// other's row keeps for `belfry doctor`.
func Take(ctx context.Context, pool *pgxpool.Pool, names ...Given) (*Hold, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	h := &Hold{pool: pool, instance: uuid.New(), host: host}
	for _, n := range names {
		if err := h.take(ctx, n); err != nil {
			return nil, errors.Join(err, h.Release(ctx))
		}
		h.held = append(h.held, n)
	}
	return h, nil
}

func (h *Hold) take(ctx context.Context, n Given) error {
	look := time.NewTicker(lookEvery)
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
		case now == nil: // it has ended in this moment
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

// try takes a name if nobody that lives has it.
func (h *Hold) try(ctx context.Context, n Given) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	tag, err := h.pool.Exec(ctx, queries.nameTake, pgx.StrictNamedArgs{
		"kind": n.Kind, "name": n.Name, "instance": h.instance, "host": h.host, "pid": os.Getpid(), "silence": silence,
	})
	if err != nil {
		return false, fmt.Errorf("hold the name %s: %w", n.Name, err)
	}
	return tag.RowsAffected() > 0, nil
}

// holder reads who has the name; nil: nobody.
func (h *Hold) holder(ctx context.Context, n Given) (*holder, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	var o holder
	err := h.pool.QueryRow(ctx, queries.nameHolder, pgx.StrictNamedArgs{"kind": n.Kind, "name": n.Name}).
		Scan(&o.instance, &o.host, &o.pid, &o.since, &o.beatAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("who has the name %s: %w", n.Name, err)
	}
	return &o, nil
}

// refused notes in the other's row that this process wanted its name.
func (h *Hold) refused(ctx context.Context, n Given, by *holder) error {
	held := &HeldError{Kind: n.Kind, Name: n.Name, Host: by.host, PID: by.pid, Since: by.since}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	_, err := h.pool.Exec(ctx, queries.nameRefused, pgx.StrictNamedArgs{
		"kind": n.Kind, "name": n.Name, "instance": h.instance, "rival": fmt.Sprintf("%s:%d", h.host, os.Getpid()),
	})
	if err != nil {
		return errors.Join(held, fmt.Errorf("hold the name %s: %w", n.Name, err))
	}
	return held
}

// Any reports whether there is a name to hold.
func (h *Hold) Any() bool { return len(h.held) > 0 }

// Run beats until ctx ends. It returns a *HeldError when another process has taken a name
// over, because this one was silent. While the database does not answer it goes on trying.
// Without names it returns at once.
func (h *Hold) Run(ctx context.Context) error {
	if len(h.held) == 0 {
		return nil
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		mine, err := h.beat(ctx)
		if err != nil {
			continue // what else asks the database says what is wrong
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

// During holds the names while do runs, and stops it softly when one is lost.
func (h *Hold) During(ctx context.Context, do func(context.Context) error) error {
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

// beat says that this process lives, and returns the names that are its own.
func (h *Hold) beat(ctx context.Context) ([]Given, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	rows, err := h.pool.Query(ctx, queries.namesBeat, pgx.StrictNamedArgs{"instance": h.instance})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Given])
}

// Release gives the names back. One that cannot be given back is taken over once it is silent.
func (h *Hold) Release(ctx context.Context) error {
	if len(h.held) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTimeout)
	defer cancel()
	if _, err := h.pool.Exec(ctx, queries.namesRelease, pgx.StrictNamedArgs{"instance": h.instance}); err != nil {
		return fmt.Errorf("give names back: %w", err)
	}
	return nil
}

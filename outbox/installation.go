package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/job"
)

// ErrNotAdopted means that this database is not where its installation was made or
// adopted: a copy, out of which no message is claimed before an operator adopts it.
var ErrNotAdopted = errors.New("this database is a copy or was moved: it is not where belfry was made or adopted, and nothing leaves it")

// errKept means that a claim found that nothing may leave the database: Installation.Err says
// why.
var errKept = errors.New("nothing leaves the database: it is halted, or not where belfry was made or adopted")

// Place is where a database is, as far as its server tells.
type Place struct {
	SystemIdentifier *int64  `json:"system_identifier,string"` // of the server and its standbys; null: not told
	DatabaseOID      *uint32 `json:"database_oid"`             // null: nowhere
}

// String is the place in words.
func (p Place) String() string {
	if p.DatabaseOID == nil {
		return "nowhere"
	}
	server := "a server that does not tell its identifier"
	if p.SystemIdentifier != nil {
		server = "server " + strconv.FormatInt(*p.SystemIdentifier, 10)
	}
	return fmt.Sprintf("database %d of %s", *p.DatabaseOID, server)
}

// Installation is the name of a database among others that use the same providers, and
// where messages may leave it.
type Installation struct {
	ID      *uuid.UUID `json:"id"`      // null: its row is missing
	Made    Place      `json:"made"`    // or adopted
	Here    Place      `json:"here"`    // where it is now
	Adopted bool       `json:"adopted"` // the two are one: relays deliver, unless it is halted
	job.Halt
}

// Err is nil, or why nothing leaves the database: ErrNotAdopted with both places, or else
// job.ErrHalted.
func (i Installation) Err() error {
	if i.Adopted {
		return i.Halt.Err()
	}
	return fmt.Errorf("%w: made on %s, now on %s", ErrNotAdopted, i.Made, i.Here)
}

// ReadInstallation returns where the database was made and where it is.
func ReadInstallation(ctx context.Context, pool *pgxpool.Pool) (i Installation, err error) {
	err = inSnapshot(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		i, err = installation(ctx, tx)
		return err
	})
	if err != nil {
		return Installation{}, fmt.Errorf("read the installation: %w", err)
	}
	return i, nil
}

func installation(ctx context.Context, tx pgx.Tx) (i Installation, err error) {
	err = tx.QueryRow(ctx, queries.installationRead).Scan(&i.ID, &i.Made.SystemIdentifier, &i.Made.DatabaseOID,
		&i.Here.SystemIdentifier, &i.Here.DatabaseOID, &i.Adopted, &i.Halt.At, &i.Halt.By, &i.Halt.Reason)
	return i, err
}

// Adopt lets messages leave from where the database is now, records who decided so, and
// wakes the relays. One that is adopted already stays as it is.
func Adopt(ctx context.Context, pool *pgxpool.Pool, act job.Act) (i Installation, err error) {
	err = inTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.installationAdopt, pgx.StrictNamedArgs{"actor": optional(act.Actor), "reason": act.Reason}); err != nil {
			return err
		}
		i, err = installation(ctx, tx)
		return err
	})
	if err != nil {
		return Installation{}, fmt.Errorf("adopt the database: %w", err)
	}
	return i, nil
}

// Backlog is what waits to be sent in a database, of jobs by when they were enqueued.
type Backlog struct {
	Ages       []BacklogAge `json:"ages"`       // youngest first; without those that nothing waits of
	Activities int64        `json:"activities"` // messages of activities; of more than 100,000 no more are counted
	Unwalked   int64        `json:"unwalked"`   // jobs that have not written all their rows yet
	Schedules  int64        `json:"schedules"`  // that are not paused
}

// BacklogAge is what waits of the jobs that were enqueued within a time and not within the
// one before.
type BacklogAge struct {
	Within   *time.Duration `json:"within"` // nanoseconds; null: before
	Jobs     int64          `json:"jobs"`
	Messages int64          `json:"messages"`
}

// ReadBacklog returns what a relay would send, now or later. What is held, of ABORTED jobs
// and paused lanes, does not count.
func ReadBacklog(ctx context.Context, pool *pgxpool.Pool) (b Backlog, err error) {
	err = inSnapshot(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.backlogAges)
		if err != nil {
			return err
		}
		b.Ages, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a BacklogAge, err error) {
			err = row.Scan(&a.Within, &a.Jobs, &a.Messages)
			return a, err
		})
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, queries.backlogOther).Scan(&b.Activities, &b.Unwalked, &b.Schedules)
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("look for what waits to be sent: %w", err)
	}
	return b, nil
}

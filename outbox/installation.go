package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// ErrNotAdopted means that this database is a copy: it is not on the server where its installation was
// created or adopted. No message is claimed until an operator adopts it.
var ErrNotAdopted = db.NewError(db.KindConflict,
	"this database is a copy or was moved: it is not where belfry was made or adopted, and nothing leaves it")

// errKept means that messages may not leave the database. Installation.Err returns the reason.
var errKept = errors.New("nothing leaves the database: it is halted, or not where belfry was made or adopted")

// Place is the location of a database, as reported by its server.
type Place struct {
	SystemIdentifier *int64  `json:"system_identifier,string"` // of the server and its standbys; null if unknown
	DatabaseOID      *uint32 `json:"database_oid"`             // null if unknown
}

// String returns the place as text.
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

// Installation identifies a database among databases that use the same providers, and the place from which
// messages may leave it.
type Installation struct {
	ID      *uuid.UUID `json:"id"`      // null if its row is missing
	Made    Place      `json:"made"`    // or adopted
	Here    Place      `json:"here"`    // where it is now
	Adopted bool       `json:"adopted"` // Made equals Here: relays deliver, unless belfry is halted
	// Name is the delivery.place of the relays that deliver from here. Empty means relays without a place.
	Name string `json:"place"`
	job.Halt
}

// Err returns an error if messages may not leave the database: ErrNotAdopted with both places, or
// job.ErrHalted.
func (i Installation) Err() error {
	if i.Adopted {
		return i.Halt.Err()
	}
	return fmt.Errorf("%w: made on %s, now on %s", ErrNotAdopted, i.Made, i.Here)
}

// ErrAt is Err for a relay with a delivery.place. A place that differs from the database's is also an error.
// Nothing else distinguishes a copy of the server's files from the original.
func (i Installation) ErrAt(name string) error {
	if err := i.Err(); err != nil || i.Name == name {
		return err
	}
	return fmt.Errorf("%w: delivery.place is %q, and the database is adopted for %q", ErrNotAdopted, name, i.Name)
}

// ReadInstallation returns the database's installation.
func ReadInstallation(ctx context.Context, pool *pgxpool.Pool) (i Installation, err error) {
	err = inSnapshot(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		i, err = ReadInstallationTx(ctx, tx)
		return err
	})
	if err != nil {
		return Installation{}, fmt.Errorf("read the installation: %w", err)
	}
	return i, nil
}

// ReadInstallationTx is ReadInstallation as a part of the transaction tx. An error is as pgx
// returned it.
func ReadInstallationTx(ctx context.Context, tx pgx.Tx) (i Installation, err error) {
	err = tx.QueryRow(ctx, queries.installationRead).Scan(&i.ID, &i.Made.SystemIdentifier, &i.Made.DatabaseOID,
		&i.Here.SystemIdentifier, &i.Here.DatabaseOID, &i.Adopted, &i.Name, &i.Halt.At, &i.Halt.By, &i.Halt.Reason)
	return i, err
}

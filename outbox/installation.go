package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// ErrNotAdopted means that this database is not where its installation was made or
// adopted: a copy, out of which no message is claimed before an operator adopts it.
var ErrNotAdopted = errkind.New(errkind.Conflict, "this database is a copy or was moved: it is not where belfry was made or adopted, and nothing leaves it")

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
	// Name is the delivery.place of the relays that deliver from here; "": those without.
	Name string `json:"place"`
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

// ErrAt is Err for a relay whose delivery.place is name: another one than the database's is a
// reason as well. A copy of the server's files is told from the original by nothing else.
func (i Installation) ErrAt(name string) error {
	if err := i.Err(); err != nil || i.Name == name {
		return err
	}
	return fmt.Errorf("%w: delivery.place is %q, and the database is adopted for %q", ErrNotAdopted, name, i.Name)
}

// ReadInstallation returns where the database was made and where it is.
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

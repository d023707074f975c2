// Command databasesql enqueues with database/sql, in the transaction that its own rows are in.
// It needs nothing of belfry but the schema: a daemon, or a service that runs belfry inside,
// does the rest.
//
//	DATABASE_URL=postgres://… go run ./_examples/databasesql
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // any driver for PostgreSQL will do
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a COMMIT there is nothing to roll back

	// … the service's own statements …
	const enqueue = `SELECT belfry.enqueue($1, $2, $3, body => $4,
		audience => belfry.audience_platforms('ios', 'android'), idempotency_key => $5)`
	var id int64
	if err := tx.QueryRowContext(ctx, enqueue, "push", "operator_notice", "Maintenance at nine", "We are back at ten.",
		"maintenance-2026-11").Scan(&id); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Printf("job %d\n", id)
	return nil
}

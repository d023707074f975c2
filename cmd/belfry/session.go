package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// standardSession has a new connection read and write SQL as belfry writes it, whatever
// the role's defaults are. What belfry says in each transaction is not changed here.
func standardSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, queries.sessionStandard, pgx.QueryExecModeExec, pgx.StrictNamedArgs{"pid": conn.PgConn().PID()})
	return err
}

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// UnfitError reports settings of a database or of a role that belfry cannot work with. Trying again does
// not help.
type UnfitError struct {
	Settings []UnfitSetting
}

// UnfitSetting is one such setting.
type UnfitSetting struct{ Name, Value string }

// Error names each setting and its remedy.
func (e *UnfitError) Error() string {
	lines := make([]string, 0, len(e.Settings))
	for _, s := range e.Settings {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "; ")
}

func (s UnfitSetting) String() string {
	switch s.Name {
	case "server_encoding":
		return fmt.Sprintf(
			"the database's encoding is %s, and belfry needs UTF8: use one that CREATE DATABASE … ENCODING 'UTF8' "+
				"TEMPLATE template0 makes", s.Value)
	case "client_encoding":
		return fmt.Sprintf("client_encoding is %s, and belfry needs UTF8: add client_encoding=UTF8 to the pool's URL", s.Value)
	case "session_replication_role":
		return "session_replication_role is replica, and belfry's triggers do not fire: ALTER ROLE … RESET " +
			"session_replication_role, or ALTER DATABASE"
	}
	return fmt.Sprintf(
		"search_path is %s, and functions there would take the place of PostgreSQL's own: leave pg_catalog out of it, or put it first", s.Value)
}

// standardSession gives a new connection the settings that belfry's statements need (db.Settings),
// regardless of the role's defaults. A database that belfry cannot work with is an *UnfitError.
func standardSession(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, queries.sessionStandard, pgx.QueryExecModeExec, standard(conn, db.Settings())); err != nil {
		return err
	}
	return unfit(ctx, conn)
}

// standard returns the arguments of SessionStandard.
func standard(conn *pgx.Conn, settings []db.Setting) pgx.StrictNamedArgs {
	var names, values []string
	var pooled []bool
	for _, s := range settings {
		names, values, pooled = append(names, s.Name), append(values, s.Value), append(pooled, s.Pooled)
	}
	return pgx.StrictNamedArgs{"names": names, "values": values, "pooled": pooled, "pid": conn.PgConn().PID()}
}

func unfit(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, queries.sessionUnfit, pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[UnfitSetting])
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return &UnfitError{found}
	}
	return nil
}

// OddSettings names the settings of a program's pool that belfry's statements do not support and that
// their transactions do not set. It changes none. A setting that belfry cannot work with is an *UnfitError.
func OddSettings(ctx context.Context, pool *pgxpool.Pool) (names []string, err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if err := unfit(ctx, tx.Conn()); err != nil {
		return nil, err
	}
	var foreign []db.Setting
	for _, s := range db.Settings() {
		if s.Foreign {
			foreign = append(foreign, s)
		}
	}
	rows, err := tx.Query(ctx, queries.sessionStandard, pgx.QueryExecModeExec, standard(tx.Conn(), foreign))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		var was any
		err = row.Scan(&name, &was)
		return name, err
	})
}

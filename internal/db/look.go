package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Found is what Look found out about the way between a connection and its server.
type Found struct {
	Pooler bool // another process than PostgreSQL's answers the connection
	Loses  bool // statements that were prepared in one transaction are lost in another
}

const (
	// probeName is always the same: what a pooler keeps of it is one statement for each of
	// its server connections.
	probeName = "belfry_probe"
	rounds    = 3
	tries     = 2 // in each round
)

// Look finds out whether a pooler stands between conn and the server, by the number of the
// server's process, and whether it loses prepared statements: two connections made like
// conn prepare different ones under one name and execute them over several transactions.
// An error with Pooler means that only the second was not found out, for instance because
// the pooler is full.
func Look(ctx context.Context, conn *pgx.Conn) (found Found, err error) {
	if found.Pooler, err = behindPooler(ctx, conn); err != nil || !found.Pooler {
		return found, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, lookKey{}, true), probeTimeout)
	defer cancel()
	var pair []*pgx.Conn
	defer func() {
		for _, c := range pair {
			_ = c.Close(ctx) // nothing is wanted of it any more
		}
	}()
	for range 2 {
		c, err := pgx.ConnectConfig(ctx, conn.Config())
		if err != nil {
			return found, fmt.Errorf("look for a pooler: %w", err)
		}
		pair = append(pair, c)
	}
	for range rounds {
		if found.Loses, err = loses(ctx, pair); err != nil || found.Loses {
			return found, err
		}
	}
	return found, nil
}

// behindPooler reports whether another process answers conn than the server's.
func behindPooler(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	if err := conn.QueryRow(ctx, queries.backendPID, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, fmt.Errorf("look for a pooler: %w", err)
	}
	return pid != conn.PgConn().PID(), nil
}

// transacts tries a transaction, which a pooler in statement mode refuses.
func transacts(ctx context.Context, conn *pgx.Conn) error {
	tx, err := server{conn}.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	return tx.Rollback(ctx)
}

// loses reports whether one of connections meets what it has not prepared itself.
func loses(ctx context.Context, connections []*pgx.Conn) (lost bool, err error) {
	mark := func(i int) string { return fmt.Sprint(i) }
	for i, c := range connections {
		_, err := c.PgConn().Prepare(ctx, probeName, strings.ReplaceAll(queries.probe, "{{mark}}", "'"+mark(i)+"'"), nil)
		if err != nil {
			return Lost(err), otherwise(err)
		}
	}
	for range tries {
		for i, c := range connections {
			r := c.PgConn().ExecPrepared(ctx, probeName, nil, nil, nil).Read()
			if r.Err != nil {
				return Lost(r.Err), otherwise(r.Err)
			}
			if len(r.Rows) != 1 || string(r.Rows[0][0]) != mark(i) {
				return true, nil
			}
		}
	}
	for _, c := range connections {
		if err := c.PgConn().Deallocate(ctx, probeName); err != nil {
			return Lost(err), otherwise(err)
		}
	}
	return false, nil
}

// otherwise is an error that says something else than that a statement was lost.
func otherwise(err error) error {
	if Lost(err) {
		return nil
	}
	return fmt.Errorf("look for a pooler: %w", err)
}

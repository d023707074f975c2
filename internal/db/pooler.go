package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Found describes the pooler between a connection and its server.
type Found struct {
	Pooler bool // a process other than PostgreSQL answers the connection
	Loses  bool // statements prepared in one transaction are missing in the next
}

const (
	// probeName is constant, so that at most one statement remains in each server connection of a pooler.
	probeName = "belfry_probe"
	rounds    = 3
	tries     = 2 // in each round
)

// DetectPooler reports whether a pooler is between conn and the server, and whether it loses prepared
// statements. It detects a pooler by the number of the server's process. For the second result, two more
// connections prepare different statements under one name and execute them in several transactions. If it
// returns an error and found.Pooler is true, only found.Loses is unknown, for example because the pooler is
// full.
func DetectPooler(ctx context.Context, conn *pgx.Conn) (found Found, err error) {
	if found.Pooler, err = behindPooler(ctx, conn); err != nil || !found.Pooler {
		return found, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, detectKey{}, true), probeTimeout)
	defer cancel()
	var pair []*pgx.Conn
	defer func() {
		for _, c := range pair {
			_ = c.Close(ctx)
		}
	}()
	for range 2 {
		c, err := pgx.ConnectConfig(ctx, conn.Config())
		if err != nil {
			return found, fmt.Errorf("detect a pooler: %w", err)
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

// behindPooler reports whether a process other than the server answers conn.
func behindPooler(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	if err := conn.QueryRow(ctx, queries.backendPID, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, fmt.Errorf("detect a pooler: %w", err)
	}
	return pid != conn.PgConn().PID(), nil
}

// transacts begins and ends a transaction, which a pooler in statement mode rejects.
func transacts(ctx context.Context, conn *pgx.Conn) error {
	tx, err := server{conn}.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	return tx.Rollback(ctx)
}

// loses reports whether a connection executes a statement that another connection prepared, or none.
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

// otherwise returns err unless it reports a lost statement.
func otherwise(err error) error {
	if Lost(err) {
		return nil
	}
	return fmt.Errorf("detect a pooler: %w", err)
}

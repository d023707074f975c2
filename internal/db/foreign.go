package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// foreign is the key in a connection's custom data that marks a connection on which Foreign ran.
const foreign = "belfry foreign"

// closeTimeout bounds the end of a connection.
const closeTimeout = 2 * time.Second

// Foreign runs do in a savepoint of tx, rolls the savepoint back, and returns do's error. It is for statements that an
// operator wrote, because the functions they reach may belong to roles with fewer rights than this session's.
//
// A rollback does not restore the session's prepared statements: any function may PREPARE and DEALLOCATE them, also in
// a read-only transaction, and pgx later executes a cached statement by its name, with all rights of the session.
// Advisory locks of the session also survive. Foreign removes both before it returns, by statements that have no name.
// Later statements of tx are prepared again. InTx closes the connection after the transaction, because extensions can
// store more in a session. If Foreign cannot clean up, it closes the connection at once and terminates its server process,
// because a function can go on after a cancellation, with the transaction's locks.
func Foreign(ctx context.Context, tx pgx.Tx, do func(pgx.Tx) error) error {
	conn := tx.Conn()
	conn.PgConn().CustomData()[foreign] = true
	var pid int64
	var began string
	if err := tx.QueryRow(ctx, queries.session, pgx.QueryExecModeSimpleProtocol).Scan(&pid, &began); err != nil {
		return err
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	clean := false
	defer func() {
		if !clean {
			end(ctx, conn)
			terminate(ctx, conn.Config(), pid, began)
		}
	}()
	err = do(savepoint)
	if problem := cleanUp(ctx, conn, savepoint); problem == nil {
		clean = true
	} else if err == nil {
		err = problem
	}
	return err
}

// cleanUp removes what the savepoint's statements left in the session. It executes no prepared statement.
func cleanUp(ctx context.Context, conn *pgx.Conn, savepoint pgx.Tx) error {
	if err := savepoint.Rollback(ctx); err != nil { // without arguments: by the simple protocol
		return err
	}
	if _, err := conn.PgConn().Exec(ctx, queries.sessionUnlock).ReadAll(); err != nil {
		return err
	}
	return conn.DeallocateAll(ctx) // of the server and of the cache; also by the simple protocol
}

// endForeign closes the connection if Foreign ran on it.
func endForeign(ctx context.Context, conn *pgx.Conn) {
	if conn.PgConn().CustomData()[foreign] != nil {
		end(ctx, conn)
	}
}

// terminate ends a server process, if it still runs, by a new connection. It is optional: without a connection the process
// ends with its statement.
func terminate(ctx context.Context, config *pgx.ConnConfig, pid int64, began string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return
	}
	_, _ = conn.Exec(ctx, queries.sessionEnd, pgx.QueryExecModeExec, pgx.StrictNamedArgs{"pid": pid, "began": began})
	end(ctx, conn)
}

// end closes the connection. A pool does not take it back.
func end(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

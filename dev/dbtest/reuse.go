package dbtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/db"
)

// mostBytes is the maximum size of the tables, with dead rows, of a database that is reused: a larger
// one costs more to empty than a new database costs.
const mostBytes = 1 << 20

// ending is the deadline for the end of closed connections.
const ending = time.Second

// clone is a test's database that may be reused.
type clone struct {
	*DB
	size int32
	born int64 // the transaction that finished it; tests wrote the younger rows
}

// restorer restores a clone.
type restorer struct {
	script string // with $born
	shape  string // of a new clone
}

// Reused returns a database as New does, with a pool of the given size, which earlier tests may have
// used. It reuses their connections and cached plans, which are most of the cost of a small test: each
// new connection costs the server tens of milliseconds of CPU, and more when it first reads tables.
// When a test has passed, its rows are deleted, sequences are reset, its schemas, tables, views,
// triggers, constraints and functions are dropped, and the statistics of ANALYZE are removed. A
// database with other changes (belfry's own schema, the vocabulary, privileges, settings), with many
// rows or other connections is dropped instead. Tests of plans, of pages and of the server's counters
// need a new database.
func Reused(t testing.TB, connections int32) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	h, err := shared.open(ctx)
	require.NoError(t, err)
	c := h.take(connections)
	if c == nil {
		c, err = h.makeReusable(ctx, connections)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			closePool(t, c.Pool, releaseTimeout)
			t.Logf("database retained: %s%s", c.DSN, h.howToStart())
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupTimeout)
		defer cancel()
		if err := h.giveBack(ctx, c); err != nil {
			closePool(t, c.Pool, releaseTimeout)
			require.NoError(t, h.drop(ctx, c.Name))
		}
	})
	return c.DB
}

// take returns an unused database, or nil.
func (h *host) take(size int32) *clone {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range h.free {
		if c.size == size {
			h.free = append(h.free[:i], h.free[i+1:]...)
			return c
		}
	}
	return nil
}

func (h *host) makeReusable(ctx context.Context, size int32) (*clone, error) {
	c := &clone{DB: &DB{Name: newName("reused")}, size: size}
	err := h.clone(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	if c.DSN, err = h.dsn(c.Name); err != nil {
		return nil, err
	}
	if c.Pool, err = openPool(ctx, c.DSN, size); err != nil {
		return nil, err
	}
	if err = adopt(ctx, c.Pool); err == nil {
		err = c.Pool.QueryRow(ctx, queries.cloneBorn).Scan(&c.born)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.restorer.script == "" {
		h.restorer, err = readRestorer(ctx, c)
	}
	if err != nil {
		c.Pool.Close()
		return nil, fmt.Errorf("make a database to be reused: %w", errors.Join(err, h.drop(ctx, c.Name)))
	}
	return c, nil
}

func readRestorer(ctx context.Context, c *clone) (r restorer, err error) {
	var rows, vocabulary, rest string
	if err = c.Pool.QueryRow(ctx, queries.cloneRestorer).Scan(&rows, &vocabulary, &rest); err != nil {
		return r, err
	}
	conn, err := c.Pool.Acquire(ctx)
	if err != nil {
		return r, err
	}
	defer conn.Release()
	inserts, err := conn.Query(ctx, vocabulary)
	if err != nil {
		return r, err
	}
	words, err := pgx.CollectRows(inserts, pgx.RowTo[string])
	if err != nil {
		return r, err
	}
	r.script = rows + strings.Join(words, "") + rest
	r.shape, err = r.restore(ctx, conn.Conn(), c.born)
	return r, err
}

// restore deletes the rows of younger transactions, and returns the shape of the database.
func (r restorer) restore(ctx context.Context, conn *pgx.Conn, born int64) (shape string, err error) {
	results, err := conn.PgConn().Exec(ctx, strings.ReplaceAll(r.script, "$born", strconv.FormatInt(born, 10))).ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[len(results)-1].Rows[0][0]), nil
}

// giveBack lets other tests use a database. An error means that it cannot be reused.
func (h *host) giveBack(ctx context.Context, c *clone) error {
	if err := c.empty(ctx, h.restorer); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free = append(h.free, c)
	return nil
}

// empty restores the database and the sessions of its pool.
func (c *clone) empty(ctx context.Context, r restorer) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); c.Pool.Stat().TotalConns() != c.Pool.Stat().IdleConns() && time.Since(began) < ending; <-tick.C {
		continue // a broken connection ends soon
	}
	idle := c.Pool.AcquireAllIdle(ctx)
	defer func() {
		for _, conn := range idle {
			conn.Release()
		}
	}()
	if len(idle) == 0 || int(c.Pool.Stat().TotalConns()) != len(idle) {
		return errors.New("connections are in use or gone")
	}
	for _, conn := range idle {
		if _, err := conn.Conn().PgConn().Exec(ctx, queries.sessionRestore).ReadAll(); err != nil {
			return err
		}
	}
	conn := idle[0].Conn()
	var sessions, bytes int
	for began := time.Now(); sessions != len(idle); <-tick.C { // sessions of other pools end after their connections were closed
		if err := conn.QueryRow(ctx, queries.cloneUse).Scan(&sessions, &bytes); err != nil {
			return err
		}
		if bytes > mostBytes || time.Since(began) > ending {
			return errors.New("there are other sessions, or too many rows")
		}
	}
	if err := c.tidy(ctx, conn); err != nil {
		return err
	}
	shape, err := r.restore(ctx, conn, c.born)
	if err == nil && shape != r.shape {
		err = errors.New("a test has changed more than its own rows")
	}
	return err
}

// tidy drops the objects of a test and the statistics of the planner.
func (c *clone) tidy(ctx context.Context, conn *pgx.Conn) error {
	statements, err := db.Column[string](ctx, conn, queries.cloneTidy, pgx.StrictNamedArgs{"born": c.born})
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Past executes a statement without triggers and foreign keys, for states that belfry prevents.
// After DISABLE TRIGGER the database could not be reused.
func Past(t require.TestingT, pool *pgxpool.Pool, sql string, args ...any) {
	ctx := context.Background()
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.replica); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}))
}

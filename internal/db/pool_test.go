package db_test

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

var noon = time.Date(2025, 1, 31, 12, 0, 0, 123000, time.UTC)

func TestMain(m *testing.M) { dbtest.Main(m) }

// warnings counts those of a log that nothing is prepared any more.
func warnings(log *dbtest.Buffer) int {
	return strings.Count(log.String(), "they are not used any more")
}

// open returns a pool of Open and its log.
func open(t *testing.T, dsn string, connections int32) (*pgxpool.Pool, *dbtest.Buffer) {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	c.MaxConns = connections
	log := new(dbtest.Buffer)
	pool, err := db.Open(t.Context(), c, zerolog.New(log))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, log
}

func modeOf(t *testing.T, pool *pgxpool.Pool) (mode pgx.QueryExecMode) {
	t.Helper()
	require.NoError(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		mode = c.Conn().Config().DefaultQueryExecMode
		return nil
	}))
	return mode
}

// thing is what comes back to work.
type thing struct {
	ID   int64
	What *string
	List []string
	Data map[string]any
	At   *time.Time
	Away time.Duration
}

// work has every kind of statement executed that belfry has, in one transaction, and
// returns what comes back.
func work(ctx context.Context, pool *pgxpool.Pool) (all []thing, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TEMP TABLE things (id bigint, what text, list text[], data jsonb, at timestamptz) ON COMMIT DROP`); err != nil {
			return err
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "things"}, []string{"id", "what", "list", "data", "at"}, pgx.CopyFromRows([][]any{
			{int64(1), `ä'\`, []string{"a", `"b",`}, map[string]any{"k": []any{1, nil}}, noon}, {int64(2), nil, nil, nil, nil},
		}))
		if err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(`UPDATE pg_temp.things SET id = id + $1 WHERE id = ANY($2)`, int64(10), []int64{2, 3})
		b.Queue(`SELECT max(id) FROM pg_temp.things`)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT *, make_interval(secs => @secs::float8) AS away FROM pg_temp.things WHERE data = @data::jsonb OR id = @id::bigint ORDER BY id`,
			pgx.StrictNamedArgs{"secs": 1.5, "data": map[string]any{"k": []any{1, nil}}, "id": int64(12)})
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByName[thing])
		return err
	})
	if err != nil {
		return nil, err
	}
	var three int
	if err := pool.QueryRow(ctx, `SELECT $1::int + 1`, 2).Scan(&three); err != nil {
		return nil, err
	}
	var alone pgx.Batch // a transaction by itself, sent in one piece
	alone.Queue(`SELECT set_config('lock_timeout', $1, true)`, "1min")
	alone.Queue(`SELECT count(*) FROM unnest($1::text[]) u WHERE u = $2`, []string{"a", "b"}, "b")
	if err := pool.SendBatch(ctx, &alone).Close(); err != nil {
		return nil, err
	}
	return all, pool.QueryRow(ctx, `SELECT count(*) FROM unnest($1::int[])`, []int{1, 2, three}).Scan(&three)
}

// side has several goroutines work beside each other over each pool, and looks at what
// came of it.
func side(t *testing.T, pools ...*pgxpool.Pool) {
	t.Helper()
	text := `ä'\`
	want := []thing{
		{ID: 1, What: &text, List: []string{"a", `"b",`}, Data: map[string]any{"k": []any{1.0, nil}}, At: &noon, Away: 1500 * time.Millisecond},
		{ID: 12, Away: 1500 * time.Millisecond},
	}
	var all sync.WaitGroup
	problems := make(chan error, len(pools)*4*20)
	for _, pool := range pools {
		for range 4 {
			all.Go(func() {
				for range 20 {
					got, err := work(t.Context(), pool)
					for i, one := range got {
						if one.At != nil {
							utc := one.At.UTC()
							got[i].At = &utc
						}
					}
					if err == nil && !reflect.DeepEqual(want, got) {
						err = fmt.Errorf("wanted %+v, got %+v", want, got)
					}
					if err != nil {
						problems <- err
					}
				}
			})
		}
	}
	all.Wait()
	close(problems)
	for err := range problems {
		require.NoError(t, err)
	}
}

// Two processes, whose statements have the same names, share three server connections.
func TestOpen_WorksBehindAPoolerThatLosesPreparedStatements(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, base.DSN, map[string]string{"default_pool_size": "3"})
	one, said := open(t, pooler.DSN(base.Name), 4)
	other, saidToo := open(t, pooler.DSN(base.Name), 4)
	side(t, one, other)
	require.Equal(t, pgx.QueryExecModeCacheDescribe, modeOf(t, one))
	require.Equal(t, []int{1, 1}, []int{warnings(said), warnings(saidToo)}, "once for each pool")
}

func TestOpen_PreparesWhereThatWorks(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	for name, dsn := range map[string]string{
		"directly":        base.DSN,
		"in session mode": dbtest.StartPgBouncer(t, base.DSN, map[string]string{"pool_mode": "session"}).DSN(base.Name),
	} {
		pool, said := open(t, dsn, 1)
		side(t, pool)
		require.Equal(t, pgx.QueryExecModeCacheStatement, modeOf(t, pool), name)
		require.Zero(t, warnings(said), name)
	}
}

// Where a pooler is full nothing can be found out, and nothing depends on it.
func TestOpen_GoesWithoutBehindAPoolerThatIsFull(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pool, said := open(t, dbtest.StartPgBouncer(t, base.DSN, map[string]string{"pool_mode": "session", "default_pool_size": "1"}).DSN(base.Name), 1)
	side(t, pool)
	require.Equal(t, pgx.QueryExecModeCacheDescribe, modeOf(t, pool))
	require.Equal(t, 1, warnings(said))
}

// What was asked for is what is done.
func TestOpen_LeavesAModeThatWorksAsItIs(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, base.DSN, map[string]string{"default_pool_size": "2"})
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		c, err := pgxpool.ParseConfig(pooler.DSN(base.Name))
		require.NoError(t, err)
		c.ConnConfig.DefaultQueryExecMode = mode
		pool, err := db.Open(t.Context(), c, zerolog.Nop())
		require.NoError(t, err)
		require.Equal(t, mode, modeOf(t, pool))
		require.Nil(t, pool.Config().ConnConfig.Tracer)
		pool.Close()
	}
}

// A pooler that changes its mode while connections stand is found out by the first error,
// and the next try succeeds on every connection.
func TestOpen_GoesWithoutAfterTheFirstStatementLost(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	lose := func(ctx context.Context, c *pgxpool.Conn) {
		_, err := c.Exec(ctx, "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	for name, try := range map[string]func(*pgxpool.Conn) error{
		"a query": func(c *pgxpool.Conn) error {
			var n int
			return c.QueryRow(t.Context(), `SELECT $1::int + 1`, 1).Scan(&n)
		},
		"a batch": func(c *pgxpool.Conn) error {
			var b pgx.Batch
			b.Queue(`SELECT $1::int + 1`, 1)
			return c.SendBatch(t.Context(), &b).Close()
		},
	} {
		pool, said := open(t, base.DSN, 3)
		side(t, pool)
		require.NoError(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			var n int
			require.NoError(t, c.QueryRow(t.Context(), `SELECT $1::int + 1`, 1).Scan(&n))
			lose(t.Context(), c)
			err := try(c)
			require.True(t, db.Lost(err), "%s: %v", name, err)
			return nil
		}))
		side(t, pool)
		require.Equal(t, pgx.QueryExecModeCacheDescribe, modeOf(t, pool), name)
		require.Equal(t, 1, warnings(said), name)
	}
}

func TestLook_SeesWhatIsInBetween(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	for _, c := range []struct {
		dsn  string
		want db.Found
	}{
		{base.DSN, db.Found{}},
		{dbtest.StartPgBouncer(t, base.DSN, map[string]string{"pool_mode": "session"}).DSN(base.Name), db.Found{Pooler: true}},
		{dbtest.StartPgBouncer(t, base.DSN, nil).DSN(base.Name), db.Found{Pooler: true, Loses: true}},
		{dbtest.StartPgBouncer(t, base.DSN, map[string]string{"server_round_robin": "1"}).DSN(base.Name), db.Found{Pooler: true, Loses: true}},
		{dbtest.StartPgBouncer(t, base.DSN, map[string]string{"default_pool_size": "1"}).DSN(base.Name), db.Found{Pooler: true, Loses: true}},
	} {
		for range 5 {
			conn, err := pgx.Connect(t.Context(), c.dsn)
			require.NoError(t, err)
			found, err := db.DetectPooler(t.Context(), conn)
			require.NoError(t, err)
			require.Equal(t, c.want, found)
			require.NoError(t, conn.Close(t.Context()))
		}
	}
}

// A statement whose context ends is cancelled in the server, but not through a pooler, which
// some versions of PgBouncer do not survive.
func TestOpen_SendsNoCancelRequestThroughAPooler(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, base.DSN, nil).DSN(base.Name)
	for name, c := range map[string]struct {
		dsn   string
		dials int32
	}{
		"direct":             {base.DSN, 1},
		"pooled":             {pooler, 0},
		"pooled, by setting": {pooler + "&default_query_exec_mode=exec", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(c.dsn)
			require.NoError(t, err)
			var dials atomic.Int32
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return dial(ctx, network, address)
			}
			pool, err := db.Open(t.Context(), config, zerolog.Nop())
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			dials.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = conn.Exec(ctx, `SELECT pg_sleep(60)`)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			<-conn.Conn().PgConn().CleanupDone()
			require.Equal(t, c.dials, dials.Load())
		})
	}
}

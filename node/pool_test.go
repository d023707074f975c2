package node

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A pooler makes its process numbers up: any 32 bits. Half of them are larger than
// PostgreSQL's type for its own.
func TestSession_BeginsBehindAPoolerWhateverNumberItMakesUp(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, db.DSN, nil)
	for range 100 {
		conn, err := pgx.Connect(t.Context(), pooler.DSN(db.Name))
		require.NoError(t, err)
		pid := conn.PgConn().PID()
		require.NoError(t, standardSession(t.Context(), conn), "%d", pid)
		require.NoError(t, conn.Close(t.Context()))
		if pid > math.MaxInt32 {
			return
		}
	}
	require.Fail(t, "it makes small numbers up only")
}

// cutConn has no answer to a write with certain words in it: the server is gone then.
type cutConn struct {
	net.Conn
	words string
	cut   atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.words)) {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	if c.cut.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(b)
}

// A server that crashes while a process starts is an unreachable one, at whatever statement:
// who starts it again may try later.
func TestStart_AServerThatCrashesIsUnreachable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for words, start := range map[string]func(ctx context.Context, pool *pgxpool.Pool) error{
		"to_regclass": func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := ReadSchema(ctx, pool)
			return err
		},
		"FROM belfry.schema_migrations": func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := ReadSchema(ctx, pool)
			return err
		},
		"belfry.names": func(ctx context.Context, pool *pgxpool.Pool) error {
			var o Options
			o.Pool, o.Deliver, o.Config.Delivery.Relay.Name = pool, true, "a"
			_, err := HoldNames(ctx, o)
			return err
		},
	} {
		config := db.Pool.Config().Copy()
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &cutConn{Conn: conn, words: words}, err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		err = start(t.Context(), pool)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, words)
		require.True(t, Unreachable(err), "%s: %v", words, err)
	}
}

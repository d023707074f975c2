package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

const patience = time.Minute

func TestMain(m *testing.M) { dbtest.Main(m) }

// listen runs a Listener until the test ends. What wakes it comes on the channel.
func listen(t *testing.T, pool *pgxpool.Pool, timeout time.Duration) (*lifecycle.Listener, <-chan struct{}) {
	t.Helper()
	wakes := make(chan struct{}, 100)
	l := lifecycle.NewListener(pool, "belfry_jobs", timeout, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}, nil, zerolog.Nop())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return l, wakes
}

func woken(t *testing.T, wakes <-chan struct{}) {
	t.Helper()
	select {
	case <-wakes:
	case <-time.After(patience):
		require.Fail(t, "nobody was woken")
	}
}

// What commits is heard, also on the connection after one that broke, and whoever waits is
// told that there was a gap.
func TestListener_HearsAgainAfterALostConnection(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	l, wakes := listen(t, db.Pool, patience)
	woken(t, wakes)
	require.True(t, l.Listening())
	ring := func() {
		_, err := db.Pool.Exec(t.Context(), `SELECT belfry.ring('belfry_jobs')`)
		require.NoError(t, err)
		woken(t, wakes)
	}
	ring()
	_, err := db.Pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	require.NoError(t, err)
	woken(t, wakes) // the gap begins
	woken(t, wakes) // and ends
	require.True(t, l.Listening())
	ring()
}

// Where notifications do not arrive, because nobody sends any or because a pooler keeps
// them, a Listener does not believe that it hears.
func TestListener_KnowsThatItIsDeaf(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET belfry.bell = off', current_database()); END$$`)
	require.NoError(t, err)
	db.Pool.Reset()
	l, wakes := listen(t, db.Pool, 300*time.Millisecond)
	require.Eventually(t, func() bool { // it has given up the first connection
		var n int
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%echo%'`).Scan(&n))
		return n > 0
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%echo%'`).Scan(&n))
		return n == 0
	}, patience, time.Millisecond)
	require.False(t, l.Listening())
	require.Empty(t, wakes)
}

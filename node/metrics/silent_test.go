package metrics

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
)

// silent is a server that accepts connections and says nothing, as one that stands still.
// called gets one for each.
func silent(t *testing.T) (address string, called <-chan struct{}) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	calls, ended := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		var held []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, conn)
			calls <- struct{}{}
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-ended
	})
	return l.Addr().String(), calls
}

// While the database stands still, and who asks it waits, everything is answered.
func TestServer_AnswersWhileTheDatabaseStandsStill(t *testing.T) {
	t.Parallel()
	address, called := silent(t)
	pool, err := pgxpool.New(t.Context(), "postgres://somebody@"+address+"/belfry?sslmode=disable&pool_max_conns=1")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	base, m, h := serve(t, node.DefaultMetricsConfig())
	outage := job.NewOutage(zerolog.Nop())
	m.Database(pool, outage)
	looking := make(chan struct{}, 1000)
	poller := m.Poller(time.Hour, h, func(ctx context.Context) (string, error) {
		looking <- struct{}{}
		return "", pool.Ping(ctx)
	})
	collector := m.Collector(time.Hour, pool, nil, senders(), outage, zerolog.Nop())
	ctx, stop := context.WithCancel(t.Context())
	looked, collected := run(ctx, h.Loop("poll", poller.Run)), run(ctx, h.Loop("collect", collector.Run))
	<-called // somebody waits for an answer
	<-looking
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		status, body := get(t, http.MethodGet, base+path)
		require.Equal(t, want, status, body)
	}
	m.shows(t, map[string]float64{"belfry_pool_max_connections": 1})
	stop()
	require.NoError(t, <-looked)
	require.NoError(t, <-collected)
}

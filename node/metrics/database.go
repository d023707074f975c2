package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Database registers metrics of the pool and of outages, which need no query.
func (m *Metrics) Database(pool *pgxpool.Pool, outage *lifecycle.Outage) {
	m.read([]definition{
		{"belfry_pool_connections", "gauge", "Connections of this process's pool, by state: acquired, idle, or being opened.", []string{"state"}},
		{"belfry_pool_max_connections", "gauge", "Maximum number of connections of the pool (database.max_connections).", nil},
		{"belfry_pool_acquires_total", "counter", "Connections that were taken from the pool.", nil},
		{"belfry_pool_waits_total", "counter", "Acquisitions that waited because no connection was idle.", nil},
		{"belfry_pool_wait_seconds_total", "counter", "Total wait of these acquisitions.", nil},
		{"belfry_pool_canceled_acquires_total", "counter", "Connections that were given up while they were waited for.", nil},
		{"belfry_database_outages_total", "counter", "Times that the database ceased to answer this process.", nil},
		{"belfry_database_away", "gauge", "1 while the database does not answer this process.", nil},
	}, func(give emit) {
		s := pool.Stat()
		give(0, float64(s.AcquiredConns()), "acquired")
		give(0, float64(s.IdleConns()), "idle")
		give(0, float64(s.ConstructingConns()), "opening")
		give(1, float64(s.MaxConns()))
		give(2, float64(s.AcquireCount()))
		give(3, float64(s.EmptyAcquireCount()))
		give(4, s.EmptyAcquireWaitTime().Seconds())
		give(5, float64(s.CanceledAcquireCount()))
		outages, since := outage.Seen()
		give(6, float64(outages))
		give(7, truth(!since.IsZero()))
	})
}

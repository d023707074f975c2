package bench

import (
	"context"
	"crypto/rand"
	"embed"
	"flag"
	"math"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
)

const (
	// application is the name of the benchmarks' connections. A run does not
	// count connections of this name as foreground load.
	application = "belfry bench"
	// connections is the size of a pool: two runners or a relay, and a listener.
	connections = 12
)

var (
	channelCount = flag.Int64("channels", 0, "generate `N` channels for Jobs (default 1,000,000; 4,000 with -short)")
	messageCount = flag.Int64("messages", 0, "deliver `N` messages in each round of Delivery (default 1,000,000; 2,000 with -short)")
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet contains the statements of queries.sql.
type querySet struct {
	channelsVacuum, channelsActive, channelSample, outboxEmpty, jobsEmpty, rowCount, notificationInsertAll,
	messageInsertAll, notificationInsertOffset, sentInsert, oldestAge, relationCreate, relationFill, platformRare,
	messagesVacuum, messagesSent, snapshotTake, riverVacuum, riverCompleted,
	ordersCreate, orderInsert, activityInsert, activityInsertLater, orderAndActivityInsert,
	activityNotify, likeNotify, valuesInsert string
}

func TestMain(m *testing.M) {
	runAsChild() // never returns in a child process
	dbtest.Main(m)
}

// size returns n for a measurement, and few with -short, which only checks that
// the benchmarks work.
func size[N int | int64 | time.Duration](n, few N) N {
	if testing.Short() {
		return few
	}
	return n
}

// env is a database with belfry's schema and generated channels, in one benchmark.
type env struct {
	*testing.B

	admin  string // connection string of the server
	dsn    string // connection string of the database
	pool   *pgxpool.Pool
	store  *channels.Store
	size   int64 // channels
	active int64 // channels that a job to everyone reaches
	keeps  bool  // clear and writeMessages delete no rows
	first  int64 // the first job of writeMessages
}

// open starts a durable server, or uses the one of BELFRY_DATABASE_URL, and
// fills a database there. See fill for another one on the same server.
func open(b *testing.B, channelCount int64, stock bool) *env {
	b.Helper()
	e := &env{B: b, admin: os.Getenv("BELFRY_DATABASE_URL"), size: channelCount}
	if e.admin == "" {
		dir, err := os.MkdirTemp("", "belfry-bench-")
		require.NoError(e, err)
		e.Cleanup(func() { require.NoError(e, os.RemoveAll(dir)) })
		require.NoError(e, os.Chmod(dir, 0o755)) // the server's account has to enter it
		data, err := pgserver.ReachableDir(dir)
		require.NoError(e, err)
		e.Cleanup(func() { require.NoError(e, os.RemoveAll(data)) })
		server, err := pgserver.Open(e.Context(), pgserver.Config{DataDir: data, Stock: stock})
		require.NoError(e, err)
		e.Cleanup(func() { require.NoError(e, server.Close(context.WithoutCancel(e.Context()))) })
		e.admin = server.DSN("postgres")
	}
	e.fill()
	return e
}

// fill replaces the database by a new one.
func (e *env) fill() {
	e.dsn = e.database()
	_, err := migrations.Up(e.Context(), e.dsn)
	require.NoError(e, err)
	e.pool = e.connect(e.dsn, nil)
	e.store, err = channels.New(channels.DefaultConfig())
	require.NoError(e, err)
	_, err = cities.Generate(e.Context(), e.store, e.pool, e.size, cities.Options{Seed: 1})
	require.NoError(e, err)
	e.do(queries.channelsVacuum)
	e.read(queries.channelsActive, nil, &e.active)
}

// run runs one measurement on the database.
func (e *env) run(name string, measure func(e *env)) {
	e.Run(name, func(b *testing.B) {
		in := *e
		in.B = b
		measure(&in)
	})
}

// database creates a database on the server and drops it at the end.
func (e *env) database() (dsn string) {
	name := "belfry_bench_" + strings.ToLower(rand.Text()[:8])
	administer := func(sql string) {
		ctx := context.WithoutCancel(e.Context())
		conn, err := pgx.Connect(ctx, e.admin)
		require.NoError(e, err)
		defer func() { require.NoError(e, conn.Close(ctx)) }()
		_, err = conn.Exec(ctx, sql)
		require.NoError(e, err)
	}
	administer("CREATE DATABASE " + name)
	e.Cleanup(func() { administer("DROP DATABASE " + name + " WITH (FORCE)") })
	dsn, err := db.WithDatabase(e.admin, name)
	require.NoError(e, err)
	return dsn
}

// connect opens a pool that ends with the benchmark.
func (e *env) connect(dsn string, tracer pgx.QueryTracer) *pgxpool.Pool {
	c, err := pgxpool.ParseConfig(dsn)
	require.NoError(e, err)
	c.MaxConns, c.ConnConfig.Tracer = connections, tracer
	c.ConnConfig.RuntimeParams["application_name"] = application
	pool, err := pgxpool.NewWithConfig(e.Context(), c)
	require.NoError(e, err)
	e.Cleanup(pool.Close)
	return pool
}

// do runs statements without a result.
func (e *env) do(statements ...string) {
	for _, sql := range statements {
		_, err := e.pool.Exec(e.Context(), sql)
		require.NoError(e, err)
	}
}

// read scans the one row of a statement.
func (e *env) read(sql string, args pgx.StrictNamedArgs, to ...any) {
	require.NoError(e, e.pool.QueryRow(e.Context(), sql, args).Scan(to...))
}

// clear empties the outbox and writes all dirty pages to disk, so that no
// measurement pays for the one before.
func (e *env) clear() {
	if !e.keeps {
		e.do(queries.outboxEmpty)
	}
	e.checkpoint()
}

// checkpoint requires the role pg_checkpoint. Measurements without it are noisier.
func (e *env) checkpoint() {
	if _, err := e.pool.Exec(e.Context(), "CHECKPOINT"); db.Code(err) != "42501" { // insufficient_privilege
		require.NoError(e, err)
	}
}

// start runs loops until stop, which waits for them. Their context ends early if
// one of them fails.
func (e *env) start(loops ...func(context.Context) error) (running context.Context, stop func()) {
	ctx, cancel := context.WithCancel(e.Context())
	all, running := errgroup.WithContext(ctx)
	for _, loop := range loops {
		all.Go(func() error { return loop(running) })
	}
	return running, func() {
		cancel()
		require.NoError(e, all.Wait())
	}
}

// receive fails the benchmark if the loops of start end first.
func receive[T any](running context.Context, e *env, from <-chan T) (value T) {
	select {
	case value = <-from:
	case <-running.Done():
		require.NoError(e, context.Cause(running))
	}
	return value
}

// sideBySide measures each side once, in random order, and returns the values in
// the order of the arguments.
func sideBySide(measure ...func() float64) []float64 {
	values := make([]float64, len(measure))
	for _, i := range mathrand.Perm(len(measure)) {
		values[i] = measure[i]()
	}
	return values
}

// goal is a limit for a figure.
type goal struct{ least, most float64 }

func atLeast(value float64) goal { return goal{least: value, most: math.Inf(1)} }

func atMost(value float64) goal { return goal{least: math.Inf(-1), most: value} }

// report adds a figure to the line of the benchmark, instead of ns/op. It logs missed goals.
func (e *env) report(value float64, unit string, goals ...goal) {
	require.False(e, math.IsNaN(value) || math.IsInf(value, 0), "%s: nothing was measured", unit)
	e.ReportMetric(0, "ns/op")
	e.ReportMetric(value, unit)
	for _, g := range goals {
		if value < g.least || value > g.most {
			e.Logf("goal missed: %.4g %s is not between %g and %g", value, unit, g.least, g.most)
		}
	}
}

// percentile returns the smallest value that at least p percent of the values do
// not exceed; NaN if there are none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return slices.Sorted(slices.Values(values))[max(rank, 1)-1]
}

// tenths returns the first and the last tenth of the values.
func tenths(values []float64) (first, last []float64) {
	n := min(max(len(values)/10, 1), len(values))
	return values[:n], values[len(values)-n:]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func perSecond(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() }

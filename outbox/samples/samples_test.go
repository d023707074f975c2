package samples_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
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
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/samples"
)

// The sums over a run are the job's counts, however many relays deliver it: the rows of a job and its lane, and the
// messages that were sent and that died of a job and its sender.
func TestSamples_SumsAreTheJobsCounts(t *testing.T) {
	t.Parallel()
	const n = 700
	b := setup(t, n)
	ids := []int64{b.enqueue(t, "default"), b.enqueue(t, "night")}
	walking := b.recorder(20 * time.Millisecond)
	stop := walking.Start()
	b.walk(t, walking)
	stop()
	var relays sync.WaitGroup
	for i := range 2 {
		r := b.recorder(20 * time.Millisecond)
		to := newRelay(t, b.DB.Pool, fmt.Sprint("r", i), r, provider{})
		relays.Go(func() {
			defer r.Start()()
			_, err := to.Drain(t.Context())
			require.NoError(t, err)
		})
	}
	relays.Wait()
	const sums = `SELECT format('%s %s %s', sum(rows_written), sum(sent), sum(failed)) FROM belfry.samples WHERE kind = $1 AND name = $2`
	for i, id := range ids {
		counts := one[string](t, b, `SELECT format('%s %s %s', messages, sent, dead) FROM belfry.job_progress WHERE job_id = $1`, id)
		require.Equal(t, "700 630 70", counts)
		require.Equal(t, counts, one[string](t, b, sums, "job", fmt.Sprint(id)))
		require.Equal(t, "700 0 0", one[string](t, b, sums, "lane", []string{"default", "night"}[i]))
	}
	// 70 rejected, and 90 of the others failed once.
	require.Equal(t, "0 1260 320", one[string](t, b, sums, "sender", "fcm"))
	require.Equal(t, "push true", one[string](t, b, `SELECT max(medium) || ' ' || (max(p95_ms) > 0) FROM belfry.samples WHERE kind = 'sender'`))
	require.True(t, one[bool](t, b, `SELECT bool_and(at BETWEEN now() - interval '3 minutes' AND now()) FROM belfry.samples`))
}

const childEnv = "BELFRY_SAMPLES_CHILD"

// childMain delivers until it is killed.
func childMain(dsn string) {
	t := fatal{}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["application_name"] = childEnv
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	r := samples.Every(samples.New(pool, nil, zerolog.Nop()), 50*time.Millisecond)
	r.Start()
	_, _ = os.Stdout.WriteString("started\n")
	_ = newRelay(t, pool, fmt.Sprint("child", os.Getpid()), r, slow{}).Run(context.Background())
	os.Exit(0) //nolint:revive // the end of a child process
}

// fatal is a test that ends the process.
type fatal struct{}

func (fatal) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }
func (fatal) FailNow()                          { os.Exit(1) } //nolint:revive // the end of a child process

// A killed process loses the figures of its last minute at most, and none is counted twice.
func TestProcess_AKilledProcessLosesItsLastMinute(t *testing.T) {
	t.Parallel()
	const n = 3000
	b := setup(t, n)
	id := b.enqueue(t, "default")
	walking := b.recorder(20 * time.Millisecond)
	stop := walking.Start()
	b.walk(t, walking)
	stop()
	for range 2 {
		child := exec.Command(os.Args[0]) //nolint:gosec // this test
		child.Env = append(os.Environ(), childEnv+"="+b.DB.DSN)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		_, err = io.ReadFull(out, make([]byte, len("started")))
		require.NoError(t, err)
		before := one[int](t, b, `SELECT sent::int FROM belfry.job_progress WHERE job_id = $1`, id)
		b.Eventually(t, `SELECT sent > $2 FROM belfry.job_progress WHERE job_id = $1`, id, before+400)
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
		// The server may still commit the child's last statements.
		b.Eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1)`, childEnv)
	}
	sent, stored := one[int](t, b, `SELECT sent::int FROM belfry.job_progress WHERE job_id = $1`, id), sentSum(t, b, id)
	require.LessOrEqual(t, stored, sent)
	require.NotZero(t, stored)
	lost := sent - stored
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second'`)
	last := b.recorder(20 * time.Millisecond)
	func() {
		defer last.Start()()
		_, err := newRelay(t, b.DB.Pool, "last", last, provider{}).Drain(t.Context())
		require.NoError(t, err)
	}()
	sent, stored = one[int](t, b, `SELECT sent::int FROM belfry.job_progress WHERE job_id = $1`, id), sentSum(t, b, id)
	require.Equal(t, lost, sent-stored, "what was lost is not counted later, nor anything twice")
	require.Less(t, lost, 800)
}

func sentSum(t *testing.T, b *bundle, id int64) int {
	t.Helper()
	return one[int](t, b, `SELECT sum(sent)::int FROM belfry.samples WHERE kind = 'job' AND name = $1`, fmt.Sprint(id))
}

// cutConn loses the answer to the first COMMIT of its pool.
type cutConn struct {
	net.Conn

	once *atomic.Bool
	cut  atomic.Bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("commit\x00")) && c.once.CompareAndSwap(false, true) {
		c.cut.Store(true)
	}
	return n, err
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.cut.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// A minute whose COMMIT has no answer is stored once.
func TestSamples_ALostAnswerStoresNothingTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	config := b.DB.Pool.Config().Copy()
	dial, once := config.ConnConfig.DialFunc, new(atomic.Bool)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &cutConn{Conn: conn, once: once}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := samples.Every(samples.New(pool, nil, zerolog.Nop()), 20*time.Millisecond)
	stop := r.Start()
	sent(r, 5)
	b.Eventually(t, `SELECT EXISTS (SELECT FROM belfry.samples)`)
	require.True(t, once.Load())
	sent(r, 7)
	stop()
	require.EqualValues(t, 12, one[int64](t, b, `SELECT sum(sent)::bigint FROM belfry.samples WHERE kind = 'job'`))
}

// Values of another role do not break readers.
func TestSamples_ChecksBoundEachValue(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	insert := func(columns, values string) error {
		_, err := b.DB.Pool.Exec(t.Context(), `INSERT INTO belfry.samples (`+columns+`) VALUES (`+values+`)`)
		return err
	}
	const key = "'sender', 'fcm', '2026-01-01 00:00:00+00'"
	require.NoError(t, insert("kind, name, at", key))
	require.NoError(t, insert("kind, name, at", "'job', '9223372036854775807', '2026-01-01 00:00:00+00'"))
	for constraint, values := range map[string][]string{
		"samples_kind_check":   {"kind, name, at", "'user', 'x', '2026-01-01 00:00:00+00'"},
		"samples_name_check":   {"kind, name, at", "'job', 'x', '2026-01-01 00:00:00+00'"},
		"samples_times_check":  {"kind, name, at", "'lane', 'x', '2026-01-01 00:00:01+00'"},
		"samples_medium_check": {"kind, name, at, medium", "'sender', 'x', '2026-01-01 00:00:00+00', repeat('m', 100)"},
		"samples_counts_check": {"kind, name, at, sent", "'sender', 'x', '2026-01-01 00:00:00+00', -1"},
		"samples_gauges_check": {"kind, name, at, p95_ms", "'sender', 'x', '2026-01-01 00:00:00+00', 2000000000"},
	} {
		require.ErrorContains(t, insert(values[0], values[1]), constraint)
	}
	require.ErrorContains(t, insert("kind, name, at", "'lane', repeat('x', 64), '2026-01-01 00:00:00+00'"), "samples_name_check")
	require.ErrorContains(t, insert("kind, name, at", "'lane', 'x', 'infinity'"), "samples_times_check")
}

// A minute at its ceilings stays there, and the process beside it stores its own figures.
func TestSamples_CountsEndAtTheirCeiling(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at, sent)
		SELECT 'job', '1', date_bin('1 minute', now() + make_interval(mins => m), '1970-01-01 00:00:00+00'), 1000000000000 FROM generate_series(-1, 1) m`)
	r := b.recorder(20 * time.Millisecond)
	stop := r.Start()
	sent(r, 5)
	stop()
	require.EqualValues(t, 5, one[int64](t, b, `SELECT sum(sent)::bigint FROM belfry.samples WHERE kind = 'sender'`))
	require.Equal(t, int64(1_000_000_000_000), one[int64](t, b, `SELECT max(sent) FROM belfry.samples WHERE kind = 'job'`))
}

// Steps without samples are zero, and the number of points is bounded.
func TestSeries_FillsGaps(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at, medium, sent, failed, queue_depth, p95_ms) VALUES
		('sender', 'fcm', '2026-01-01 10:01:00+00', 'push', 5, 1, 7, 20), ('sender', 'fcm', '2026-01-01 10:04:00+00', 'push', 6, 0, 3, 90),
		('sender', 'sms', '2026-01-01 10:01:00+00', 'sms', 1, 0, 0, 4), ('sender', 'fcm', '2026-01-01 10:10:00+00', 'push', 9, 9, 9, 9),
		('job', '1', '2026-01-01 10:01:00+00', '', 50, 0, 0, 0)`)
	from := time.Date(2026, 1, 1, 10, 0, 30, 0, time.UTC)
	at := func(m int) time.Time { return time.Date(2026, 1, 1, 10, m, 0, 0, time.UTC) }
	points, err := samples.Series(t.Context(), b.DB.Pool, samples.Sender, "fcm", from, at(10), 4*time.Minute)
	require.NoError(t, err)
	require.Equal(t, []samples.Point{
		{At: at(0), Sent: 5, Failed: 1, QueueDepth: 7, P95MS: 20}, {At: at(4), Sent: 6, QueueDepth: 3, P95MS: 90}, {At: at(8)},
	}, points)
	points, err = samples.Series(t.Context(), b.DB.Pool, samples.Sender, "", from, at(4), time.Minute)
	require.NoError(t, err)
	require.Equal(t, []samples.Point{{At: at(0)}, {At: at(1), Sent: 6, Failed: 1, QueueDepth: 7, P95MS: 20}, {At: at(2)}, {At: at(3)}}, points)
	for _, bad := range []struct {
		to   time.Time
		step time.Duration
	}{{at(0), time.Minute}, {at(0).Add(501 * time.Minute), time.Minute}, {at(9), time.Second}, {at(9), 90 * time.Second}} {
		_, err = samples.Series(t.Context(), b.DB.Pool, samples.Sender, "fcm", from, bad.to, bad.step)
		require.ErrorContains(t, err, "not allowed")
	}
	points, err = samples.Series(t.Context(), b.DB.Pool, samples.Sender, "fcm", from, at(0).Add(500*time.Minute), time.Minute)
	require.NoError(t, err)
	require.Len(t, points, samples.MostPoints)
}

// The queries use their indexes in a table of fourteen days.
func TestLong_SeriesKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at, sent)
		SELECT k.kind, k.name, '2026-01-01 00:00:00+00'::timestamptz + make_interval(mins => m), 1
		  FROM generate_series(1, 20160) m, (VALUES ('sender', 'fcm'), ('sender', 'sms'), ('lane', 'default'), ('job', '1'), ('job', '2')) k(kind, name)`)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.samples")
	at := time.Date(2026, 1, 14, 0, 0, 0, 0, time.UTC)
	args := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		a := pgx.StrictNamedArgs{"kind": "sender", "from": at, "to": at.Add(time.Hour), "seconds": 60.0}
		for k, v := range more {
			a[k] = v
		}
		return a
	}
	var out strings.Builder
	outboxtest.Plan(t, b.DB.Pool, &out, "SampleSeries", "EXPLAIN (COSTS OFF) "+samples.Statement("SampleSeries"), args(pgx.StrictNamedArgs{"name": "fcm"}))
	outboxtest.Plan(t, b.DB.Pool, &out, "SampleSeriesOfKind", "EXPLAIN (COSTS OFF) "+samples.Statement("SampleSeriesOfKind"), args(nil))
	outboxtest.Plan(t, b.DB.Pool, &out, "SamplesAdd", "EXPLAIN (COSTS OFF) "+samples.Statement("SamplesAdd"), pgx.StrictNamedArgs{
		"kinds": []string{"job"}, "names": []string{"1"}, "ages": []float64{30}, "media": []string{""}, "rows_written": []int64{1}, "sent": []int64{1},
		"failed": []int64{0}, "deferred": []int64{0}, "queue_depths": []int64{0}, "p95_ms": []int64{0},
	})
	require.NotContains(t, out.String(), "Seq Scan on samples")
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

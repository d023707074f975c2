package job_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	dbtest.Main(m)
}

const (
	// patience is how long a test waits for what must happen.
	patience = time.Minute
	// chunkRows is the fixed size of the tests' chunks, in keys.
	chunkRows = 100
	// step is the distance of the tests' channel ids, which leaves gaps.
	step = 10
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
	Name() string
	Context() context.Context
}

// bundle is one test's database with n channels, ids 10, 20, 30 …, every third on
// android and the others on ios, and the runs that the test has started.
type bundle struct {
	db    *dbtest.DB
	jobs  *job.Store
	who   *channels.Store
	mu    sync.Mutex
	gates []*gate
	runs  []*started
	last  []func() // what ends after the runs
}

func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 10), n)
}

func setupOn(t *testing.T, db *dbtest.DB, n int) *bundle {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	b := &bundle{db: db, jobs: job.NewStore(db.Pool), who: who}
	b.populate(t, n)
	// Whatever a failed test left standing must go on, or nothing can be closed.
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.runs {
			s.runner.StopNow(errTestOver)
		}
		for _, g := range b.gates {
			g.release(errTestOver)
		}
		limit := time.After(patience)
		for _, s := range b.runs {
			select {
			case <-s.ended:
			case <-limit:
				t.Error("a run does not end with its test")
				return
			}
		}
		for _, f := range b.last {
			f()
		}
	})
	return b
}

// populate has n channels and no others.
func (b *bundle) populate(t tester, n int) {
	t.Helper()
	b.exec(t, `DELETE FROM belfry.channels WHERE id > $1::bigint * $2`, n, step)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform)
		SELECT $2::bigint * g, 'u-' || g, CASE WHEN g % 3 = 0 THEN 'android' ELSE 'ios' END FROM generate_series(1, $1::bigint) g
		    ON CONFLICT DO NOTHING`, n, step)
}

var errTestOver = fmt.Errorf("the test is over")

// inOrder is t.Run for subtests that share a bundle, one after the other. A database of its
// own costs a test as much as most of the rest of it.
func inOrder(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, test)
}

func (b *bundle) exec(t tester, sql string, args ...any) {
	t.Helper()
	_, err := b.db.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// one reads a single value.
func one[T any](t tester, b *bundle, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

// eventually waits until the query, a condition, is true. It asks more and more rarely: the
// asking is what a long wait costs.
func (b *bundle) eventually(t tester, sql string, args ...any) {
	t.Helper()
	pause := time.NewTimer(0)
	defer pause.Stop()
	next := time.Millisecond
	for began := time.Now(); !one[bool](t, b, sql, args...); <-pause.C {
		require.Less(t, time.Since(began), patience, "never true: %s", sql)
		next = min(2*next, 50*time.Millisecond)
		pause.Reset(next)
	}
}

// blocked waits until a session of the test's database waits for a lock.
func (b *bundle) blocked(t tester) {
	t.Helper()
	b.eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
}

func (b *bundle) enqueue(t tester, spec job.Spec) int64 {
	t.Helper()
	if spec.Type == "" {
		spec.Type = outbox.TypeInbox
	}
	if spec.Category == "" {
		spec.Category = "operator_notice"
	}
	if spec.Title == "" {
		spec.Title = t.Name()
	}
	id, err := b.jobs.Enqueue(t.Context(), spec)
	require.NoError(t, err)
	return id
}

// config is that of a test's runner: polling only, chunks of chunkRows keys, and
// deadlines that no slow machine meets. Runs become stale by b.age.
func config(name string) job.Config {
	c := job.DefaultConfig()
	c.Name = name
	c.Listen = false
	c.PollInterval = 10 * time.Millisecond
	c.StaleAfter, c.StatementTimeout, c.GracePeriod = 2*patience, patience, patience
	c.Chunk = governor.ChunkConfig{InitialRows: chunkRows, MinRows: chunkRows, MaxRows: chunkRows, Target: 100 * time.Millisecond}
	c.Load.Health.Enabled = false // other tests load the same server
	c.Retry = job.RetryConfig{Limit: 10, For: patience, Initial: time.Millisecond, Max: 20 * time.Millisecond}
	return c
}

func (b *bundle) runner(t tester, name string, options ...job.Option) *job.Runner {
	t.Helper()
	return b.runnerWith(t, b.db.Pool, config(name), outbox.Types(b.who), options...)
}

func (b *bundle) runnerWith(t tester, pool *pgxpool.Pool, c job.Config, types []job.Type, options ...job.Option) *job.Runner {
	t.Helper()
	r, err := job.NewRunner(pool, c, types, options...)
	require.NoError(t, err)
	return r
}

// runDue runs what is due and returns what it did.
func (b *bundle) runDue(t tester, r *job.Runner) job.Outcome {
	t.Helper()
	return b.start(t, r).wait(t)
}

// insist is runDue of a runner whose statements have little time, which what stands still for
// longer costs it: it looks again, as a daemon would.
func (b *bundle) insist(t tester, r *job.Runner) job.Outcome {
	t.Helper()
	for began := time.Now(); ; {
		s := b.start(t, r)
		s.end(t)
		require.True(t, s.whole, "the runner crashed")
		if s.err == nil {
			return s.out
		}
		require.Less(t, time.Since(began), patience, s.err)
	}
}

// startTo starts a runner whose statements have little time, again if that costs it its run,
// until it stands where reached is closed.
func (b *bundle) startTo(t tester, r *job.Runner, reached <-chan struct{}) *started {
	t.Helper()
	limit := time.After(patience)
	for s := b.start(t, r); ; {
		select {
		case <-reached:
			return s
		case <-s.ended:
			require.True(t, s.whole, "the runner crashed")
			s = b.start(t, r)
		case <-limit:
			require.FailNow(t, "the runner does not get there")
		}
	}
}

// started is a RunDue in a goroutine of its own.
type started struct {
	runner *job.Runner
	stop   context.CancelFunc // the soft stop
	ended  chan struct{}
	out    job.Outcome
	err    error
	whole  bool // RunDue returned; false after a crash, see crash
}

func (b *bundle) start(t tester, r *job.Runner) *started {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &started{runner: r, stop: stop, ended: make(chan struct{})}
	b.mu.Lock()
	b.runs = append(b.runs, s)
	b.mu.Unlock()
	go func() {
		defer close(s.ended)
		defer stop()
		s.out, s.err = r.RunDue(ctx)
		s.whole = true
	}()
	return s
}

// end waits until the run is over, however.
func (s *started) end(t tester) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		require.FailNow(t, "the run does not end")
	}
}

func (s *started) wait(t tester) job.Outcome {
	t.Helper()
	s.end(t)
	require.True(t, s.whole, "the runner crashed")
	require.NoError(t, s.err)
	return s.out
}

// gate holds a run at its nth arrival at a point, whatever its context says, like
// a process that is stopped, until the gate is released.
type gate struct {
	point   string
	left    atomic.Int64
	reached chan struct{}
	open    chan error
	once    sync.Once
}

func (b *bundle) gate(point string, nth int) *gate {
	g := &gate{point: point, reached: make(chan struct{}), open: make(chan error, 1)}
	g.left.Store(int64(nth))
	b.mu.Lock()
	b.gates = append(b.gates, g)
	b.mu.Unlock()
	return g
}

func (g *gate) at(_ context.Context, point string) error {
	if point != g.point || g.left.Add(-1) != 0 {
		return nil
	}
	close(g.reached)
	return <-g.open
}

// await waits until the run stands at the gate.
func (g *gate) await(t tester) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(patience):
		require.FailNow(t, "no run came to the gate", g.point)
	}
}

// release lets the run go on, with err as the failpoint's.
func (g *gate) release(err error) { g.once.Do(func() { g.open <- err }) }

// state is a job and its rows in one snapshot.
type state struct {
	Status    job.Status
	Cursor    string
	Fence     int64
	Chunks    int64
	Written   int64
	LastError string
	Rows      []int64 // channels with a row, in id order
}

const stateSQL = `SELECT status, coalesce("cursor", '') AS "cursor", fence, chunks, rows_written AS written, coalesce(last_error, '') AS last_error,
       ARRAY(SELECT channel_id FROM belfry.job_notifications WHERE job_id = j.id
             UNION ALL SELECT channel_id FROM belfry.messages WHERE job_id = j.id ORDER BY 1) AS rows
  FROM belfry.jobs j WHERE id = $1`

func (b *bundle) state(t tester, id int64) state {
	t.Helper()
	rows, err := b.db.Pool.Query(t.Context(), stateSQL, id)
	require.NoError(t, err)
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[state])
	require.NoError(t, err)
	return s
}

// position is the cursor as a channel id; 0 before the first.
func (s state) position(t tester) (id int64) {
	t.Helper()
	if s.Cursor == "" {
		return 0
	}
	_, err := fmt.Sscan(s.Cursor, &id)
	require.NoError(t, err)
	return id
}

// requireAtomic is I3: rows for exactly the matching channels up to the cursor.
func (s state) requireAtomic(t tester, matching []int64) {
	t.Helper()
	require.Equal(t, upTo(matching, s.position(t)), s.Rows, "rows and cursor %q", s.Cursor)
	require.EqualValues(t, len(s.Rows), s.Written)
}

// upTo returns the ids, which are sorted, up to a bound.
func upTo(ids []int64, bound int64) []int64 {
	i, found := slices.BinarySearch(ids, bound)
	if found {
		i++
	}
	return append([]int64{}, ids[:i]...)
}

// everyone is the ids of the first n channels of a bundle.
func everyone(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i+1) * step
	}
	return ids
}

// requireDone is that the job is PROCESSED with exactly one row per channel.
func (b *bundle) requireDone(t tester, id int64, matching []int64) {
	t.Helper()
	s := b.state(t, id)
	require.Equal(t, job.Processed, s.Status, s.LastError)
	require.Equal(t, matching, s.Rows)
	require.EqualValues(t, len(matching), s.Written)
}

// age makes the job's run look dead.
func (b *bundle) age(t tester, id int64) {
	t.Helper()
	b.exec(t, `UPDATE belfry.jobs SET heartbeat_at = heartbeat_at - interval '1 day' WHERE id = $1 AND status = 'RUNNING'`, id)
}

// abort is the operator's plain UPDATE.
func (b *bundle) abort(t tester, id int64) {
	t.Helper()
	b.exec(t, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
}

// kinds are the kinds of a job's events in order.
func (b *bundle) kinds(t tester, id int64) []string {
	t.Helper()
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	kinds := make([]string, len(events))
	for i, e := range events {
		kinds[i] = e.Kind
	}
	return kinds
}

// process returns a pool like that of a process of its own: nobody else uses, or
// closes, its connections.
func (b *bundle) process(t tester) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), b.db.Pool.Config())
	require.NoError(t, err)
	return pool
}

// crash runs a runner that vanishes at its nth arrival at a point: it acts no more,
// its transaction is rolled back, its job stays RUNNING, and its connection stays
// open, as that of a process that hangs. It reports whether the runner came to an
// ordinary end instead.
func (b *bundle) crash(t tester, name, point string, nth int) (whole bool) {
	t.Helper()
	pool := b.process(t)
	b.last = append(b.last, pool.Close)
	s := b.start(t, b.runnerWith(t, pool, config(name), outbox.Types(b.who), job.WithFailpoint(func(_ context.Context, at string) error {
		if at == point {
			if nth--; nth == 0 {
				runtime.Goexit() // runs what is deferred, and nothing else
			}
		}
		return nil
	})))
	s.end(t)
	return s.whole
}

// both joins two failpoints.
func both(first, second func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, point string) error {
		if err := first(ctx, point); err != nil {
			return err
		}
		return second(ctx, point)
	}
}

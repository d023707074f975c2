package admin_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// unbounded records statements outside of a transaction, which the server does not end. It ignores reads of
// the clock.
type unbounded struct{ statements []string }

func (u *unbounded) TraceQueryStart(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if sql := strings.ToLower(data.SQL); c.PgConn().TxStatus() == 'I' && !strings.HasPrefix(sql, "begin") && !strings.Contains(sql, "clock_timestamp()") &&
		!strings.Contains(sql, "pg_backend_pid()") && !strings.Contains(sql, "current_setting('server_version_num')") {
		u.statements = append(u.statements, data.SQL)
	}
	return ctx
}

func (*unbounded) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Reads run in transactions, whose statements the server ends at the deadline: behind a pooler nothing else
// would. Two statements of the doctor are exceptions: the check for a pooler, and the session's settings,
// which a transaction would change.
func TestOperations_LooksAreEndedByTheServer(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'u' || n, 'ios', '{"push": "token"}' FROM generate_series(1, 3) n`)
	d.Exec(`UPDATE belfry.categories SET cap = 3, cap_window = '1 day' WHERE name = 'operator_notice'`)
	d.Enqueue("push")
	sent := new(unbounded)
	pc, err := pgxpool.ParseConfig(d.DB.DSN)
	require.NoError(t, err)
	pc.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	d.Env.DB, d.Env.Jobs = pool, job.NewStore(pool)
	looked := 0
	for _, o := range admin.Operations() {
		told := slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Required })
		if o.Changes || o.Item() != nil || told {
			continue
		}
		sent.statements = nil
		if _, err := o.Run(t.Context(), d.Env, o.NewInput()); err == nil {
			looked++
		}
		require.Empty(t, sent.statements, o.Name)
	}
	require.Greater(t, looked, 20)
	for _, given := range [][]string{
		{"jobs preview", "id", "1"}, {"channels count", "everyone", "on"}, {"channels show", "external_id", "u1"}, {"channels opt-outs", "channel", "1"},
		{"enqueue", "everyone", "on", "preview", "on"}, {"enqueue", "type", "push", "category", "operator_notice", "title", "Hello", "everyone", "on", "preview", "on"},
		{"dead-letters list", "external_id", "u1"},
	} {
		sent.statements = nil
		require.NoError(t, d.Run(given[0], given[1:]...), given)
		require.Empty(t, sent.statements, given)
	}
}

// pooled returns a pool that sends no cancel requests, as behind a pooler: only the server ends statements.
func pooled(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pc, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	pc.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		var connected atomic.Bool
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if connected.Swap(true) {
				return nil, net.ErrClosed
			}
			return dial(ctx, network, address)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A preview, the doctor and a count leave no statement running after their deadline, although no cancel
// request arrives.
func TestOperations_SlowLooksAreEndedByTheServer(t *testing.T) {
	t.Parallel()
	for _, given := range [][]string{{"jobs preview", "id", "1"}, {"doctor"}, {"channels count", "everyone", "on"}, {"channels show", "external_id", "u1"}} {
		t.Run(given[0], func(t *testing.T) {
			t.Parallel()
			d := admintest.NewDesk(t)
			d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
			d.Enqueue("inbox")
			d.Exec(`CREATE VIEW slow AS SELECT c.* FROM belfry.channels c WHERE pg_sleep(600) IS NOT NULL`)
			var err error
			d.Env.Channels, err = channels.New(channels.Config{Relation: "public.slow"})
			require.NoError(t, err)
			d.Env.DB = pooled(t, d.DB.DSN)
			d.Env.Jobs = job.NewStore(d.Env.DB)
			running := func() bool {
				return d.One(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND wait_event = 'PgSleep'`) != "0"
			}
			o, in := d.Input(given[0], given[1:]...)
			for limit, slept := 2*time.Second, false; !slept; limit *= 2 { // until the slow statement is reached in time
				require.Less(t, limit, admintest.Patience)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				ended := make(chan error, 1)
				go func() {
					_, err := o.Run(ctx, d.Env, in)
					ended <- err
				}()
				require.Eventually(t, func() bool { slept = slept || running(); return slept || len(ended) > 0 }, admintest.Patience, 10*time.Millisecond)
				err = <-ended
				cancel()
				require.True(t, err == nil || db.KindOf(err) == db.KindTooSlow, "%v", err) // the doctor reports a finding
			}
			require.Eventually(t, func() bool { return !running() }, admintest.Patience, 10*time.Millisecond, "the server goes on")
		})
	}
}

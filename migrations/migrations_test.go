package migrations_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// catalog describes every object of the schema, so that two states of it can be
// compared word for word.
func catalog(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
		SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
		  FROM information_schema.columns WHERE table_schema = 'belfry' AND table_name <> 'schema_migrations'
		UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid)
		  FROM pg_constraint WHERE connamespace = 'belfry'::regnamespace AND conrelid <> 'belfry.schema_migrations'::regclass
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'belfry' AND tablename <> 'schema_migrations'
		UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'belfry'::regnamespace
		UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		  WHERE c.relnamespace = 'belfry'::regnamespace AND NOT t.tgisinternal
		ORDER BY 1`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func TestMigrations_UpDownUpLeadsToTheSameSchema(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	ctx := context.Background()
	applied, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.NotEmpty(t, applied)
	require.Equal(t, migrations.Latest(), applied[len(applied)-1])
	first := catalog(t, db.Pool)
	require.NotEmpty(t, first)

	undone, err := migrations.Down(ctx, db.DSN, 0)
	require.NoError(t, err)
	require.Len(t, undone, len(applied))
	require.Empty(t, catalog(t, db.Pool), "down leaves nothing but the bookkeeping")

	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, first, catalog(t, db.Pool))
	again, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Empty(t, again)
}

// Each single step can be undone and done again.
func TestMigrations_EachStepGoesDownAndUp(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	whole := catalog(t, db.Pool)
	for version := migrations.Latest() - 1; version >= 0; version-- {
		undone, err := migrations.Down(ctx, db.DSN, version)
		require.NoError(t, err)
		require.Equal(t, []int64{version + 1}, undone)
	}
	_, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, whole, catalog(t, db.Pool))
}

func TestMigrations_SeveralNodesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	var nodes sync.WaitGroup
	counts := make([]int, 8)
	errs := make([]error, len(counts))
	for i := range counts {
		nodes.Go(func() {
			applied, err := migrations.Up(context.Background(), db.DSN)
			counts[i], errs[i] = len(applied), err
		})
	}
	nodes.Wait()
	total := 0
	for i := range counts {
		require.NoError(t, errs[i])
		total += counts[i]
	}
	list, err := migrations.List(context.Background(), db.DSN)
	require.NoError(t, err)
	require.Equal(t, len(list), total, "every migration was applied once, by one node")
}

func TestMigrations_ListTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	_, err := migrations.Down(ctx, db.DSN, migrations.Latest()-1)
	require.NoError(t, err)
	list, err := migrations.List(ctx, db.DSN)
	require.NoError(t, err)
	for i, s := range list {
		require.Equal(t, int64(i+1), s.Version)
		require.NotEmpty(t, s.Title)
		require.Equal(t, s.Version < migrations.Latest(), s.Applied != nil)
	}
}

func TestMigrations_ANewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	_, err := db.Pool.Exec(ctx, `INSERT INTO belfry.schema_migrations (version_id, is_applied) VALUES (9999, true)`)
	require.NoError(t, err)
	_, err = migrations.Up(ctx, db.DSN)
	require.ErrorIs(t, err, migrations.ErrNewer)
	_, err = migrations.Down(ctx, db.DSN, 0)
	require.ErrorIs(t, err, migrations.ErrNewer)
	require.NotEmpty(t, catalog(t, db.Pool))
}

// Every file says why it exists and has its other half.
func TestMigrations_FilesComeInPairsWithAReason(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "), "%s has no header comment", name)
		other := strings.NewReplacer(".up.", ".down.", ".down.", ".up.").Replace(name)
		_, err = fs.Stat(migrations.FS, other)
		require.NoError(t, err)
	}
}

// Jobs of before live through the upgrade, and what the upgrade brought lives
// through its undoing as far as the older schema can say it.
func TestMigrations_JobsLiveThroughControl(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	exec, _ := asker(t, db)
	statuses := func() (list []string) {
		t.Helper()
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT array_agg(status ORDER BY id) FROM belfry.jobs`).Scan(&list))
		return list
	}
	_, err := migrations.Down(ctx, db.DSN, 3)
	require.NoError(t, err)
	exec(`INSERT INTO belfry.jobs (type, category, title, lane) SELECT 'inbox', 'operator_notice', 'x', 'lane-' || g FROM generate_series(1, 4) g`)
	exec(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id < 4`)
	exec(`UPDATE belfry.jobs SET bound = '9', "cursor" = '9', channels_read = 9, rows_written = 7 WHERE id = 1`)
	exec(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = 1`)
	exec(`UPDATE belfry.jobs SET abort_requested = true WHERE id = 2`)

	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, []string{"PROCESSED", "ABORTED", "RUNNING", "PENDING"}, statuses())
	var matched int
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT channels_matched FROM belfry.jobs WHERE id = 1`).Scan(&matched))
	require.Equal(t, 7, matched, "the accounts of before agree")
	exec(`UPDATE belfry.jobs SET throttle = 'replica_lag', backend_pid = 1, backend_start = now() WHERE id = 3`)
	exec(`UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id = 4`)
	exec(`SELECT belfry.set(2, '{"priority": 4, "max_skips": 3}', 'ann', 'why')`)
	exec(`SELECT belfry.pause_lane('lane-1')`)
	exec(`INSERT INTO belfry.job_skips (job_id, key, after, error) VALUES (1, '3', '2', 'bad')`)

	_, err = migrations.Down(ctx, db.DSN, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"PROCESSED", "ABORTED", "RUNNING", "ABORTED"}, statuses())
	exec(`SELECT belfry.resume(4)`)
	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, []string{"PROCESSED", "ABORTED", "RUNNING", "PENDING"}, statuses())
}

// Jobs of before live through the upgrade to delivery with their category's route, and
// activities through nothing: going back takes them, with their messages.
func TestMigrations_JobsLiveThroughDelivery(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	exec, one := asker(t, db)
	_, err := migrations.Down(ctx, db.DSN, 7)
	require.NoError(t, err)
	exec(`SELECT belfry.enqueue('push', 'operator_notice', 'before')`)
	exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status) VALUES (1, 1, now(), 'SENT'), (1, 2, now(), 'DEAD'), (1, 3, now(), 'PENDING'), (1, 4, now(), 'CANCELLED')`)
	for range 2 {
		_, err = migrations.Up(ctx, db.DSN)
		require.NoError(t, err)
		require.Equal(t, "{push} {}", one(`SELECT route::text || ' ' || variants::text FROM belfry.jobs WHERE id = 1`))
		require.Equal(t, "SENT DEAD PENDING CANCELLED", one(`SELECT string_agg(status, ' ' ORDER BY channel_id) FROM belfry.messages`))
		exec(`UPDATE belfry.categories SET route = '{sms,push}', quiet_start = '21:00', quiet_end = '08:00' WHERE name = 'activity'`)
		require.Equal(t, "-1", one(`SELECT belfry.send(1, 'activity', 'liked')::text`))
		exec(`SELECT belfry.opt_out(7, 'activity', 'sms')`)
		exec(`SELECT belfry.set(1, '{"variants": {"ko": {"title": "가"}}, "route": ["email"]}')`)
		_, err = migrations.Down(ctx, db.DSN, 8)
		require.NoError(t, err)
		require.Equal(t, "before", one(`SELECT title FROM belfry.jobs WHERE id = 1`))
	}
	exec(`SELECT belfry.set(1, '{"title": "after"}')`)
	exec(`SELECT belfry.enqueue_group('{push,inbox}', 'operator_notice', 'as ever')`)
	_, err = migrations.Down(ctx, db.DSN, 7)
	require.NoError(t, err)
	require.Equal(t, "SENT DEAD PENDING CANCELLED", one(`SELECT string_agg(status, ' ' ORDER BY channel_id) FROM belfry.messages`))
}

// What carriers and relays of before had in their hands is due again, and jobs that have
// nothing left to send are delivered: no relay looks through them.
func TestUp_FromBeforeDeliveryLeavesNoMessageBehind(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	exec, _ := asker(t, db)
	_, err := migrations.Down(ctx, db.DSN, 7)
	require.NoError(t, err)
	exec(`SELECT belfry.enqueue('push', 'operator_notice', 'before') FROM generate_series(1, 5)`)
	for id := range 4 {
		exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = %d`, id+1))
		exec(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id < 4 AND status = 'RUNNING'`)
	}
	exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status, recalled_at, sent_at)
		SELECT 1, s.n, now(), s.status, CASE WHEN s.n > 4 THEN now() END, CASE s.status WHEN 'SENT' THEN now() + interval '1 hour' END
		  FROM (VALUES (1, 'QUEUED'), (2, 'PROCESSING'), (3, 'SENT'), (4, 'DEAD'), (5, 'PROCESSING')) s(n, status)`)
	exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status, sent_at) VALUES (2, 1, now(), 'SENT', now() + interval '1 hour'), (2, 2, now(), 'DEAD', NULL)`)
	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	var text string
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT string_agg(status, ' ' ORDER BY channel_id) FROM belfry.messages WHERE job_id = 1`).Scan(&text))
	require.Equal(t, "PENDING PENDING SENT DEAD CANCELLED", text)
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT string_agg(j.id || CASE WHEN j.delivered_at IS NULL THEN ' open'
			WHEN j.delivered_at = j.finished_at THEN ' delivered' WHEN j.delivered_at > now() + interval '50 minutes' THEN ' delivered later' END, ', ' ORDER BY j.id) FROM belfry.jobs j`).Scan(&text))
	require.Equal(t, "1 open, 2 delivered later, 3 delivered, 4 open, 5 open", text)
}

// asker returns what executes a statement and what reads one text.
func asker(t *testing.T, db *dbtest.DB) (exec func(sql string, args ...any), one func(sql string) string) {
	t.Helper()
	exec = func(sql string, args ...any) {
		t.Helper()
		_, err := db.Pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	one = func(sql string) (text string) {
		t.Helper()
		require.NoError(t, db.Pool.QueryRow(t.Context(), sql).Scan(&text), sql)
		return text
	}
	return exec, one
}

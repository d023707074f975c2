package enqueue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// terminator has the server end the connection after each COMMIT of an act.
type terminator struct {
	t     *testing.T
	admin *pgxpool.Pool
}

type statementKey struct{}

func (*terminator) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (k *terminator) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statementKey{}).(string); !strings.EqualFold(sql, "commit") {
		return
	}
	var writes bool
	require.NoError(k.t, k.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM belfry.jobs) OR EXISTS (SELECT FROM belfry.activities)`).Scan(&writes))
	if writes {
		_, err := k.admin.Exec(ctx, `SELECT pg_terminate_backend($1, 10000)`, int64(conn.PgConn().PID()))
		require.NoError(k.t, err)
	}
}

// A caller that is told that nothing was done repeats the request: once a job whose COMMIT was answered, but
// which could not be read then, was enqueued twice under one key of the API.
func TestEnqueue_IsOfUnknownOutcomeIfItsResultCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		table, advice string
		act           []string
	}{
		{"jobs", "the request was enqueued: `belfry jobs show 1`", []string{"enqueue", "type", "inbox", "everyone", "on", "category", "operator_notice", "title", "Hello"}},
		{"activities", "activity -1 is in the outbox: do not repeat it", []string{"send", "channel", "1", "title", "Hello"}},
	} {
		d := admintest.NewDesk(t)
		d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
		config := d.DB.Pool.Config()
		config.ConnConfig.Tracer = &terminator{t, d.DB.Pool}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		d.Env.DB, d.Env.Jobs = pool, job.NewStore(pool)
		err = d.Run(c.act[0], c.act[1:]...)
		require.Equal(t, db.KindUnknown, db.KindOf(err), err)
		require.ErrorContains(t, err, c.advice)
		require.Equal(t, "1", d.One(`SELECT count(*)::text FROM belfry.`+c.table))
	}
}

// A job whose category was renamed in the table cannot be previewed. That is no fault of the request.
func TestPreview_NeedsTheCategoryOfTheJob(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	d.Exec(`UPDATE belfry.categories SET name = 'zzz' WHERE name = (SELECT category FROM belfry.jobs)`)
	err := d.Run("jobs preview", "id", "1")
	require.ErrorContains(t, err, "job 1 has category operator_notice, which does not exist any more")
	require.Equal(t, db.KindConflict, db.KindOf(err))
}

package inbox_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// estimates are the parts of a plan that differ between runs.
var estimates = regexp.MustCompile(`  \(cost=[^)]*\)|\s*Query Identifier: .*`)

// plans returns the plans of the statements within functions that sql calls.
func plans(t *testing.T, db *dbtest.DB, sql ...string) string {
	t.Helper()
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	var out strings.Builder
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, is := strings.Cut(n.Message, "  plan:\n"); is {
			_, plan, _ = strings.Cut(plan, "\n") // the text of the statement is one line, or several
			if at := strings.Index(plan, "(cost="); at >= 0 {
				plan = plan[strings.LastIndex(plan[:at], "\n")+1:]
			}
			out.WriteString(estimates.ReplaceAllString(plan, "") + "\n")
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for _, statement := range append([]string{`LOAD 'auto_explain'`, `SET auto_explain.log_min_duration = 0`,
		`SET auto_explain.log_nested_statements = on`, `SET client_min_messages = log`}, sql...) {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	return out.String()
}

// The list and the count read a few entries of one index range of a person with 20 notifications, whether statistics exist
// or not.
func TestExplain_TheListAndTheCountReadOneIndexRange(t *testing.T) {
	t.Parallel()
	b := &outboxtest.Database{DB: dbtest.New(t)}
	b.FinishedJobs(t)
	for range 16 {
		b.Rest(t, outbox.TypeInbox, 10_000, job.Processed)
	}
	b.Exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u-' || g, 'ios' FROM generate_series(1, 10000) g`)
	b.Exec(t, `INSERT INTO belfry.opt_outs (channel_id, category, medium) SELECT g, 'operator_notice', '*' FROM generate_series(1, 10000, 5) g`)
	b.Exec(t, `INSERT INTO belfry.inbox (channel_id, seen_to, read_to) SELECT g, 3, 3 FROM generate_series(1, 5000) g`)
	var version string
	require.NoError(t, b.DB.Pool.QueryRow(t.Context(), `SHOW server_version`).Scan(&version))
	for _, statistics := range []string{"none", "good"} {
		if statistics == "good" {
			b.Exec(t, `ANALYZE`)
		}
		plan := plans(t, b.DB, `SELECT * FROM belfry.inbox_page(7)`, `SELECT * FROM belfry.inbox_unread(7)`, `SELECT belfry.inbox_next(7)`)
		for _, relation := range []string{"notifications", "jobs", "activities", "job_revisions", "inbox", "opt_outs"} {
			require.NotRegexp(t, `Seq Scan on `+relation+`\b`, plan, statistics)
		}
		require.NotContains(t, plan, "JIT")
		require.NotContains(t, plan, "Bitmap Heap Scan on notifications", "it would read all entries of a person with many")
		if strings.HasPrefix(version, "15") {
			dbtest.Golden(t, "testdata/explain_"+statistics+".golden", plan)
		}
	}
}

package accounts_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func (b *bundle) explain(t *testing.T, out *strings.Builder, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	outboxtest.Plan(t, b.DB.Pool, out, name, "EXPLAIN (COSTS OFF) "+accounts.Statement(name), args)
}

// The statements of an audit walk one job by its keys, on tables with other jobs in them.
func TestLong_QueriesOfAnAuditKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	var ids []int64
	for range 4 {
		ids = append(ids, b.Rest(t, outbox.TypeInbox, 10000, job.Processed), b.Rest(t, outbox.TypePush, 10000, job.Aborted))
	}
	b.JobsThatWait(t, 2000)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.notifications_0", "belfry.message_rows", "belfry.jobs")
	slice := pgx.StrictNamedArgs{"job_id": ids[1], "after": int64(2000), "keys": 1000, "bound": int64(9000)}
	var out strings.Builder
	b.explain(t, &out, "MessageSlice", slice)
	b.explain(t, &out, "SkipsOf", pgx.StrictNamedArgs{"job_id": ids[1], "keys": []string{"1", "2"}})
	for _, table := range []string{"notifications", "message_rows"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

package recipients_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
)

// Each step of an erasure costs as much as its rows, whatever else the tables hold.
func TestLong_StepsOfForgetKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := &outboxtest.Database{DB: dbtest.New(t)}
	ids := b.FinishedJobs(t)
	var out strings.Builder
	explain := func(name string, args pgx.StrictNamedArgs) {
		outboxtest.Plan(t, b.DB.Pool, &out, name, "EXPLAIN (COSTS OFF) "+recipients.Statement(name), args)
	}
	of := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		args := pgx.StrictNamedArgs{"channel_id": int64(3), "after": int64(0), "keys": 1000, "dry_run": false, "tries": 10000}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	explain("ForgetHold", pgx.StrictNamedArgs{"channel_id": int64(3), "after": int64(0), "keys": 1000, "only": nil})
	explain("ForgetMessages", of(pgx.StrictNamedArgs{"only": nil, "held": ids}))
	notifications := of(nil)
	delete(notifications, "tries")
	explain("ForgetNotifications", notifications)
	explain("ForgetActivities", of(nil))
	explain("ForgetErased", pgx.StrictNamedArgs{"job_ids": ids})
	explain("ForgetEvents", pgx.StrictNamedArgs{"channel_id": int64(3), "keys": 1000})
	explain("ForgetRunning", pgx.StrictNamedArgs{"channel_id": int64(3)})
	for _, table := range []string{"notifications_0", "message_rows", "activities", "job_events", "job_revisions"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	if outboxtest.One[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
	b.Exec(t, `DELETE FROM belfry.attempts`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT $1, 3, 0, 1, 'push', 'unknown' FROM generate_series(1, 50000)`, ids[0])
	b.Exec(t, `ANALYZE belfry.attempts`) // no page is marked as visible to all yet
	out.Reset()
	explain("ForgetMessages", of(pgx.StrictNamedArgs{"only": nil, "held": ids}))
	explain("ForgetActivities", of(nil))
	require.NotContains(t, out.String(), "Seq Scan on attempts")
	require.Equal(t, 2, strings.Count(out.String(), " attempts_message_idx "), "whatever number one message has")
}

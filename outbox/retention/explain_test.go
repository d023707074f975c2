package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/retention"
)

// Each step of a prune costs as much as its rows, whatever else the tables hold.
func TestLong_StepsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setupOn(dbtest.New(t))
	ids := b.FinishedJobs(t)
	step := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		args := pgx.StrictNamedArgs{"job_id": ids[1], "after": int64(2000), "keys": 1000}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	list := pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "after_at": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "after_id": int64(0), "jobs": 100}
	var out strings.Builder
	explain(t, b, &out, "MessagePrune", step(pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "aborted": true, "tries": 10000}))
	explain(t, b, &out, "MessagesPrunable", step(pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0}))
	explain(t, b, &out, "JobHoldForRetention", pgx.StrictNamedArgs{"id": ids[1], "as_of": nil, "seconds": 3600.0})
	explain(t, b, &out, "NotificationPrune", pgx.StrictNamedArgs{"arrivals": []int64{ids[0], ids[2]}, "after": int64(2000), "keys": 1000})
	explain(t, b, &out, "RetentionWalkBegin", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "jobs": 100})
	explain(t, b, &out, "JobsWithOldMessages", list)
	explain(t, b, &out, "JobsPrunable", list)
	explain(t, b, &out, "EventsPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "keys": 100, "bytes": 1 << 20})
	explain(t, b, &out, "JobEventsPrune", pgx.StrictNamedArgs{"id": ids[1], "keys": 100, "bytes": 1 << 20})
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at) SELECT 'sender', 'fcm', date_bin('1 minute', now(), '1970-01-01 00:00:00+00') - make_interval(mins => g) FROM generate_series(1, 40000) g`)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.samples")
	explain(t, b, &out, "SamplesPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 1209600.0, "keys": 100})
	for _, table := range []string{"samples", "notifications_0", "message_rows", "activities", "job_events", "job_revisions"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
	b.Exec(t, `DELETE FROM belfry.attempts`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT $1, 3, 0, 1, 'push', 'unknown' FROM generate_series(1, 50000)`, ids[1])
	b.Exec(t, `ANALYZE belfry.attempts`) // no page is marked as visible to all yet
	out.Reset()
	explain(t, b, &out, "MessagePrune", step(pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "aborted": true, "tries": 10000}))
	explain(t, b, &out, "ActivityPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "inbox_seconds": 3600.0, "after": int64(0), "keys": 1000, "tries": 10000})
	require.NotContains(t, out.String(), "Seq Scan on attempts")
	require.Equal(t, 3, strings.Count(out.String(), " attempts_message_idx "), "whatever number one message has")
}

// A prune uses its keys beside relays that work, with good statistics and with those of an empty table.
func TestLong_StepsKeepTheirPlansBesideRelays(t *testing.T) {
	t.Parallel()
	outboxtest.Grown(t, func(t *testing.T, d *outboxtest.Database, name string, id int64) {
		t.Helper()
		b := &bundle{Database: d}
		var out strings.Builder
		explain(t, b, &out, "MessagePrune", pgx.StrictNamedArgs{"job_id": id, "after": int64(2000), "keys": 100, "as_of": nil, "seconds": 3600.0, "aborted": false, "tries": 1000})
		explain(t, b, &out, "ActivityPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "inbox_seconds": 3600.0, "after": int64(-100), "keys": 100, "tries": 1000})
		require.NotContains(t, out.String(), "Seq Scan on message_rows")
		require.NotContains(t, out.String(), "Seq Scan on attempts")
		if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
			dbtest.Golden(t, "testdata/explain_"+name+".golden", out.String())
		}
		if name == "stale" { // nothing is compiled there: that takes a thousand times as long
			b.Compiles(t)
			out.Reset()
			for name, args := range map[string]pgx.StrictNamedArgs{
				"MessagePrune":  {"job_id": id, "after": int64(2000), "keys": 100, "as_of": nil, "seconds": 3600.0, "aborted": false, "tries": 1000},
				"ActivityPrune": {"as_of": nil, "seconds": 3600.0, "inbox_seconds": 3600.0, "after": int64(-100), "keys": 100, "tries": 1000},
			} {
				outboxtest.Plan(t, b.DB.Pool, &out, name, "EXPLAIN (ANALYZE) "+retention.Statement(name), args)
			}
			require.NotContains(t, out.String(), "JIT:")
		}
	})
}

func explain(t *testing.T, b *bundle, out *strings.Builder, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	outboxtest.Plan(t, b.DB.Pool, out, name, "EXPLAIN (COSTS OFF) "+retention.Statement(name), args)
}

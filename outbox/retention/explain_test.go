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
	explain(t, b, &out, "MessagePrune", step(pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "aborted": true}))
	explain(t, b, &out, "MessagesPrunable", step(pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0}))
	explain(t, b, &out, "JobHoldForRetention", pgx.StrictNamedArgs{"id": ids[1], "as_of": nil, "seconds": 3600.0})
	explain(t, b, &out, "NotificationPrune", pgx.StrictNamedArgs{"arrivals": []int64{ids[0], ids[2]}, "after": int64(2000), "keys": 1000})
	explain(t, b, &out, "RetentionWalkBegin", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "jobs": 100})
	explain(t, b, &out, "JobsWithOldMessages", list)
	explain(t, b, &out, "JobsPrunable", list)
	explain(t, b, &out, "EventsPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "keys": 100})
	b.Exec(t, `INSERT INTO belfry.samples (kind, name, at) SELECT 'sender', 'fcm', date_bin('1 minute', now(), '1970-01-01 00:00:00+00') - make_interval(mins => g) FROM generate_series(1, 40000) g`)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.samples")
	explain(t, b, &out, "SamplesPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 1209600.0, "keys": 100})
	for _, table := range []string{"samples", "notifications", "message_rows", "activities", "job_events", "job_revisions"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

// A prune uses its keys beside relays that work, with good statistics and with those of an empty table.
func TestLong_StepsKeepTheirPlansBesideRelays(t *testing.T) {
	t.Parallel()
	outboxtest.Grown(t, func(t *testing.T, d *outboxtest.Database, name string, id int64) {
		t.Helper()
		b := &bundle{Database: d}
		var out strings.Builder
		explain(t, b, &out, "MessagePrune", pgx.StrictNamedArgs{"job_id": id, "after": int64(2000), "keys": 100, "as_of": nil, "seconds": 3600.0, "aborted": false})
		explain(t, b, &out, "ActivityPrune", pgx.StrictNamedArgs{"as_of": nil, "seconds": 3600.0, "inbox_seconds": 3600.0, "after": int64(-100), "keys": 100})
		require.NotContains(t, out.String(), "Seq Scan on message_rows")
		require.NotContains(t, out.String(), "Seq Scan on attempts")
		if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
			dbtest.Golden(t, "testdata/explain_"+name+".golden", out.String())
		}
		if name == "stale" { // nothing is compiled there: that takes a thousand times as long
			b.Compiles(t)
			out.Reset()
			for name, args := range map[string]pgx.StrictNamedArgs{
				"MessagePrune":  {"job_id": id, "after": int64(2000), "keys": 100, "as_of": nil, "seconds": 3600.0, "aborted": false},
				"ActivityPrune": {"as_of": nil, "seconds": 3600.0, "inbox_seconds": 3600.0, "after": int64(-100), "keys": 100},
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

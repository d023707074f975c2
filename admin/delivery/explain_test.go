package delivery_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The statements that go through a whole job, or through all notifications, keep
// plans whose cost is bounded by their step, on tables with other jobs in them.
func TestLong_QueriesOfStepsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	ids := b.FinishedJobs(t)
	step := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		args := pgx.StrictNamedArgs{"job_id": ids[1], "after": int64(2000), "keys": 1000}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	bound := pgx.StrictNamedArgs{"bound": int64(9000)}
	var out strings.Builder
	b.explain(t, &out, "MessageRecall", step(bound))
	b.explain(t, &out, "NotificationRecall", step(bound))
	b.explain(t, &out, "NotificationSlice", step(bound))
	b.explain(t, &out, "DeliveryCounts", step(pgx.StrictNamedArgs{"seconds": int64(60)}))
	b.explain(t, &out, "UnsentAhead", pgx.StrictNamedArgs{"id": ids[7], "limit": 20})
	for _, table := range []string{"notifications_0", "message_rows", "activities", "job_events", "job_revisions"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

// The list of senders uses its keys beside relays that work, also with the statistics of an empty table.
func TestLong_SenderStatesKeepsItsPlanBesideRelays(t *testing.T) {
	t.Parallel()
	outboxtest.Grown(t, func(t *testing.T, d *outboxtest.Database, name string, _ int64) {
		t.Helper()
		if name != "stale" { // nothing is compiled there: that takes a thousand times as long
			return
		}
		b := &bundle{&outboxtest.Stores{Database: d}}
		b.Compiles(t)
		var out strings.Builder
		outboxtest.Plan(t, b.DB.Pool, &out, "SenderStates", "EXPLAIN (ANALYZE) "+delivery.Statement("SenderStates"), pgx.StrictNamedArgs{"name": "", "seconds": 10.0})
		require.NotContains(t, out.String(), "JIT:")
	})
}

// Listing and acting cost what their step costs, whatever else the tables hold.
func TestLong_QueriesOfDeadLettersKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	id := b.letters(t, 10000, job.Processed)
	done := b.Rest(t, outbox.TypePush, 20000, job.Processed)
	b.States(t, done, "SENT", "SENT", "CANCELLED")
	b.JobsThatWait(t, 2000)
	b.Exec(t, `INSERT INTO belfry.activities (channel_id, title, route) SELECT g, 'liked', '{push}' FROM generate_series(1, 2000) g`)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.message_rows", "belfry.jobs", "belfry.attempts", "belfry.activities")
	filter := pgx.StrictNamedArgs{"medium": "sms", "reason": "permanent", "since": nil, "until": nil, "channel_id": nil, "keys": 5000, "category": "operator_notice", "sender": "fcm"}
	step := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		for k, v := range filter {
			more[k] = v
		}
		return more
	}
	var out strings.Builder
	b.explain(t, &out, "DeadList", step(pgx.StrictNamedArgs{"before_job_id": id, "before_channel_id": int64(9000), "low_job_id": id, "low_channel_id": int64(0), "limit": 100, "by_error": true}))
	b.explain(t, &out, "DeadErrors", step(pgx.StrictNamedArgs{"before_job_id": id, "before_channel_id": int64(9000), "low_job_id": id, "low_channel_id": int64(0)}))
	b.explain(t, &out, "DeadStep", step(pgx.StrictNamedArgs{"after_job_id": id, "after_channel_id": int64(100), "high_job_id": id, "high_channel_id": int64(1) << 60, "by_error": true}))
	keys := pgx.StrictNamedArgs{"job_ids": []int64{id, id}, "channel_ids": []int64{1, 2}, "same_step": false}
	b.explain(t, &out, "DeadRedrive", keys)
	delete(keys, "same_step")
	b.explain(t, &out, "DeadDiscard", keys)
	b.explain(t, &out, "DeadUndeliver", pgx.StrictNamedArgs{"ids": []int64{id}, "recalls": []*time.Time{nil}})
	b.explain(t, &out, "MessageShow", pgx.StrictNamedArgs{"job_id": id, "channel_id": int64(1)})
	b.explain(t, &out, "AttemptList", pgx.StrictNamedArgs{"job_id": id, "channel_id": int64(1), "limit": 1000})
	require.NotContains(t, out.String(), "Seq Scan")
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
		dbtest.Golden(t, "testdata/explain_dead.golden", out.String())
	}
}

func (b *bundle) explain(t *testing.T, out *strings.Builder, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	outboxtest.Plan(t, b.DB.Pool, out, name, "EXPLAIN (COSTS OFF) "+delivery.Statement(name), args)
}

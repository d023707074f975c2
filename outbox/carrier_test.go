package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// lead makes a ledger's relay the one that pushes, and returns the queues activities and bulk.
func lead(t require.TestingT, l *outbox.Ledger) (activities, bulk outbox.PushQueue) {
	queues, err := l.Lead(bg, "memory", time.Minute)
	require.NoError(t, err)
	require.Len(t, queues, 2)
	require.Equal(t, []string{"activities", "bulk"}, []string{queues[0].Name, queues[1].Name})
	return queues[0], queues[1]
}

// queued makes a push of n due messages of a job.
func queued(t require.TestingT, l *outbox.Ledger, q outbox.PushQueue, id int64, n int) (keys []outbox.Key, push int64) {
	keys, push, _, err := l.QueueJob(bg, q, id, outbox.Position{}, n, outbox.AnyTry)
	require.NoError(t, err)
	return keys, push
}

// copiesOf are copies of messages by one push.
func copiesOf(push int64, keys ...outbox.Key) []outbox.Copy {
	copies := make([]outbox.Copy, len(keys))
	for i, k := range keys {
		copies[i] = outbox.Copy{Key: k, Push: push}
	}
	return copies
}

// verdicts claims by key and returns what is said, in order.
func verdicts(t require.TestingT, l *outbox.Ledger, copies []outbox.Copy) (said []outbox.CopyVerdict) {
	answers, err := l.ClaimCopies(bg, copies)
	require.NoError(t, err)
	require.Len(t, answers, len(copies))
	for i, a := range answers {
		require.Equal(t, copies[i].Key, a.Claimed.Key)
		require.Equal(t, a.Verdict == outbox.CopyClaimed, a.Claimed.LeaseID != 0)
		said = append(said, a.Verdict)
	}
	return said
}

// I8: the claim by key has one answer for each copy, and claims what is QUEUED, or PENDING
// and due, and may be sent.
func TestClaimCopies_HasAnAnswerForEachCopy(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 12, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE channel_id = 8`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES ($1, 2, 0, 1, 'push', 'unknown')`, id)
	b.States(t, id, "PENDING", "PENDING", "PENDING", "PROCESSING", "SENT", "DEAD", "CANCELLED", "PENDING", "PENDING", "PENDING", "PENDING", "PENDING")
	b.returned(t)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 1, attempts = 2, crashes = 1, reason = 'retry' WHERE channel_id = 2`)
	keys, first := queued(t, l, bulk, id, 2) // channels 1 and 2
	require.Equal(t, []outbox.Key{{JobID: id, ChannelID: 1}, {JobID: id, ChannelID: 2}}, keys)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'QUEUED', push = $1 WHERE channel_id IN (9, 10)`, first+1)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = tx.Exec(bg, `SELECT FROM belfry.messages WHERE channel_id = 11 FOR UPDATE`)
	require.NoError(t, err)

	want := map[int64]outbox.CopyVerdict{
		1: outbox.CopyClaimed, 2: outbox.CopyClaimed, 3: outbox.CopyClaimed, // not queued, but due: PostgreSQL is the truth
		4: outbox.CopyAnother, 5: outbox.CopyFinished, 6: outbox.CopyFinished, 7: outbox.CopyFinished,
		8: outbox.CopyLater, 9: outbox.CopyNotQueued, 10: outbox.CopyClaimed, 11: outbox.CopyLater, 13: outbox.CopyNotQueued,
	}
	var copies []outbox.Copy
	for channel := range want {
		copies = append(copies, outbox.Copy{Key: outbox.Key{JobID: id, ChannelID: channel}, Push: first})
	}
	for i := range copies {
		if copies[i].ChannelID == 10 {
			copies[i].Push = first + 1
		}
	}
	answers, err := l.ClaimCopies(bg, copies)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(bg))
	lease := one[int64](t, b, `SELECT max(id) FROM belfry.leases WHERE relay = 'r1'`)
	for i, a := range answers {
		channel := copies[i].ChannelID
		require.Equal(t, want[channel], a.Verdict, "channel %d", channel)
		require.Equal(t, channel == 6, a.Dead, "channel %d", channel)
		switch channel {
		case 2:
			require.Equal(t, outbox.Claimed{
				Key: copies[i].Key, LeaseID: lease, Lane: "default", Step: 1, Attempts: 2, Crashes: 1, Reason: outbox.ReasonRetry, Ambiguous: true,
			}, outbox.Anywhere([]outbox.Claimed{a.Claimed})[0])
		case 8:
			require.InDelta(t, time.Hour.Seconds(), a.Wait.Seconds(), 60)
		case 11:
			require.Less(t, a.Wait, time.Second)
		}
	}
	require.Equal(t, "{1,2,3,10}", one[string](t, b, `SELECT array_agg(c ORDER BY c)::text FROM belfry.leases, unnest(channel_ids) c WHERE id = $1`, lease))
	require.Equal(t, 4, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING' AND lease_id = $1`, lease))
	require.True(t, one[bool](t, b, `SELECT expires_at > now() + interval '20 seconds' FROM belfry.leases WHERE id = $1`, lease))
}

// I6: what may not be sent is not claimed, and leaves the carrier: it is PENDING until it may be
// pushed again.
func TestClaimCopies_GivesBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	for how, what := range map[string]struct{ hold, release string }{
		"aborted":   {`SELECT belfry.abort($1)`, `SELECT belfry.resume($1)`},
		"corrected": {`SELECT belfry.abort($1)`, `SELECT belfry.resume_edited($1, '{"title": "corrected"}')`},
		"lane paused": {`INSERT INTO belfry.lanes (name, paused_at, paused_by) SELECT j.lane, now(), 'ann' FROM belfry.jobs j WHERE j.id = $1
			ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'`, `UPDATE belfry.lanes SET paused_at = NULL, paused_by = NULL WHERE $1 > 0`},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			l := b.ledger("r1")
			_, bulk := lead(t, l)
			id := b.Rest(t, outbox.TypePush, 6, job.Processed)
			b.returned(t)
			keys, push := queued(t, l, bulk, id, 5)
			copies := copiesOf(push, append(keys, outbox.Key{JobID: id, ChannelID: 6})...)
			b.Exec(t, what.hold, id)
			require.Equal(t, slices.Repeat([]outbox.CopyVerdict{outbox.CopyHeld}, 6), verdicts(t, l, copies))
			require.Equal(t, map[string]int{"PENDING": 6}, b.Statuses(t, id))
			none, number := queued(t, l, bulk, id, 5)
			require.Empty(t, none)
			require.Zero(t, number, "nothing was due, so no number was used")
			b.Exec(t, what.release, id)
			again, number := queued(t, l, bulk, id, 10)
			require.Len(t, again, 6)
			require.Equal(t, push+1, number)
			require.Equal(t, outbox.CopyNotQueued, verdicts(t, l, copies[:1])[0], "its copy was dropped; one that comes up nevertheless is not the latest")
		})
	}
}

// I8: a verdict that drops a copy outlives a crash of the server, though claims do not: else the
// message would be QUEUED, and no copy of it anywhere.
func TestFault_DroppedCopiesAreNotForgottenByACrash(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]struct {
		hold    bool
		verdict outbox.CopyVerdict
		status  string
	}{
		"held":           {true, outbox.CopyHeld, "PENDING"},
		"another has it": {false, outbox.CopyAnother, "PROCESSING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := dbtest.NewServer(t, true)
			b := setupOn(t, dbtest.NewOn(t, server), 0)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			b.Exec(t, `ALTER SYSTEM SET wal_writer_delay = '10s'`)
			b.Exec(t, `SELECT pg_reload_conf()`)
			l := b.ledger("r1")
			_, bulk := lead(t, l)
			id := b.Rest(t, outbox.TypePush, 5, job.Processed)
			keys, push := queued(t, l, bulk, id, 5)
			copies := copiesOf(push, keys...)
			if what.hold {
				b.Exec(t, `SELECT belfry.abort($1)`, id)
			}
			b.Exec(t, `CHECKPOINT`)
			if !what.hold {
				require.Equal(t, slices.Repeat([]outbox.CopyVerdict{outbox.CopyClaimed}, 5), verdicts(t, b.ledger("r2"), copies))
			}
			require.Equal(t, slices.Repeat([]outbox.CopyVerdict{what.verdict}, 5), verdicts(t, l, copies))
			require.NoError(t, server.Stop(ctx, pgserver.Immediate))
			require.NoError(t, server.Start(ctx))
			b.DB.Pool.Reset()
			require.Equal(t, map[string]int{what.status: 5}, b.Statuses(t, id))
		})
	}
}

// What cannot be made durable at the moment keeps its copies.
func TestClaimCopies_KeepsTheCopiesOfWhatIsNotSure(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	keys, push := queued(t, l, bulk, id, 3)
	copies := copiesOf(push, keys...)
	require.Equal(t, outbox.CopyClaimed, verdicts(t, b.ledger("r2"), copies[:1])[0])
	b.Exec(t, `SELECT belfry.abort($1)`, id)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = tx.Exec(bg, `SELECT FROM belfry.messages WHERE channel_id = 1 FOR UPDATE`)
	require.NoError(t, err)
	answers, err := l.ClaimCopies(bg, copies[:2])
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(bg))
	require.Equal(t, outbox.CopyLater, answers[0].Verdict)
	require.Positive(t, answers[0].Wait)
	require.Equal(t, outbox.CopyHeld, answers[1].Verdict)
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyAnother, outbox.CopyHeld, outbox.CopyHeld}, verdicts(t, l, copies))
}

// Two copies of a message never are two owners, in one claim or in two at the same time.
func TestClaimCopies_OneOfTwoCopiesIsClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 300, job.Processed)
	keys, push := queued(t, l, bulk, id, 300)
	var copies []outbox.Copy
	for _, k := range keys {
		copies = append(copies, outbox.Copy{Key: k, Push: push - 1}, outbox.Copy{Key: k, Push: push}, outbox.Copy{Key: k, Push: push})
	}
	said := make([][]outbox.Answer, 4)
	var all sync.WaitGroup
	for i := range said {
		all.Go(func() {
			mine := slices.Clone(copies)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			said[i], _ = b.ledger(fmt.Sprint("relay", i)).ClaimCopies(bg, mine)
		})
	}
	all.Wait()
	claimed := 0
	for _, list := range said {
		require.Len(t, list, len(copies))
		for _, a := range list {
			if a.Verdict == outbox.CopyClaimed {
				claimed++
			}
		}
	}
	require.Equal(t, 300, claimed)
	require.Equal(t, 300, one[int](t, b, `SELECT sum(cardinality(channel_ids)) FROM belfry.leases`))
	_, err := l.ClaimCopies(bg, make([]outbox.Copy, outbox.MaxBatch+1))
	require.ErrorContains(t, err, "1001 messages are not allowed")
}

// I10: a push is QUEUED with its number, or not at all: a dispatcher that dies before the
// COMMIT leaves its messages PENDING, and no number that nobody knows.
func TestQueueJob_CrashesBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = tx.Exec(bg, `SELECT FROM belfry.queues FOR UPDATE`)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		err := job.ErrLocked
		for errors.Is(err, job.ErrLocked) { // it gives up waiting sooner than a slow machine looks
			_, _, _, err = l.QueueJob(bg, bulk, id, outbox.Position{}, 10, outbox.AnyTry)
		}
		ended <- err
	}()
	const waits = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%WITH allowed AS%'`
	b.Eventually(t, `SELECT EXISTS (`+waits+`)`)
	b.Exec(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%WITH allowed AS%'`)
	require.Error(t, <-ended)
	require.NoError(t, tx.Rollback(bg))
	require.Equal(t, map[string]int{"PENDING": 10}, b.Statuses(t, id))
	keys, push := queued(t, l, bulk, id, 10)
	require.Len(t, keys, 10)
	require.Equal(t, bulk.Last+1, push)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.pushes`))
}

// One relay pushes at a time: what another one, or the same in an epoch that is over, would
// push stays PENDING.
func TestLead_OneRelayPushes(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	one, two := b.ledger("r1"), b.ledger("r2")
	_, bulk := lead(t, one)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.returned(t)
	none, err := two.Lead(bg, "memory", time.Minute)
	require.NoError(t, err)
	require.Empty(t, none)
	keys, _ := queued(t, two, bulk, id, 5)
	require.Empty(t, keys)
	keys, push := queued(t, one, bulk, id, 5)
	require.Len(t, keys, 5)
	require.EqualValues(t, 1, push)
	_, again := lead(t, one)
	require.Equal(t, outbox.PushQueue{Name: "bulk", Epoch: bulk.Epoch, First: 1, Last: 1}, again)

	renewed, ok, err := one.RenewQueue(bg, again)
	require.NoError(t, err)
	require.True(t, ok)
	require.NotEqual(t, again.Epoch, renewed.Epoch)
	require.EqualValues(t, 1, renewed.First, "of which five are QUEUED")
	_, ok, err = one.RenewQueue(bg, again)
	require.NoError(t, err)
	require.False(t, ok, "that epoch is over")
	keys, _ = queued(t, one, again, id, 5)
	require.Empty(t, keys, "that epoch is over")

	require.NoError(t, one.StopLeading(bg))
	_, taken := lead(t, two)
	require.Equal(t, renewed, taken)
	keys, _ = queued(t, one, renewed, id, 5)
	require.Empty(t, keys, "another relay leads")
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE status = 'QUEUED'`)
	_, ok, err = one.RenewQueue(bg, taken)
	require.NoError(t, err)
	require.False(t, ok, "another relay leads")
	last, ok, err := two.RenewQueue(bg, taken)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 2, last.First, "nothing is QUEUED")

	b.Exec(t, `UPDATE belfry.queues SET dispatcher = 'forged', leads_until = '9998-01-01'`)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'QUEUED', push = 1 WHERE channel_id = 10`)
	n, err := one.Unserved(bg, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "no relay leads for so long")
	lead(t, one)
}

// I10: what a carrier has no copy of is PENDING again, and only that.
func TestUnqueue_TakesBackWhatIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	activities, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 40, job.Processed)
	b.returned(t)
	b.ActivitiesFor(t, 3)
	_, number, _, err := l.QueueActivities(bg, activities, outbox.Position{}, 0, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.EqualValues(t, 1, number)
	for range 4 {
		queued(t, l, bulk, id, 10)
	}
	old := func(numbers ...int64) {
		b.Exec(t, `UPDATE belfry.pushes SET made_at = now() - interval '11 minutes' WHERE queue = 'bulk' AND number = ANY ($1)`, numbers)
	}
	unqueue := func(q outbox.PushQueue, oldest int64, limit int) int {
		n, err := l.Unqueue(bg, q, oldest, 10*time.Minute, limit)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, unqueue(bulk, 5, 100), "none is old")
	old(1, 2, 3)
	require.Zero(t, unqueue(bulk, 1, 100), "all are inside: a long backlog")
	require.Zero(t, unqueue(activities, 5, 100), "the other queue's")
	require.Equal(t, 7, unqueue(bulk, 2, 7), "what was made before the oldest inside")
	require.Equal(t, 3, unqueue(bulk, 2, 7))
	require.Equal(t, 20, unqueue(bulk, 5, 100), "of old pushes")
	require.Equal(t, map[string]int{"PENDING": 30, "QUEUED": 10}, b.Statuses(t, id))

	keys, lane, err := l.QueuedBy(bg, bulk, 4)
	require.NoError(t, err)
	require.Len(t, keys, 10)
	require.Equal(t, "default", lane)
	keys, lane, err = l.QueuedBy(bg, activities, 1)
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.Empty(t, lane)
	keys, _, err = l.QueuedBy(bg, bulk, 1)
	require.NoError(t, err)
	require.Empty(t, keys)

	require.NoError(t, l.ForgetPushes(bg, bulk, 10*time.Minute))
	require.Equal(t, "{4}", one[string](t, b, `SELECT array_agg(number)::text FROM belfry.pushes WHERE queue = 'bulk'`))
	old(4)
	require.NoError(t, l.ForgetPushes(bg, bulk, 10*time.Minute))
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.pushes WHERE queue = 'bulk'`), "messages are QUEUED by it")
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE status = 'QUEUED'`)
	require.NoError(t, l.ForgetPushes(bg, bulk, 10*time.Minute))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.pushes WHERE queue = 'bulk'`))
}

// A copy of a database pushes nothing and claims nothing until it is adopted, and then begins
// a new epoch: the carrier knows the pushes of the other one.
func TestAdopted_ACopyBeginsANewEpoch(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	activities, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	keys, push := queued(t, l, bulk, id, 5)
	b.Exec(t, `UPDATE belfry.installation SET database_oid = 1`)
	none, _ := queued(t, l, bulk, id, 5)
	require.Empty(t, none)
	leads, err := l.Lead(bg, "memory", time.Minute)
	require.NoError(t, err)
	require.Empty(t, leads)
	_, err = l.ClaimCopies(bg, []outbox.Copy{{Key: keys[0], Push: push}})
	require.ErrorContains(t, err, "nothing leaves the database")
	require.Equal(t, map[string]int{"PENDING": 5, "QUEUED": 5}, b.Statuses(t, id))
	_, err = delivery.Adopt(bg, b.DB.Pool, "", job.Act{Actor: "ann", Reason: "a copy"})
	require.NoError(t, err)
	likes, jobs := lead(t, l)
	require.NotEqual(t, activities.Epoch, likes.Epoch)
	require.NotEqual(t, bulk.Epoch, jobs.Epoch)
	require.Equal(t, push, jobs.Last)
}

// The statements of carriers cost by their keys, and walk nothing that is not QUEUED.
func TestLong_QueriesOfCarriersKeepTheirPlans(t *testing.T) {
	t.Parallel()
	for name, analyze := range map[string][]string{"analyzed": {"fill", "ANALYZE"}, "stale": {"ANALYZE", "fill"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, dbtest.New(t), 0)
			l := b.ledger("r1")
			_, bulk := lead(t, l)
			id := int64(0)
			for _, step := range analyze {
				if step == "fill" {
					id = b.Fill(t)
					for range 5 {
						queued(t, l, bulk, id, 100)
					}
					b.returned(t)
					for range 5 {
						queued(t, l, bulk, id, 100)
					}
					continue
				}
				for _, table := range []string{"message_rows", "job_claims", "jobs", "leases", "attempts", "queues", "pushes"} {
					b.Exec(t, "ANALYZE belfry."+table)
				}
			}
			plans := b.carrierPlans(t, bulk, id)
			require.NotContains(t, plans, "Seq Scan on message_rows")
			if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
				dbtest.Golden(t, "testdata/explain_carrier_"+name+".golden", plans)
			}
			for _, plan := range strings.Split(plans, "# ") {
				if strings.HasPrefix(plan, "PushKeys") || strings.HasPrefix(plan, "MessagesUnqueue") || strings.HasPrefix(plan, "QueueRenew") || strings.HasPrefix(plan, "PushesForget") {
					require.Contains(t, plan, "using messages_queued_idx")
					require.Equal(t, strings.Count(plan, "Sort Key: (random())"), strings.Count(plan, "Sort Key"), "of pushes only")
				}
			}
		})
	}
}

// carrierPlans explains the statements of carriers as the ledger runs them.
func (b *bundle) carrierPlans(t *testing.T, q outbox.PushQueue, id int64) string {
	t.Helper()
	const n = 500
	jobs, channels, pushes := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range n {
		jobs[i], channels[i], pushes[i] = id, int64(i*5+1), 1
	}
	var out strings.Builder
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), outbox.Statement("LedgerBegin"), pgx.StrictNamedArgs{"timeout_ms": "10000", "lock_ms": "10000", "durable": false})
	require.NoError(t, err)
	push := pgx.StrictNamedArgs{"relay": "r1", "epoch": q.Epoch, "keys": 500, "bound": 2000}
	with := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		for k, v := range push {
			more[k] = v
		}
		return more
	}
	const explain = "EXPLAIN (COSTS OFF)"
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	explainGeneric(t, tx, &out, explain, "MessageTake", with(pgx.StrictNamedArgs{"job_id": id, "media": nil, "lease": int64(1) << 60, "seconds": 30.0}))
	explainGeneric(t, tx, &out, explain, "MessageQueue", with(pgx.StrictNamedArgs{"job_id": id, "after_at": at, "after_channel": int64(5), "retries": nil}))
	explainGeneric(t, tx, &out, explain, "ActivityQueue", with(pgx.StrictNamedArgs{"after_at": at, "after_job": int64(-5), "after_channel": int64(5), "within": nil, "retries": nil}))
	explainGeneric(t, tx, &out, explain, "PushKeys", pgx.StrictNamedArgs{"activities": false, "name": "bulk", "number": int64(3)})
	copies := pgx.StrictNamedArgs{
		"job_ids": jobs, "channel_ids": channels, "pushes": pushes, "jobs": []int64{id}, "lease": int64(1) << 60, "relay": "r1", "seconds": 30.0, "held": false,
	}
	explainGeneric(t, tx, &out, explain, "CopiesTake", copies)
	explainGeneric(t, tx, &out, explain, "CopiesClaim", copies)
	explainGeneric(t, tx, &out, explain, "CopiesSure", pgx.StrictNamedArgs{"job_ids": jobs, "channel_ids": channels})
	explainGeneric(t, tx, &out, explain, "MessagesUnqueue", pgx.StrictNamedArgs{"activities": false, "name": "bulk", "oldest": int64(3), "seconds": 600.0, "keys": 1000})
	explainGeneric(t, tx, &out, explain, "MessagesUnserved", pgx.StrictNamedArgs{"keys": 1000})
	explainGeneric(t, tx, &out, explain, "PushesForget", pgx.StrictNamedArgs{"activities": false, "name": "bulk", "seconds": 600.0})
	explainGeneric(t, tx, &out, explain, "QueueRenew", pgx.StrictNamedArgs{"activities": false, "name": "bulk", "relay": "r1", "epoch": q.Epoch})
	return out.String()
}

package outbox_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The ledger's statements keep plans that cost by their keys on tables with other jobs
// in them, with good statistics and with those of an empty table.
func TestLong_QueriesTheLedgerKeepsItsPlans(t *testing.T) {
	t.Parallel()
	outboxtest.Grown(t, func(t *testing.T, d *outboxtest.Database, name string, id int64) {
		t.Helper()
		b := &bundle{Database: d}
		plans := b.ledgerPlans(t, id, "EXPLAIN (COSTS OFF)")
		require.NotContains(t, plans, "Seq Scan on message_rows")
		require.NotContains(t, plans, "Seq Scan on attempts")
		if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
			dbtest.Golden(t, "testdata/explain_ledger_"+name+".golden", plans)
		}
		if name == "stale" {
			b.requireNoneCompiled(t, id)
		}
		for plan := range strings.SplitSeq(plans, "# ") {
			if strings.HasPrefix(plan, "MessageClaim") {
				due := plan[strings.Index(plan, "CTE due"):strings.Index(plan, "CTE lease")]
				require.Contains(t, due, "Index Scan using messages_due_idx")
				require.NotContains(t, due, "Sort")
			}
			if strings.HasPrefix(plan, "MessageTake") {
				ahead := plan[strings.Index(plan, "CTE ahead"):strings.Index(plan, "CTE due")]
				require.Contains(t, ahead, "Index Scan using messages_pkey")
				require.NotContains(t, ahead, "Sort")
			}
			if strings.HasPrefix(plan, "JobSample") {
				require.Contains(t, plan, "(channel_id >= p.at))", "a point is found by its key, and not by reading the job from its first message")
			}
			if strings.HasPrefix(plan, "MessageRecheck") || strings.HasPrefix(plan, "MessagesSent") || strings.HasPrefix(plan, "MessagesSettle") {
				require.Contains(t, plan, "TID Cond: (ctid = ANY (", "one scan, and not one for each key")
			}
			if strings.HasPrefix(plan, "MessagesSent") || strings.HasPrefix(plan, "MessagesSettle") {
				require.Contains(t, plan, "Hash Join\n", "no nested loop of each key with each row")
			}
		}
	})
}

// requireNoneCompiled is that with the settings of a stock server, whose jit is on, nothing
// that a relay does all day is compiled: that takes a thousand times as long as the statement.
func (b *bundle) requireNoneCompiled(t *testing.T, id int64) {
	t.Helper()
	b.Compiles(t)
	var compiled []string
	for plan := range strings.SplitSeq(b.ledgerPlans(t, id, "EXPLAIN (ANALYZE)"), "# ") {
		if strings.Contains(plan, "JIT:") {
			name, _, _ := strings.Cut(plan, "\n")
			compiled = append(compiled, name)
		}
	}
	require.Empty(t, compiled)
}

// explainOn explains one statement.
func explainOn(t *testing.T, db outboxtest.Querier, out *strings.Builder, explain, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	outboxtest.Plan(t, db, out, name, explain+" "+outbox.Statement(name), args)
}

// explainGeneric explains a statement as a session keeps it: for no array in particular.
func explainGeneric(t *testing.T, tx pgx.Tx, out *strings.Builder, explain, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	sql, values, err := args.RewriteQuery(t.Context(), tx.Conn(), outbox.Statement(name), nil)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "PREPARE generic AS "+sql)
	require.NoError(t, err)
	outboxtest.Plan(t, tx, out, name, explain+" EXECUTE generic ("+strings.Repeat("NULL, ", len(values)-1)+"NULL)")
	_, err = tx.Exec(t.Context(), "DEALLOCATE generic")
	require.NoError(t, err)
}

// ledgerPlans explains the hot statements as the ledger runs them.
func (b *bundle) ledgerPlans(t *testing.T, id int64, explain string) string {
	t.Helper()
	n := 500
	leases, jobs, channels := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range n {
		leases[i], jobs[i], channels[i] = 4, id, int64(i*5+4)
	}
	texts, small, flags, tids := make([]string, n), make([]int16, n), make([]bool, n), make([]pgtype.TID, n)
	statuses, outcomes := slices.Repeat([]string{"SENT"}, n), slices.Repeat([]string{"unknown"}, n)
	keys := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		args := pgx.StrictNamedArgs{"lease_ids": leases, "job_ids": jobs, "channel_ids": channels}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	claim := pgx.StrictNamedArgs{"lease": int64(1) << 60, "relay": "r1", "seconds": 30.0, "keys": 500, "bound": 2000, "media": []string{"push", "sms"}}
	with := func(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
		for k, v := range claim {
			more[k] = v
		}
		return more
	}
	var out strings.Builder
	explainOn(t, b.DB.Pool, &out, explain, "CandidateList", nil)
	explainOn(t, b.DB.Pool, &out, explain, "LeasesLost", pgx.StrictNamedArgs{"relay": "r1", "known": []int64{}, "stay": []int64{}, "seconds": 15, "n": 10})
	explainOn(t, b.DB.Pool, &out, explain, "LeaseMessages", pgx.StrictNamedArgs{"ids": []int64{4}})
	explainOn(t, b.DB.Pool, &out, explain, "JobsDue", pgx.StrictNamedArgs{"seconds": 4.0})
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL random_page_cost = 20") // as slow disks have it
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), outbox.Statement("LedgerBegin"), pgx.StrictNamedArgs{"timeout_ms": "10000", "lock_ms": "10000", "durable": false})
	require.NoError(t, err)
	explainOn(t, tx, &out, explain, "MessageTake", with(pgx.StrictNamedArgs{"job_id": id, "epoch": nil}))
	claim["lease"] = int64(1)<<60 - 1
	explainOn(t, tx, &out, explain, "MessageClaim", with(pgx.StrictNamedArgs{"job_id": id, "after_at": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "after_channel": int64(5), "retries": nil}))
	claim["lease"] = int64(1)<<60 + 1
	explainOn(t, tx, &out, explain, "ActivityClaim", with(pgx.StrictNamedArgs{
		"after_at": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "after_job": int64(-5), "after_channel": int64(5), "within": 3.0, "retries": nil,
	}))
	explainOn(t, tx, &out, explain, "ReceiptsDue", pgx.StrictNamedArgs{"keys": 100, "seconds": 10.0, "senders": []string{"fcm"}})
	explainOn(t, tx, &out, explain, "HandoverRecord", keys(pgx.StrictNamedArgs{"leases": []int64{4}, "steps": small, "reasons": texts}))
	explainGeneric(t, tx, &out, explain, "MessageRecheck", pgx.StrictNamedArgs{"job_ids": jobs, "channel_ids": channels, "tids": tids, "leases": []int64{4}, "jobs": []int64{id}})
	explainGeneric(t, tx, &out, explain, "MessagesSent", keys(pgx.StrictNamedArgs{"leases": []int64{4}, "tids": tids, "attempts": small, "receipts": texts, "senders": texts}))
	explainOn(t, tx, &out, explain, "MessagesSettle", keys(pgx.StrictNamedArgs{
		"statuses": statuses, "reasons": texts, "untouched": flags, "steps": small, "attempts": small, "crashed": small, "waits": make([]float64, n),
		"receipts": texts, "errors": texts, "senders": texts, "revisions": small, "take": false, "skip": false, "leases": []int64{4},
		"record_of": leases[:1], "record_steps": small[:1], "record_attempts": small[:1], "record_media": texts, "record_senders": texts, "record_outcomes": outcomes,
		"record_reasons": texts, "record_codes": texts, "record_errors": texts,
		"invalid_of": leases[:1], "invalid_media": texts[:1], "invalid_sha256": [][]byte{make([]byte, 32)}, "invalid_senders": texts[:1], "invalid_errors": texts[:1],
	}))
	explainOn(t, tx, &out, explain, "DeliveriesSettled", pgx.StrictNamedArgs{"relay": "r1"})
	explainOn(t, tx, &out, explain, "LeasesEnd", pgx.StrictNamedArgs{"ids": []int64{4}})
	explainOn(t, tx, &out, explain, "LeaseMessagesLock", pgx.StrictNamedArgs{"id": int64(4)})
	explainOn(t, tx, &out, explain, "JobWaiting", pgx.StrictNamedArgs{"id": id})
	explainOn(t, tx, &out, explain, "JobSample", pgx.StrictNamedArgs{"job_id": id, "n": 100})
	explainOn(t, tx, &out, explain, "JobMarkDelivered", pgx.StrictNamedArgs{"id": id})
	return out.String()
}

// Decision 1: a claim costs by what it takes, however much was sent since the last
// vacuum, and while a snapshot keeps vacuum from removing any of it. That is so for messages that were never claimed
// and, from the position of the last claim, for those that were.
func TestLong_AClaimCostsTheSameBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"MessageTake", "MessageClaim"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, dbtest.New(t), 0)
			ctx := t.Context()
			l := b.ledger("r1")
			id := b.Rest(t, outbox.TypePush, 9000, job.Processed)
			if statement == "MessageClaim" {
				b.returned(t)
			}
			b.Exec(t, outbox.Statement("ClaimsBegin"), pgx.StrictNamedArgs{"job_id": id})
			dbtest.Vacuum(t, b.DB.Pool, "belfry.message_rows")
			old, err := b.DB.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			_, err = old.Exec(ctx, `SELECT FROM belfry.jobs`)
			require.NoError(t, err)
			defer func() { require.NoError(t, old.Rollback(ctx)) }()
			pages := func(after outbox.Position) int {
				args := pgx.StrictNamedArgs{"job_id": id, "keys": 10, "bound": 10, "lease": int64(1), "relay": "r1", "seconds": 30.0, "media": nil}
				if args["epoch"] = nil; statement == "MessageClaim" {
					delete(args, "epoch")
					args["after_at"], args["after_channel"], args["bound"], args["retries"] = after.DueAt, after.ChannelID, 2000, nil
				}
				return b.pages(t, statement, args)
			}
			first := pages(outbox.Position{})
			var position outbox.Position
			for range 8 {
				claimed, next, err := l.ClaimJob(ctx, id, position, 1000, outbox.AnyTry)
				require.NoError(t, err)
				require.Len(t, claimed, 1000)
				_, err = l.Settle(ctx, each(claimed, sent), leasesOf(claimed))
				require.NoError(t, err)
				position = next
			}
			last, rescan := pages(position), pages(outbox.Position{})
			t.Logf("pages: %d for the first claim, %d for the last, %d from the beginning", first, last, rescan)
			require.Less(t, last, first*3/2)
			if statement == "MessageClaim" {
				require.Greater(t, rescan, last*3/2, "so a claim from the beginning is to be rare")
			}
		})
	}
}

// pages returns the number of pages that a statement of the ledger reads.
func (b *bundle) pages(t *testing.T, statement string, args pgx.StrictNamedArgs) int {
	t.Helper()
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT belfry.delivers()`) // a session reads the catalog at the first call
	require.NoError(t, err)
	var text []byte
	require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+outbox.Statement(statement), args).Scan(&text))
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &plan))
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// A chunk finds the last message of its job by the index, also if the statistics know one job with all messages.
func TestLedger_ChunksReadOneMessage(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	b.Rest(t, outbox.TypePush, 20000, job.Processed)
	b.Exec(t, `ANALYZE belfry.message_rows`)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SET LOCAL plan_cache_mode = force_generic_plan`)
	require.NoError(t, err)
	var out strings.Builder
	explainGeneric(t, tx, &out, "EXPLAIN (COSTS OFF)", "ChunkDue", pgx.StrictNamedArgs{"job_id": int64(2), "channel_id": int64(5), "deliver_at": nil})
	require.Contains(t, out.String(), "Scan Backward using messages_pkey on message_rows")
	require.NotContains(t, out.String(), "Seq Scan on message_rows")
}

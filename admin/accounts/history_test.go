package accounts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// history reads the whole history of a channel of setup, in pages of a size.
func (b *bundle) history(t *testing.T, channel, limit int) (first accounts.History, all []accounts.HistoryLine) {
	t.Helper()
	for o, pages := (accounts.HistoryOptions{Limit: limit}), 0; ; pages++ {
		require.Less(t, pages, 100)
		h, err := accounts.ReadHistory(t.Context(), b.DB.Pool, b.Channels, int64(channel), "u-"+strconv.Itoa(channel), o)
		require.NoError(t, err)
		require.LessOrEqual(t, len(h.Lines), limit)
		if pages == 0 {
			first = h
		} else {
			require.Empty(t, h.Waiting, "on the first page")
		}
		if all = append(all, h.Lines...); h.Next == nil {
			return first, all
		}
		o.Before = *h.Next
	}
}

// A history has the entry of each job's audit.
func TestLong_HistorySaysWhatAuditsSay(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	b.Exec(t, `UPDATE belfry.channels SET active = false WHERE id = 9`)
	b.Exec(t, `INSERT INTO belfry.segments (name) VALUES ('beta')`)
	audiences := []channels.Audience{channels.Everyone(), channels.OnPlatforms("android"), channels.WithIDs(3, 4, 9), channels.WithExternalIDs("u-4", "u-6"), channels.InSegment("beta")}
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		for _, a := range audiences {
			_, err := b.Jobs.Enqueue(t.Context(), job.Spec{Type: kind, Category: "operator_notice", Title: "x", Audience: a})
			require.NoError(t, err)
		}
	}
	b.run(t)
	done := b.Rest(t, outbox.TypePush, 6, job.Processed)
	b.States(t, done, "SENT", "DEAD", "CANCELLED", "PROCESSING")
	b.Exec(t, `UPDATE belfry.message_rows SET last_error = 'no such token' WHERE status = 'DEAD'`)
	held := b.Rest(t, outbox.TypePush, 4, job.Aborted)
	b.Exec(t, `UPDATE belfry.jobs SET bound = '20' WHERE id = $1`, held)
	_, err := b.Jobs.ResumeEdited(t.Context(), job.One(held), job.Changes{"audience": channels.OnPlatforms("android")}, ann)
	require.NoError(t, err)
	_, err = b.Jobs.Abort(t.Context(), job.One(held), ann)
	require.NoError(t, err)
	b.Exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error, sqlstate) VALUES ($1, '7', '6', 'too long', '22001')`, done)
	b.Exec(t, `UPDATE belfry.notifications SET read_at = now() WHERE channel_id = 3 AND arrival = (SELECT arrival FROM belfry.jobs WHERE id = 1)`)
	b.Exec(t, `UPDATE belfry.notifications SET withdrawn_at = now() WHERE channel_id = 4 AND arrival = (SELECT arrival FROM belfry.jobs WHERE id = 1)`)
	b.Exec(t, `UPDATE belfry.channels SET platform = 'ios' WHERE id IN (3, 9)`)
	b.Exec(t, `UPDATE belfry.channels SET platform = 'android' WHERE id = 10`)
	b.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (31, 'u-31', 'android')`)
	b.Exec(t, `DELETE FROM belfry.channels WHERE id = 6`)

	seen := make(map[outbox.Reason]bool)
	for channel := 1; channel <= 31; channel++ {
		_, all := b.history(t, channel, 5)
		got := make(map[int64]accounts.Entry)
		for _, l := range all {
			got[l.JobID], seen[l.Reason] = l.Entry, true
		}
		require.Len(t, got, len(all), "each job once")
		for id := int64(1); id <= held; id++ {
			want, err := accounts.AuditChannel(t.Context(), b.DB.Pool, b.Channels, id, int64(channel))
			if channel == 6 && err != nil {
				require.ErrorIs(t, err, channels.ErrNoChannel)
				require.NotContains(t, got, id)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, got[id], "channel %d, job %d", channel, id)
		}
	}
	for _, r := range []outbox.Reason{"unread", "read", "withdrawn", "sent", "sending", "pending", "held", "cancelled", "dead", "skipped", "inactive", "out_of_audience", "not_reached", "arrived_later", "joined_since"} {
		require.True(t, seen[r], r)
	}
}

// Jobs and single messages are in the order of time, each once, whatever the page size. PENDING jobs are
// separate.
func TestHistory_IsPagedByTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	var want []int64
	for range 7 {
		want = append(want, b.Rest(t, outbox.TypePush, 4, job.Processed))
		for range 2 {
			want = append(want, one[int64](t, b, `SELECT belfry.send(3, 'activity', 'Kim likes it')`))
		}
	}
	both := "INSERT INTO belfry.activities (channel_id, title) VALUES (3, 'x'), (3, 'y')" // at one moment
	b.Exec(t, both)
	want = append(want, want[len(want)-1]-1, want[len(want)-1]-2)
	b.Exec(t, `SELECT belfry.send(4, 'activity', 'of another')`)
	for _, a := range []channels.Audience{channels.WithIDs(3), channels.WithIDs(4)} {
		_, err := b.Jobs.Enqueue(t.Context(), job.Spec{Type: outbox.TypeInbox, Category: "operator_notice", Title: "later", Audience: a})
		require.NoError(t, err)
	}
	for _, limit := range []int{1, 2, 5, 23, 50} {
		first, all := b.history(t, 3, limit)
		var got []int64
		for i := range all {
			got = append(got, all[len(all)-1-i].JobID)
		}
		require.Equal(t, want, got, "in pages of %d", limit)
		if limit > 1 {
			require.Len(t, first.Waiting, 1)
			require.Equal(t, outbox.ReasonNotReached, first.Waiting[0].Reason)
			require.NotNil(t, first.Waiting[0].StartsAt)
		}
	}
}

// A page ends with the jobs that are read at once, 16 MB, and the next one continues there.
func TestHistory_ContinuesAfterLargeJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	var want []int64
	for range 20 {
		want = append(want, b.Rest(t, outbox.TypePush, 4, job.Processed), one[int64](t, b, `SELECT belfry.send(3, 'activity', 'Kim likes it')`))
	}
	b.Past(t, `UPDATE belfry.jobs SET data = jsonb_build_object('x', repeat('x', 1020000))`)
	first, all := b.history(t, 3, 50)
	var got []int64
	for i := range all {
		got = append(got, all[len(all)-1-i].JobID)
	}
	require.Equal(t, want, got)
	require.Less(t, len(first.Lines), len(want))
	require.NotNil(t, first.Next)
}

// Jobs that an audit rejects are marked. An existing message is shown nevertheless.
func TestHistory_OfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	done := b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now(), sender = 'fcm' WHERE job_id = $1`, done)
	b.Past(t, `UPDATE belfry.jobs SET retention_at = now() WHERE id = $1`, done)
	b.Past(t, `DELETE FROM belfry.message_rows WHERE channel_id = 1`)
	b.Exec(t, `INSERT INTO belfry.job_types (name) VALUES ('letter')`)
	own := b.Rest(t, "letter", 0, job.Processed)
	_, all := b.history(t, 1, 10)
	require.Equal(t, []outbox.Reason{outbox.ReasonOwnType, outbox.ReasonPruned}, []outbox.Reason{all[0].Reason, all[1].Reason})
	require.Equal(t, own, all[0].JobID)
	_, all = b.history(t, 2, 10)
	require.Equal(t, outbox.ReasonSent, all[1].Reason)
	require.Equal(t, "push", all[1].Medium)
	require.Equal(t, "fcm", all[1].Sender)
	require.NotNil(t, all[1].SentAt)
	h, err := accounts.ReadHistory(t.Context(), b.DB.Pool, b.Channels, 99, "", accounts.HistoryOptions{Limit: 10})
	require.NoError(t, err)
	require.True(t, h.Gone)
}

// A page costs one index lookup per job, whatever the size of the tables.
func TestLong_QueriesOfHistoryKeepTheirPlans(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	ids := []int64{b.Rest(t, outbox.TypeInbox, 10000, job.Processed), b.Rest(t, outbox.TypePush, 10000, job.Processed)}
	b.JobsThatWait(t, 2000)
	dbtest.Past(t, b.DB.Pool, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -n, 1 + n % 2000, 'x', '{push}' FROM generate_series(1, 20000) n`)
	b.Exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error, sqlstate) SELECT $1, n, n - 1, 'x', '22001' FROM generate_series(10001, 14000) n`, ids[1])
	dbtest.Vacuum(t, b.DB.Pool, "belfry.notifications_0", "belfry.message_rows", "belfry.jobs", "belfry.activities", "belfry.job_skips")
	var out strings.Builder
	b.explain(t, &out, "HistoryRows", pgx.StrictNamedArgs{"job_ids": ids, "channel_id": int64(3)})
	b.explain(t, &out, "HistoryActivities", pgx.StrictNamedArgs{"channel_id": int64(3), "before": int64(-7), "limit": 51})
	require.NotContains(t, out.String(), "Seq Scan")
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 {
		dbtest.Golden(t, "testdata/explain_history.golden", out.String())
	}
}

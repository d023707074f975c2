package accounts_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// counts is a report's counts without the zero ones.
type counts map[string]int64

func countsOf(r accounts.Report) counts {
	c := counts{}
	for reason, n := range r.Counts {
		c[string(reason)] = n
	}
	return c
}

// audit runs an audit with small pages and returns its report and entries, which must agree with each other
// and with the audit of each single channel.
func (b *bundle) audit(t require.TestingT, id int64) (accounts.Report, []accounts.Entry) {
	ctx := context.Background()
	var list []accounts.Entry
	report, err := accounts.Audit(ctx, b.DB.Pool, b.Channels, id, accounts.AuditOptions{PageKeys: 7, Each: func(e accounts.Entry) error {
		list = append(list, e)
		return nil
	}})
	require.NoError(t, err)
	sums := counts{}
	for _, e := range list {
		sums[string(e.Reason)]++
		if e.LeftSince {
			sums["left_since"]++
		}
		if e.ChannelDeleted {
			sums["channel_deleted"]++
		}
	}
	require.Equal(t, sums, countsOf(report))
	return report, list
}

// run finishes the due jobs with a real runner.
func (b *bundle) run(t *testing.T) {
	t.Helper()
	c := job.DefaultConfig()
	c.Listen = false
	c.Chunk.InitialRows, c.Chunk.MinRows, c.Chunk.MaxRows = 10, 10, 10
	r, err := job.NewRunner(b.DB.Pool, c, outbox.Types(b.Channels))
	require.NoError(t, err)
	_, err = r.RunDue(t.Context())
	require.NoError(t, err)
}

// The audit of a real job, after later changes of channels.
func TestAudit_SaysOfEveryChannelWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 90)
	b.Exec(t, `UPDATE belfry.channels SET active = false WHERE id BETWEEN 80 AND 83`) // one of the four on android
	ids := make(map[string]int64)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		id, err := b.Jobs.Enqueue(t.Context(), job.Spec{Type: kind, Category: "operator_notice", Title: "x", Audience: channels.OnPlatforms("ios")})
		require.NoError(t, err)
		ids[kind] = id
	}
	b.run(t)
	fresh := counts{"out_of_audience": 30, "inactive": 3}
	for kind, state := range map[string]string{outbox.TypeInbox: "unread", outbox.TypePush: "pending"} {
		report, _ := b.audit(t, ids[kind])
		fresh[state] = 57
		require.Equal(t, fresh, countsOf(report))
		delete(fresh, state)
		require.True(t, report.Agree, "%v", report.Disagreements)
		require.EqualValues(t, 90, report.Channels)
		require.EqualValues(t, 57, report.Rows)
	}

	b.Exec(t, `UPDATE belfry.notifications SET read_at = now() WHERE channel_id <= 10`) // 7 on ios
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'SENT' WHERE channel_id <= 10`)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'DEAD', reason = 'permanent', last_error = 'no such token' WHERE channel_id = 11`)
	b.Exec(t, `UPDATE belfry.channels SET platform = 'android' WHERE id IN (13, 14)`)                                 // left since
	b.Exec(t, `UPDATE belfry.channels SET platform = 'ios' WHERE id IN (15, 18, 21)`)                                 // joined since
	b.Exec(t, `UPDATE belfry.channels SET active = true WHERE id = 80`)                                               // joined since
	b.Exec(t, `DELETE FROM belfry.channels WHERE id IN (1, 90, 89)`)                                                  // 1 and 89 had one
	b.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (91, 'n-1', 'ios'), (1, 'n-2', 'ios')`) // 1 has a row already
	b.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (0, 'n-3', 'ios'), (92, 'n-4', 'android')`)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, ids[outbox.TypeInbox], ann, nil)
	require.NoError(t, err)

	want := counts{
		"out_of_audience": 27, "inactive": 2, "arrived_later": 2, "joined_since": 4,
		"left_since": 2, "channel_deleted": 1, "read": 7, "withdrawn": 50,
	}
	report, list := b.audit(t, ids[outbox.TypeInbox])
	require.Equal(t, want, countsOf(report))
	require.True(t, report.Agree, "%v", report.Disagreements)
	for _, e := range list {
		got, err := accounts.AuditChannel(t.Context(), b.DB.Pool, b.Channels, ids[outbox.TypeInbox], e.ChannelID)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
	delete(want, "read")
	delete(want, "withdrawn")
	want["sent"], want["dead"], want["pending"] = 7, 1, 49
	report, list = b.audit(t, ids[outbox.TypePush])
	require.Equal(t, want, countsOf(report))
	require.Contains(t, list, accounts.Entry{ChannelID: 11, Reason: outbox.ReasonDead, Why: outbox.ReasonPermanent, Error: "no such token"})
	require.Contains(t, list, accounts.Entry{ChannelID: 89, Reason: outbox.ReasonWaiting, ChannelDeleted: true})
	require.True(t, report.Agree, "%v", report.Disagreements)

	one, err := accounts.AuditExternalID(t.Context(), b.DB.Pool, b.Channels, ids[outbox.TypePush], "u-13")
	require.NoError(t, err)
	require.Equal(t, accounts.Entry{ChannelID: 13, Reason: outbox.ReasonWaiting, LeftSince: true}, one)
	_, err = accounts.AuditExternalID(t.Context(), b.DB.Pool, b.Channels, ids[outbox.TypePush], "nobody")
	require.ErrorIs(t, err, channels.ErrNoChannel)
	_, err = accounts.AuditChannel(t.Context(), b.DB.Pool, b.Channels, ids[outbox.TypePush], 1000)
	require.ErrorIs(t, err, channels.ErrNoChannel)
}

// A job whose texts refer to values reaches the channels with a value, and the audit and the history name the others.
func TestAudit_NamesChannelsWithoutValue(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		var id int64
		require.NoError(t, pgx.BeginFunc(t.Context(), b.DB.Pool, func(tx pgx.Tx) (err error) {
			id, err = job.EnqueueTx(t.Context(), tx, job.Spec{Type: kind, Category: "operator_notice", Title: "x", Variants: json.RawMessage(`{"ko": {"title": "{{value.n}}"}}`)})
			if err != nil {
				return err
			}
			_, err = tx.Exec(t.Context(), `INSERT INTO belfry.job_values SELECT $1, n, '{"n": 1}' FROM generate_series(2, 60, 2) n WHERE n <> 12`, id)
			return err
		}))
		b.run(t)
		state := map[string]string{outbox.TypeInbox: "unread", outbox.TypePush: "pending"}[kind]
		report, list := b.audit(t, id)
		require.Equal(t, counts{"no_value": 16, state: 14}, countsOf(report))
		require.True(t, report.Agree, "%v", report.Disagreements)
		require.EqualValues(t, 16, report.Job.Declined)
		require.Contains(t, list, accounts.Entry{ChannelID: 12, Reason: outbox.ReasonNoValue})
		_, lines := b.history(t, 12, 10)
		require.Equal(t, outbox.ReasonNoValue, lines[0].Reason)
	}
}

// Each part of the keys is judged by the audience it was walked with.
func TestAudit_KnowsTheAudienceOfEachPart(t *testing.T) {
	t.Parallel()
	b := setup(t, 60)
	id := b.Rest(t, outbox.TypePush, 30, job.Aborted) // to everyone, up to 30 of 60
	b.Exec(t, `UPDATE belfry.jobs SET bound = '60' WHERE id = $1`, id)
	report, _ := b.audit(t, id)
	require.Equal(t, counts{"held": 30, "not_reached": 30}, countsOf(report))

	_, err := b.Jobs.ResumeEdited(t.Context(), job.One(id), job.Changes{"audience": channels.OnPlatforms("android")}, ann)
	require.NoError(t, err)
	report, _ = b.audit(t, id)
	require.Equal(t, counts{"pending": 30, "not_reached": 10, "out_of_audience": 20}, countsOf(report))
	b.run(t)
	report, _ = b.audit(t, id)
	require.Equal(t, counts{"pending": 40, "out_of_audience": 20}, countsOf(report))
	require.True(t, report.Agree, "%v", report.Disagreements)
}

// After a correction during the delivery, the entry contains the revision that was sent.
func TestAudit_NamesTheRevisionThatWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	b.States(t, id, "SENT", "SENT", "PENDING", "PROCESSING")
	b.Exec(t, `UPDATE belfry.message_rows SET revision = CASE channel_id WHEN 2 THEN 1 WHEN 4 THEN 2 END, receipt = CASE channel_id WHEN 4 THEN 'r' END WHERE job_id = $1`, id)
	revisions := func() (list []any) {
		for channel := range int64(4) {
			e, err := accounts.AuditChannel(t.Context(), b.DB.Pool, b.Channels, id, channel+1)
			require.NoError(t, err)
			if e.Revision == nil {
				list = append(list, nil)
				continue
			}
			list = append(list, *e.Revision)
		}
		return list
	}
	require.Equal(t, []any{nil, nil, nil, nil}, revisions(), "there is one content")
	b.Past(t, `UPDATE belfry.jobs SET revision = 2 WHERE id = $1`, id)
	require.Equal(t, []any{0, 1, nil, 2}, revisions())
	_, lines := b.history(t, 2, 10)
	require.Len(t, lines, 1)
	require.Equal(t, 1, *lines[0].Revision)
	require.Equal(t, 2, lines[0].Corrected, "the text is not the newest")
}

// I1, I3: the audit finds violations.
func TestAudit_FindsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	for name, c := range map[string]struct {
		sql  string
		says string
	}{
		"a row is gone":          {`DELETE FROM belfry.notifications WHERE channel_id = 17`, "the job wrote 40 rows, and 39 are there"},
		"so somebody is missing": {`DELETE FROM belfry.notifications WHERE channel_id = 17`, "1 channels were in the audience all the time and have no row, and 0 were declined"},
		"a row too many":         {`INSERT INTO belfry.notifications (channel_id, arrival) SELECT 45, arrival FROM belfry.jobs WHERE id = $1`, "1 rows are of channels above the cursor"},
		"a skip too many":        {`INSERT INTO belfry.job_skips (job_id, key, after, error) SELECT id, '45', '44', 'x' FROM belfry.jobs WHERE id = $1`, "the job skipped 0 channels, and 1 are recorded"},
		"sums":                   {`UPDATE belfry.jobs SET channels_matched = 41, channels_read = 41 WHERE id = $1`, "41 channels matched, but 40 written, 0 declined and 0 skipped make 40"},
		"more than were read":    {`UPDATE belfry.jobs SET channels_read = 39 WHERE id = $1`, "40 channels matched of only 39 that were read"},
		"recalled":               {`UPDATE belfry.jobs SET recalled = 2 WHERE id = $1`, "2 rows were recalled, and 0 are marked so"},
	} {
		id := b.Rest(t, outbox.TypeInbox, 40, job.Failed)
		b.Exec(t, `UPDATE belfry.jobs SET bound = '50' WHERE id = $1`, id)
		report, _ := b.audit(t, id)
		require.True(t, report.Agree, "%v", report.Disagreements)
		if name == "a row is gone" || name == "so somebody is missing" {
			b.Exec(t, c.sql)
		} else {
			b.Exec(t, c.sql, id)
		}
		report, _ = b.audit(t, id)
		require.False(t, report.Agree, name)
		require.Contains(t, report.Disagreements, c.says, name)
		b.Exec(t, `DELETE FROM belfry.notifications`)
	}
}

func TestAudit_ListsSkippedChannelsThatAreGone(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	id := b.Rest(t, outbox.TypePush, 20, job.Processed)
	b.Exec(t, `DELETE FROM belfry.message_rows WHERE channel_id IN (5, 9, 12)`)
	b.Exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error) SELECT $1, k, k, 'bad row ' || k FROM unnest('{5,9,12}'::text[]) k`, id)
	b.Exec(t, `UPDATE belfry.jobs SET rows_written = 17, skipped = 3 WHERE id = $1`, id)
	b.Exec(t, `DELETE FROM belfry.channels WHERE id IN (9, 12)`)
	report, list := b.audit(t, id)
	require.True(t, report.Agree, "%v", report.Disagreements)
	require.Equal(t, counts{"pending": 17, "skipped": 3, "channel_deleted": 2}, countsOf(report))
	require.Contains(t, list, accounts.Entry{ChannelID: 5, Reason: outbox.ReasonSkipped, Error: "bad row 5"})
	gone := accounts.Entry{ChannelID: 9, Reason: outbox.ReasonSkipped, ChannelDeleted: true, Error: "bad row 9"}
	require.Contains(t, list, gone)
	got, err := accounts.AuditChannel(t.Context(), b.DB.Pool, b.Channels, id, 9)
	require.NoError(t, err)
	require.Equal(t, gone, got)
}

// In a relation that does not record changes, a channel of the audience without a row may have joined since.
func TestAudit_WalksTheUsersOwnRelation(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `CREATE TABLE people (uid bigint PRIMARY KEY, name text UNIQUE, os text, off boolean)`)
	b.Exec(t, `INSERT INTO people SELECT g, 'p-' || g, CASE WHEN g % 2 = 0 THEN 'ios' ELSE 'web' END, g % 10 = 0 FROM generate_series(1, 40) g`)
	b.Exec(t, `CREATE VIEW who AS SELECT uid AS id, name AS external_id, os AS platform, NOT off AS active FROM people`)
	var err error
	b.Channels, err = channels.New(channels.Config{Relation: "who"})
	require.NoError(t, err)
	id, err := b.Jobs.Enqueue(t.Context(), job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "x", Audience: channels.OnPlatforms("ios")})
	require.NoError(t, err)
	b.run(t)
	b.Exec(t, `UPDATE people SET os = 'ios' WHERE uid = 7`)
	report, _ := b.audit(t, id)
	require.Equal(t, counts{"pending": 16, "inactive": 4, "out_of_audience": 19, "joined_since": 1}, countsOf(report))
	require.True(t, report.Agree, "%v", report.Disagreements)
	e, err := accounts.AuditExternalID(t.Context(), b.DB.Pool, b.Channels, id, "p-7")
	require.NoError(t, err)
	require.Equal(t, accounts.Entry{ChannelID: 7, Reason: outbox.ReasonJoinedSince}, e)
}

func TestAudit_RefusesWhatItCannotTell(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	_, err := accounts.Audit(t.Context(), b.DB.Pool, b.Channels, 99, accounts.AuditOptions{})
	require.ErrorIs(t, err, job.ErrNotFound)
	b.Exec(t, `INSERT INTO belfry.job_types (name) VALUES ('letter')`)
	id := b.Rest(t, "letter", 5, job.Processed)
	_, err = accounts.Audit(t.Context(), b.DB.Pool, b.Channels, id, accounts.AuditOptions{})
	var other *accounts.AuditTypeError
	require.ErrorAs(t, err, &other)
	require.EqualError(t, other, "job 1 is of type letter; types that can be audited: inbox, push")
	id = b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Exec(t, `UPDATE belfry.jobs SET retention_at = now() WHERE id = $1`, id)
	report, err := accounts.Audit(t.Context(), b.DB.Pool, b.Channels, id, accounts.AuditOptions{})
	require.ErrorIs(t, err, accounts.ErrPruned)
	require.EqualValues(t, 5, report.Job.RowsWritten)
	stop := errors.New("enough")
	_, err = accounts.Audit(t.Context(), b.DB.Pool, b.Channels, b.Rest(t, outbox.TypePush, 5, job.Processed), accounts.AuditOptions{Each: func(accounts.Entry) error { return stop }})
	require.ErrorIs(t, err, stop)
}

// An audit of a job before its start, and during its run.
func TestAudit_OfAJobThatIsNotDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	id, err := b.Jobs.Enqueue(t.Context(), job.Spec{Type: outbox.TypeInbox, Category: "operator_notice", Title: "x"})
	require.NoError(t, err)
	report, _ := b.audit(t, id)
	require.Equal(t, counts{"not_reached": 30}, countsOf(report))
	require.True(t, report.Agree)
	require.False(t, report.Moving)
	ran := false
	report, err = accounts.Audit(t.Context(), b.DB.Pool, b.Channels, id, accounts.AuditOptions{PageKeys: 10, Observe: func(p accounts.AuditProgress) {
		if !ran {
			require.EqualValues(t, 10, p.Channels)
			b.run(t)
			ran = true
		}
	}})
	require.NoError(t, err)
	require.True(t, report.Moving)
	require.True(t, report.Agree, "%v", report.Disagreements)
}

// I13: an audit holds one page of each side, whatever the size of the job: live memory in its second half is
// no more than in its first. The minimum of each half is compared, because a page in progress is live, too.
// Not parallel: it measures the process.
func TestLong_AuditNeedsTheSameMemoryForAnySize(t *testing.T) { //nolint:paralleltest // see above
	b := setup(t, 60000)
	id := b.Rest(t, outbox.TypePush, 60000, job.Processed)
	var heaps []uint64
	report, err := accounts.Audit(t.Context(), b.DB.Pool, b.Channels, id, accounts.AuditOptions{PageKeys: 1000, Observe: func(accounts.AuditProgress) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		heaps = append(heaps, m.HeapAlloc)
	}})
	require.NoError(t, err)
	require.EqualValues(t, 60000, report.Rows)
	require.Greater(t, len(heaps), 20)
	first, second := slices.Min(heaps[:len(heaps)/2]), slices.Min(heaps[len(heaps)/2:])
	t.Logf("live heap: %d KiB in the first half, %d KiB in the second", first>>10, second>>10)
	require.Less(t, second, first+512<<10)
}

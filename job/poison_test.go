package job_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// poisoned makes the server refuse notifications and messages of channels that
// match the condition on channel_id.
func (b *bundle) poisoned(t tester, condition string) {
	t.Helper()
	b.exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'channel % is poison', NEW.channel_id USING ERRCODE = '22023'; END $$`)
	for _, table := range []string{"notifications", "message_rows"} {
		b.exec(t, `DROP TRIGGER IF EXISTS refuse ON belfry.`+table)
		if condition != "" {
			b.exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON belfry.`+table+` FOR EACH ROW WHEN (`+condition+`) EXECUTE FUNCTION refuse()`)
		}
	}
}

func (b *bundle) get(t tester, id int64) job.Job {
	t.Helper()
	j, err := b.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	return j
}

// requireAccounts is that what was read is accounted for.
func (b *bundle) requireAccounts(t tester, id int64) {
	t.Helper()
	j := b.get(t, id)
	require.Equal(t, j.ChannelsMatched, j.RowsWritten+j.Declined+j.Skipped)
	require.Equal(t, j.Skipped, one[int64](t, b, `SELECT count(*) FROM belfry.job_skips WHERE job_id = $1`, id))
}

// One poison row costs one recipient, and about log2 of the chunk in transactions.
func TestPoison_OneRowCostsOneRecipientAndFewChunks(t *testing.T) {
	t.Parallel()
	const n, rows = 6_000, 2_000
	b := setup(t, n)
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom')`)
	for name, bad := range map[string]int64{"first": step, "middle": step * 3_141, "last": step * n} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			kind := job.NewType[int64]("custom", "", job.RecipientIDs(b.who), job.WriterFunc[int64](func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
				calls++
				if slices.Contains(ids, bad) {
					return 0, errors.New("no template for this one")
				}
				return outbox.Inbox{}.Write(ctx, tx, j, ids)
			}))
			c := config("r")
			c.Chunk = governor.ChunkConfig{InitialRows: rows, MinRows: rows, MaxRows: rows, Target: c.Chunk.Target}
			c.Lanes = []string{name}
			id := b.enqueue(t, job.Spec{Type: "custom", Lane: name})
			b.runDue(t, b.runnerWith(t, b.db.Pool, c, []job.Type{kind}))
			j := b.get(t, id)
			require.Equal(t, job.Processed, j.Status, j.LastError)
			require.Equal(t, int64(n-1), j.RowsWritten)
			require.Equal(t, int64(1), j.Skipped)
			require.LessOrEqual(t, calls+1-n/rows, 16, "extra chunks, the skip included")
			b.requireAccounts(t, id)
			skips, err := b.jobs.Skips(t.Context(), id, "", 0)
			require.NoError(t, err)
			require.Len(t, skips, 1)
			require.Equal(t, strconv.FormatInt(bad, 10), skips[0].Key)
			require.Empty(t, skips[0].SQLState)
			require.Equal(t, "write rows: no template for this one", skips[0].Error)
			require.False(t, one[bool](t, b, `SELECT EXISTS (SELECT FROM belfry.job_notifications WHERE job_id = $1 AND channel_id = $2)`, id, bad))
		})
	}
}

// 1 % poison rows: exactly the good ones are written, the bad ones are recorded, and
// when they are fixed they alone are run again.
func TestPoison_OnePercentFinishesWithExactlyTheGoodOnes(t *testing.T) {
	t.Parallel()
	const n = 1_000
	b := setup(t, n)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		inOrder(t, kind, func(t *testing.T) {
			b.poisoned(t, `NEW.channel_id % 1000 = 330`)
			c := config("r")
			c.Chunk = governor.ChunkConfig{InitialRows: n, MinRows: n, MaxRows: n, Target: c.Chunk.Target}
			id := b.enqueue(t, job.Spec{Type: kind})
			b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
			bad := func(id int64) bool { return id%1000 == 330 }
			b.requireDone(t, id, slices.DeleteFunc(everyone(n), bad))
			require.Equal(t, int64(n/100), b.get(t, id).Skipped)
			require.Less(t, b.get(t, id).Chunks, int64(20*n/100))
			b.requireAccounts(t, id)

			// Half of them fixed.
			b.poisoned(t, `NEW.channel_id % 2000 = 330`)
			_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{Actor: "ann", Reason: "fixed"}, nil)
			require.NoError(t, err)
			before := b.get(t, id)
			b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
			b.requireDone(t, id, slices.DeleteFunc(everyone(n), func(id int64) bool { return id%2000 == 330 }))
			j := b.get(t, id)
			require.Equal(t, int64(n/200), j.Skipped)
			require.Equal(t, before.Cursor, j.Cursor)
			require.Equal(t, before.Chunks, j.Chunks)
			require.Equal(t, before.ChannelsRead, j.ChannelsRead)
			b.requireAccounts(t, id)
			skips, err := b.jobs.Skips(t.Context(), id, "", 0)
			require.NoError(t, err)
			for _, s := range skips {
				require.Equal(t, 2, s.Attempts)
				require.False(t, s.Retry)
				require.Equal(t, "22023", s.SQLState)
			}
			require.Equal(t, []string{"enqueued", "claimed", "finished", "retry_skipped_requested", "claimed", "finished"}, b.kinds(t, id))
		})
	}
}

// A recipient that was skipped before a correction and is written after it has the corrected text, also after later
// corrections: the cursor of a correction was shown for it, with the text that it never had.
func TestPoison_RetryOfSkipsAfterACorrectionHasTheTextOfTheRetry(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		inOrder(t, kind, func(t *testing.T) {
			b.poisoned(t, `NEW.channel_id IN (500, 1000)`)
			id := b.enqueue(t, job.Spec{Type: kind, Title: "first", Body: "x"})
			b.runDue(t, b.runner(t, "r"))
			correct := func(title string, poison string) {
				b.poisoned(t, poison)
				_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
				require.NoError(t, err)
				_, err = b.jobs.Set(t.Context(), id, job.Changes{"title": title}, job.Act{})
				require.NoError(t, err)
			}
			correct("second", `NEW.channel_id = 1000`)
			b.runDue(t, b.runner(t, "r"))
			correct("third", "")
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, everyone(300))

			want := map[int64]string{10: "first", 500: "second", 1000: "third", 3000: "first"}
			if kind == outbox.TypePush { // unsent messages get the present text
				for channel, revision := range map[int64]any{10: nil, 500: 1, 1000: 2, 3000: nil} {
					require.Equal(t, "third", one[string](t, b, `SELECT title FROM belfry.job_content($1, $2)`, id, channel))
					b.exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now(), revision = $3 WHERE job_id = $1 AND channel_id = $2`, id, channel, revision)
				}
			}
			for channel, title := range want {
				require.Equal(t, title, one[string](t, b, `SELECT title FROM belfry.job_content($1, $2)`, id, channel), channel)
				if kind == outbox.TypeInbox {
					require.Equal(t, title, one[string](t, b, `SELECT title FROM belfry.inbox_page($1, max_rows => 1)`, channel), channel)
				}
			}
		})
	}
	require.Equal(t, [3]int64{298, 1, 1}, one[[3]int64](t, b, `SELECT ARRAY[count(*) FILTER (WHERE revision IS NULL), count(*) FILTER (WHERE revision = 1), count(*) FILTER (WHERE revision = 2)] FROM belfry.notifications`))
}

// A run that dies in the middle of trying skipped recipients again leaves the rest
// to its successor: nobody twice, nobody forgotten.
func TestPoison_RetryOfSkipsSurvivesACrash(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	b.poisoned(t, `NEW.channel_id % 1000 = 330`)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	require.Equal(t, int64(10), b.get(t, id).Skipped)
	b.poisoned(t, "")
	_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.NoError(t, err)
	require.False(t, b.crash(t, "dying", job.PointCommitLost, 5)) // the first is the open
	require.Equal(t, int64(6), b.get(t, id).Skipped)
	b.requireAccounts(t, id)
	b.age(t, id)
	b.runDue(t, b.runner(t, "heir"))
	b.requireDone(t, id, everyone(1000))
	require.Zero(t, b.get(t, id).Skipped)
	b.requireAccounts(t, id)
}

// Whoever is gone, or is no recipient any more, when he is to be tried again is
// taken out of the accounts; a newcomer in his place gets nothing.
func TestPoison_RetryOfSomebodyGone(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.poisoned(t, `NEW.channel_id IN (500, 1500, 2500)`)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	require.Equal(t, int64(3), b.get(t, id).Skipped)
	b.poisoned(t, "")
	b.exec(t, `DELETE FROM belfry.channels WHERE id = 500`)
	b.exec(t, `UPDATE belfry.channels SET active = false WHERE id = 1500`)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (495, 'n1', 'ios'), (501, 'n2', 'ios'), (2495, 'n3', 'ios')`)
	_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, slices.DeleteFunc(everyone(300), func(id int64) bool { return id == 500 || id == 1500 }))
	j := b.get(t, id)
	require.Equal(t, int64(298), j.ChannelsMatched)
	b.requireAccounts(t, id)
}

// max_skips turns too many into FAILED, with the error; the job's own overrides the
// runner's and takes effect with the next chunk.
func TestPoison_TooManySkipsFailTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	b.poisoned(t, `NEW.channel_id % 1000 = 330`)
	c := config("r")
	c.MaxSkips = 4
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
	j := b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Equal(t, int64(4), j.Skipped)
	require.Equal(t, "4320", j.Cursor)
	// An erasure does not find the text in the job and its event.
	require.Equal(t, "4 recipients are skipped, max_skips is 4: recipient 4330, SQLSTATE 22023; the skipped recipients have such errors", j.LastError)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE reason LIKE '%poison%'`))
	require.Equal(t, 4, one[int](t, b, `SELECT count(*) FROM belfry.job_skips WHERE error LIKE '%is poison%'`))
	b.requireAccounts(t, id)

	_, err := b.jobs.Set(t.Context(), id, job.Changes{"max_skips": 50}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	_, err = b.jobs.Retry(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
	require.Equal(t, job.Processed, b.get(t, id).Status)
	require.Equal(t, int64(10), b.get(t, id).Skipped)
}

// When every recipient in a row fails, the fault is not theirs.
func TestPoison_EverybodyFailingIsNobodysFault(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.poisoned(t, `NEW.channel_id >= 2000`)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	j := b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Contains(t, j.LastError, "100 recipients in a row cannot be written")
	require.Equal(t, int64(199), j.RowsWritten)
	require.Equal(t, int64(100), j.Skipped)
	b.poisoned(t, "")
	_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(500))
	b.requireAccounts(t, id)
}

// Errors that a retry can fix skip nobody, however often they come.
func TestPoison_RetryableErrorsSkipNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom')`)
	tries := 0
	id, err := b.customTries(t, func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
		if tries++; tries%3 != 0 {
			code := []string{"40001", "40P01", "53100", "57014", "55P03"}[tries%5]
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE EXCEPTION 'mendable' USING ERRCODE = '`+code+`'; END $$`)
			return 0, err
		}
		return outbox.Inbox{}.Write(ctx, tx, j, ids)
	})
	require.NoError(t, err)
	b.requireDone(t, id, everyone(500))
	require.Zero(t, b.get(t, id).Skipped)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_skips`))
}

func (b *bundle) customTries(t *testing.T, write job.WriterFunc[int64]) (int64, error) {
	t.Helper()
	id := b.enqueue(t, job.Spec{Type: "custom"})
	kind := job.NewType[int64]("custom", "", job.RecipientIDs(b.who), write)
	_, err := b.runnerWith(t, b.db.Pool, config("r"), []job.Type{kind}).RunDue(t.Context())
	return id, err
}

// What is checked at COMMIT only is found and skipped as well.
func TestPoison_DeferredConstraint(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '23514'; END $$`)
	b.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.message_rows DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.channel_id = 1230) EXECUTE FUNCTION refuse()`)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, slices.DeleteFunc(everyone(300), func(id int64) bool { return id == 1230 }))
	require.Equal(t, int64(1), b.get(t, id).Skipped)
	b.requireAccounts(t, id)
}

// The accounts: a Writer may decline recipients, but not invent any.
func TestAccounts_DeclinedAndInvented(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id, err := b.custom(t, config("r"), func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
		return outbox.Inbox{}.Write(ctx, tx, j, slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return id%30 == 0 }))
	})
	require.NoError(t, err)
	j := b.get(t, id)
	require.Equal(t, job.Processed, j.Status)
	require.Equal(t, []int64{300, 300, 200, 100}, []int64{j.ChannelsRead, j.ChannelsMatched, j.RowsWritten, j.Declined})

	b = setup(t, 300)
	id, err = b.custom(t, config("r"), func(_ context.Context, _ pgx.Tx, _ job.Job, ids []int64) (int64, error) {
		return int64(len(ids)) + 1, nil
	})
	require.NoError(t, err)
	j = b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Equal(t, "the Writer wrote for 101 recipients of 100", j.LastError)
	require.Zero(t, j.Chunks)
}

// PROCESSED requires that the sums agree.
func TestAccounts_ThatDoNotAgreeAreNotProcessed(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointCommitted, 2)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	b.exec(t, `UPDATE belfry.jobs SET rows_written = rows_written - 1 WHERE id = $1`, id)
	g.release(nil)
	s.wait(t)
	j := b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Equal(t, "the counts do not agree: read 300, matched 300, written 299, declined 0, skipped 0; `belfry jobs audit 1` shows the recipients", j.LastError)
}

package job_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func most(n int) *int { return &n }

func textOf(n int64) string { return strconv.FormatInt(n, 10) }

// The walk stops before the ceiling is passed, says how to go on, and goes on from there;
// a ceiling of exactly as many as there are holds nobody up.
func TestMaxRecipients_StopsTheWalkBeforeItIsPassed(t *testing.T) {
	t.Parallel()
	const n = 350
	b := setup(t, n)
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		inOrder(t, kind, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: kind, MaxRecipients: most(250)})
			b.runDue(t, b.runner(t, "r"))
			s := b.state(t, id)
			require.Equal(t, job.Aborted, s.Status)
			require.Equal(t, everyone(200), s.Rows)
			s.requireAtomic(t, everyone(n))
			want := "max_recipients is 250: 200 rows are written and the next chunk has 100; `belfry jobs set " +
				textOf(id) + " max_recipients=N` raises it, `belfry resume " + textOf(id) + "` continues"
			require.Equal(t, want, s.LastError)
			require.Equal(t, []string{"enqueued", "claimed", "aborted"}, b.kinds(t, id))
			events, err := b.jobs.Events(t.Context(), id, 0, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"r", "the next chunk exceeds max_recipients, which is 250; `belfry jobs set " + textOf(id) + " max_recipients=N` raises it, " +
				"`belfry resume " + textOf(id) + "` continues"}, []string{events[2].Actor, events[2].Reason}, "without counts")

			// Resumed as it is, it stops again, and nothing more is written.
			_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ann"})
			require.NoError(t, err)
			b.runDue(t, b.runner(t, "r"))
			require.Equal(t, job.Aborted, b.state(t, id).Status)
			require.Equal(t, everyone(200), b.state(t, id).Rows)

			_, err = b.jobs.Set(t.Context(), id, job.Changes{"max_recipients": n}, job.Act{Actor: "ann"})
			require.NoError(t, err)
			_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ann"})
			require.NoError(t, err)
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, everyone(n))
			require.Empty(t, b.state(t, id).LastError)
		})
	}
}

// The statement that moves the cursor decides, not what the run read before: a ceiling that
// an operator lowers while a chunk is written, or lifts while it is refused.
func TestMaxRecipients_IsDecidedWhereTheCursorMoves(t *testing.T) {
	t.Parallel()
	b := setup(t, 350)
	inOrder(t, "lowered", func(t *testing.T) {
		id := b.enqueue(t, job.Spec{})
		g := b.gate(job.PointWritten, 2)
		s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
		g.await(t)
		b.exec(t, `UPDATE belfry.jobs SET max_recipients = 150 WHERE id = $1`, id)
		g.release(nil)
		s.wait(t)
		after := b.state(t, id)
		require.Equal(t, job.Aborted, after.Status)
		require.Equal(t, everyone(100), after.Rows, "no committed state has more rows than the ceiling")
	})
	inOrder(t, "lifted", func(t *testing.T) {
		id := b.enqueue(t, job.Spec{MaxRecipients: most(150)})
		g := b.gate(job.PointWritten, 2)
		s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
		g.await(t)
		b.exec(t, `UPDATE belfry.jobs SET max_recipients = NULL WHERE id = $1`, id)
		g.release(nil)
		s.wait(t)
		b.requireDone(t, id, everyone(350))
	})
}

// Recipients that were skipped and are tried again count as well.
func TestMaxRecipients_CountsWhoIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	b.poisoned(t, `NEW.channel_id IN (500, 1500)`)
	id := b.enqueue(t, job.Spec{MaxRecipients: most(199)})
	b.runDue(t, b.runner(t, "r"))
	require.Len(t, b.state(t, id).Rows, 198)
	b.poisoned(t, "")
	_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	s := b.state(t, id)
	require.Equal(t, job.Aborted, s.Status)
	require.Len(t, s.Rows, 199)
	require.Contains(t, s.LastError, "max_recipients is 199: 199 rows are written and the next chunk has 1")
	b.requireAccounts(t, id)
	_, err = b.jobs.Set(t.Context(), id, job.Changes{"max_recipients": nil}, job.Act{})
	require.NoError(t, err)
	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(200))
}

// A job has its own ceiling or its category's, decided when it is enqueued, each of a group
// for itself.
func TestMaxRecipients_IsTheJobsOrItsCategorys(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ceiling := func(id int64) *int { return b.get(t, id).MaxRecipients }
	require.Nil(t, ceiling(b.enqueue(t, job.Spec{})))
	b.exec(t, `UPDATE belfry.categories SET max_recipients = 1000 WHERE name = 'operator_notice'`)
	require.Equal(t, most(1000), ceiling(b.enqueue(t, job.Spec{})))
	require.Equal(t, most(10), ceiling(b.enqueue(t, job.Spec{MaxRecipients: most(10)})))
	require.Equal(t, most(5000), ceiling(b.enqueue(t, job.Spec{MaxRecipients: most(5000)})), "the owner may UPDATE the column")
	require.Nil(t, ceiling(b.enqueue(t, job.Spec{Category: "popular_content"})))

	ids, err := b.jobs.EnqueueGroup(t.Context(), []string{"push", "inbox"}, job.Spec{Category: "operator_notice", Title: "x", MaxRecipients: most(7)})
	require.NoError(t, err)
	require.Equal(t, []*int{most(7), most(7)}, []*int{ceiling(ids[0]), ceiling(ids[1])})

	var bad *job.InvalidError
	for _, n := range []int{0, -1, job.MostRecipients + 1} {
		_, err := b.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "x", MaxRecipients: &n})
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "max_recipients", bad.Column)
		require.Contains(t, bad.Message, "allowed values: null (the category's ceiling), 1 to 2000000000")
	}
	id := ids[0]
	_, err = b.jobs.Set(t.Context(), id, job.Changes{"max_recipients": nil}, job.Act{Actor: "ann", Reason: "to all"})
	require.NoError(t, err)
	require.Nil(t, ceiling(id), "an operator lifts it")
	require.Equal(t, `{"max_recipients": 7} {"max_recipients": null}`,
		one[string](t, b, `SELECT (detail -> 'before')::text || ' ' || (detail -> 'after')::text FROM belfry.job_events WHERE job_id = $1 AND kind = 'changed'`, id))
}

// Whoever may only INSERT has the lower of the category's ceiling and of belfry.limits, and
// cannot go beyond it.
func TestMaxRecipients_BindsWhoMayOnlyInsert(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT, SELECT (id) ON belfry.jobs TO :role`)
	insert := func(value string) (*int, error) {
		var id int64
		err := enqueuer.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title, max_recipients) VALUES ('inbox', 'operator_notice', 'x', `+value+`) RETURNING id`).Scan(&id)
		if err != nil {
			return nil, err
		}
		return b.get(t, id).MaxRecipients, nil
	}
	for _, c := range []struct {
		limits, category string
		has              *int
		beyond           string
	}{
		{"NULL", "NULL", nil, ""},
		{"100", "NULL", most(100), "101"},
		{"NULL", "50", most(50), "51"},
		{"100", "50", most(50), "51"},
		{"20", "50", most(20), "21"},
	} {
		b.exec(t, `UPDATE belfry.limits SET max_recipients = `+c.limits)
		b.exec(t, `UPDATE belfry.categories SET max_recipients = `+c.category+` WHERE name = 'operator_notice'`)
		got, err := insert("DEFAULT")
		require.NoError(t, err)
		require.Equal(t, c.has, got)
		got, err = insert("5")
		require.NoError(t, err)
		require.Equal(t, most(5), got)
		if c.has == nil {
			continue
		}
		_, err = insert(c.beyond)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, []string{"23514", "max_recipients"}, []string{refused.Code, refused.ColumnName})
		require.Equal(t, "belfry.jobs.max_recipients: "+c.beyond+" is beyond the ceiling for "+enqueuer.User+"; allowed values: null (the ceiling), 1 to "+textOf(int64(*c.has)), refused.Message)
		require.Contains(t, refused.Hint, "belfry limits set max_recipients=…, or belfry categories set operator_notice max_recipients=…")
	}
	for _, statement := range []string{
		`UPDATE belfry.jobs SET max_recipients = NULL`, `UPDATE belfry.categories SET max_recipients = NULL`, `UPDATE belfry.limits SET max_recipients = NULL`,
	} {
		_, err := enqueuer.Pool.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "permission denied")
	}
}

// The functions that enqueue take it too.
func TestMaxRecipients_ByTheFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := one[int64](t, b, `SELECT belfry.enqueue('push', 'operator_notice', 'x', max_recipients => 9)`)
	require.Equal(t, most(9), b.get(t, id).MaxRecipients)
	group := one[uuid.UUID](t, b, `SELECT DISTINCT group_id FROM belfry.enqueue_group('{inbox,push}', 'operator_notice', 'x', max_recipients => 8)`)
	list, err := b.jobs.List(t.Context(), job.Filter{GroupID: &group})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.False(t, slices.ContainsFunc(list, func(j job.Job) bool { return *j.MaxRecipients != 8 }))
	require.Equal(t, "changed: max_recipients", one[string](t, b, `SELECT note FROM belfry.set($1, '{"max_recipients": 10}')`, id))
}

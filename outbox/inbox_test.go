package outbox_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/inbox"
)

// centre is the notification centre of one channel.
type centre struct {
	*outboxtest.Database
	channel int64
}

// entry is a row of belfry.inbox_page.
type entry struct {
	ID    int64
	Title string
	Seen  bool
	Read  bool
}

func (c centre) page(t *testing.T, arguments string) []entry {
	t.Helper()
	rows, err := c.DB.Pool.Query(t.Context(),
		fmt.Sprintf(`SELECT id, title, seen, read FROM belfry.inbox_page($1%s)`, arguments), c.channel)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	require.NoError(t, err)
	return list
}

// counts returns the counts of unread and unseen notifications.
func (c centre) counts(t *testing.T) [2]int {
	t.Helper()
	var n [2]int
	require.NoError(t, c.DB.Pool.QueryRow(t.Context(), `SELECT unread, unseen FROM belfry.inbox_unread($1)`, c.channel).Scan(&n[0], &n[1]))
	return n
}

// claim enqueues an inbox job and claims it.
func (c centre) claim(t *testing.T, title string) (id int64) {
	t.Helper()
	id = outboxtest.One[int64](t, c.Database,
		`INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'operator_notice', $1, $1) RETURNING id`, title)
	c.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	return id
}

// reach writes the notifications of a job to the channels 1 to 3.
func (c centre) reach(t *testing.T, id int64) {
	t.Helper()
	c.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT j.arrival, n FROM belfry.jobs j, generate_series(1, 3) n WHERE j.id = $1`, id)
	c.Exec(t, `UPDATE belfry.jobs SET bound = '3', "cursor" = '3', chunks = 1, channels_read = 3, channels_matched = 3, rows_written = 3 WHERE id = $1`, id)
}

func (c centre) finish(t *testing.T, id int64) {
	t.Helper()
	c.Exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
}

func openCentre(t *testing.T) centre {
	t.Helper()
	c := centre{&outboxtest.Database{DB: dbtest.Reused(t, 4)}, 2}
	c.OldChannels(t, 3)
	return c
}

// The list is in the order of arrival. A job that was enqueued before and claimed later arrives later.
func TestInbox_ListsInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	early := outboxtest.One[int64](t, c.Database, `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'early') RETURNING id`)
	late := c.claim(t, "late")
	c.reach(t, late)
	c.finish(t, late)
	c.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, early)
	c.reach(t, early)
	list := c.page(t, "")
	require.Equal(t, []string{"early", "late"}, []string{list[0].Title, list[1].Title})
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	require.Equal(t, list[1:], c.page(t, fmt.Sprint(", before => ", list[0].ID)))
	require.Equal(t, list[:1], c.page(t, ", max_rows => 1"))
	_, err := c.DB.Pool.Exec(t.Context(), `SELECT belfry.inbox_page(2, max_rows => 101)`)
	require.ErrorContains(t, err, "belfry.inbox.max_rows: 101 is not allowed; allowed values: 1 to 100")
}

// A notification of a job that has not reached the channel when everything is marked arrives as new.
func TestInbox_MarksPassNoJobThatComes(t *testing.T) {
	t.Parallel()
	for mark, n := range map[string][2]int{"read_all": {1, 1}, "seen": {2, 1}} {
		t.Run(mark, func(t *testing.T) {
			t.Parallel()
			c := openCentre(t)
			walks, passes := c.claim(t, "walks"), c.claim(t, "passes")
			c.reach(t, passes)
			c.Exec(t, `SELECT belfry.inbox_`+mark+`(2)`)
			require.Equal(t, [2]int{n[0] - 1, 0}, c.counts(t))
			c.reach(t, walks)
			require.Equal(t, n, c.counts(t))
			require.Equal(t, "walks", c.page(t, "")[1].Title)
			c.Exec(t, `SELECT belfry.inbox_`+mark+`(2)`)
			require.Equal(t, [2]int{n[0] - 1 + n[0] - 1, 0}, c.counts(t), "with all of them there, the mark holds")
			require.Equal(t, "{}", outboxtest.One[string](t, c.Database, `SELECT (seen_except || read_except)::text FROM belfry.inbox`))
		})
	}
}

// The same for a recipient whom the walk skipped.
func TestInbox_MarksPassNoSkippedRecipient(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	skips, passes := c.claim(t, "skips"), c.claim(t, "passes")
	c.Exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error) VALUES ($1, '2', '', 'bad')`, skips)
	c.Exec(t, `UPDATE belfry.jobs SET bound = '3', "cursor" = '3', chunks = 1, channels_read = 3, channels_matched = 1, skipped = 1 WHERE id = $1`, skips)
	c.finish(t, skips)
	c.reach(t, passes)
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	require.Zero(t, c.counts(t)[0])
	c.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT arrival, 2 FROM belfry.jobs WHERE id = $1`, skips)
	require.Equal(t, 1, c.counts(t)[0])
}

// Single notifications are read, unread and archived, above and below the mark of everything.
func TestInbox_MarksSingleNotifications(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	for i := range 4 {
		c.reach(t, c.claim(t, fmt.Sprint("job-", i)))
	}
	list := c.page(t, "")
	ids := func(of ...int) (picked []int64) {
		for _, i := range of {
			picked = append(picked, list[i].ID)
		}
		return picked
	}
	read := func() (titles []string) {
		for _, e := range c.page(t, "") {
			if e.Read {
				titles = append(titles, e.Title)
			}
		}
		return titles
	}
	c.Exec(t, `SELECT belfry.inbox_read(2, $1)`, ids(0, 2))
	require.Equal(t, []string{"job-3", "job-1"}, read())
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	require.Zero(t, c.counts(t)[0])
	c.Exec(t, `SELECT belfry.inbox_read(2, $1, read => false)`, ids(1, 2))
	require.Equal(t, []string{"job-3", "job-0"}, read())
	require.Equal(t, [2]int{2, 0}, c.counts(t), "they stay seen")
	c.Exec(t, `SELECT belfry.inbox_read(2, $1)`, ids(1))
	require.Equal(t, []string{"job-3", "job-2", "job-0"}, read())
	c.Exec(t, `SELECT belfry.inbox_archive(2, $1)`, ids(0, 1))
	require.Len(t, c.page(t, ""), 2)
	require.Len(t, c.page(t, ", archived => true"), 2)
	c.Exec(t, `SELECT belfry.inbox_archive(2, $1, archived => false)`, ids(1))
	require.Len(t, c.page(t, ""), 3)
	require.Equal(t, 1, c.counts(t)[0], "job-1")
	require.Len(t, centre{c.Database, 1}.page(t, ""), 4, "another person's list is as it was")
	for _, call := range []string{"inbox_read(2, NULL)", "inbox_archive(2, array_fill(1, '{101}')::bigint[])"} {
		_, err := c.DB.Pool.Exec(t.Context(), `SELECT belfry.`+call)
		require.ErrorContains(t, err, "allowed values: up to 100 ids", call)
	}
}

// Withdrawn notifications, and those of categories that the person had left before, are neither listed nor counted.
func TestInbox_LeavesOutWhatIsWithdrawnOrUnwanted(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	for i := range 3 {
		c.reach(t, c.claim(t, fmt.Sprint("job-", i)))
	}
	c.Exec(t, `UPDATE belfry.notifications SET withdrawn_at = now() WHERE arrival = 1`)
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	c.Exec(t, `SELECT belfry.opt_out(2, 'operator_notice', 'push'), belfry.opt_out(2, 'popular_content')`)
	require.Equal(t, [2]int{2, 2}, c.counts(t), "of another category or of one medium")
	c.Exec(t, `SELECT belfry.opt_out(2, 'operator_notice')`)
	require.Equal(t, [2]int{2, 2}, c.counts(t), "they arrived before")
	c.reach(t, c.claim(t, "job-3"))
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	require.Len(t, c.page(t, ""), 2)
}

// Texts are those of the revision that the walk had when it reached the channel, in the person's language.
func TestInbox_ShowsTheTextThatWasWritten(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	id := c.claim(t, "first")
	c.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT j.arrival, n FROM belfry.jobs j, generate_series(1, 2) n WHERE j.id = $1`, id)
	c.Exec(t, `UPDATE belfry.jobs SET bound = '3', "cursor" = '2', chunks = 1, channels_read = 2, channels_matched = 2, rows_written = 2 WHERE id = $1`, id)
	c.Exec(t, `SELECT belfry.abort($1)`, id)
	c.Exec(t, `SELECT belfry.set($1, '{"title": "second", "variants": {"ko": {"title": "둘째"}}}')`, id)
	c.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT arrival, 3 FROM belfry.jobs WHERE id = $1`, id)
	require.Equal(t, "first", c.page(t, "")[0].Title)
	third := centre{c.Database, 3}
	require.Equal(t, "second", third.page(t, "")[0].Title)
	require.Equal(t, "둘째", third.page(t, ", locale => 'ko-KR'")[0].Title)
	c.Exec(t, `UPDATE belfry.channels SET locale = 'ko' WHERE id = 3`)
	require.Equal(t, "둘째", third.page(t, "")[0].Title)
}

// A page of a channel with many notifications reads its rows only, and an unread count at most 100 of them.
func TestInbox_ReadsOneRangeOfAnIndex(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	dbtest.Past(t, c.DB.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, status, arrival, started_at, finished_at, walked_at, fence)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'x', '{push}', 'PROCESSED', g, now(), now(), now(), 1 FROM generate_series(1, 5000) g`)
	dbtest.Past(t, c.DB.Pool, `INSERT INTO belfry.notifications (channel_id, arrival) SELECT n, g FROM generate_series(1, 3) n, generate_series(1, 5000) g`)
	dbtest.Vacuum(t, c.DB.Pool, "belfry.notifications_0", "belfry.jobs")
	for call, most := range map[string]int64{"inbox_page(2)": 300, "inbox_page(2, before => 2500)": 300, "inbox_unread(2)": 900, "inbox_seen(2)": 900, "inbox_read_all(2)": 900} {
		tx, err := c.DB.Pool.Begin(t.Context())
		require.NoError(t, err)
		var before, after int64
		const reads = `SELECT sum(pg_stat_get_xact_tuples_fetched(c) + pg_stat_get_xact_tuples_returned(c))::bigint
			FROM unnest('{belfry.notifications_0_pkey,belfry.jobs_arrival_idx,belfry.jobs_late_idx,belfry.jobs,belfry.notifications_0}'::regclass[]) c`
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&before))
		_, err = tx.Exec(t.Context(), `SELECT belfry.`+call)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&after))
		require.NoError(t, tx.Rollback(t.Context()))
		require.LessOrEqual(t, after-before, most, call)
		t.Log(call, after-before)
	}
}

// A page and the counts examine at most 1,000 notifications that an opt-out hides, and the list goes on after them.
func TestInbox_BoundsHiddenNotifications(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	for g := range 3 {
		c.notify(t, fmt.Sprint("old-", g), ", route => '{}'")
	}
	c.Exec(t, `INSERT INTO belfry.opt_outs (channel_id, category, opted_out_at) VALUES (2, 'activity', now() - interval '1 day'), (3, 'activity', now() - interval '1 day')`)
	dbtest.Past(t, c.DB.Pool, `UPDATE belfry.activities SET category = 'operator_notice' WHERE channel_id = 2`)
	dbtest.Past(t, c.DB.Pool, `INSERT INTO belfry.activities (id, channel_id, title, route, inbox) SELECT -g, 2, 'x', '{}', true FROM generate_series(1001, 4500) g`)
	dbtest.Past(t, c.DB.Pool, `INSERT INTO belfry.notifications (channel_id, arrival) SELECT 2, g FROM generate_series(1001, 4500) g`)
	dbtest.Vacuum(t, c.DB.Pool, "belfry.notifications_0", "belfry.activities")
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // it reads
	for _, call := range []string{"inbox_page(2)", "inbox_unread(2)", "inbox_next(2)"} {
		const reads = `SELECT sum(pg_stat_get_xact_tuples_fetched(c) + pg_stat_get_xact_tuples_returned(c))::bigint
			FROM unnest('{belfry.notifications_0_pkey,belfry.activities_pkey,belfry.jobs_arrival_idx,belfry.activities,belfry.notifications_0}'::regclass[]) c`
		var before, after int64
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&before))
		_, err = tx.Exec(t.Context(), `SELECT belfry.`+call)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&after))
		require.LessOrEqual(t, after-before, int64(5000), call)
	}
	store := inbox.NewStore(c.DB.Pool)
	var titles []string
	var nexts []int64
	for before := int64(0); ; {
		list, next, err := store.Page(t.Context(), 2, inbox.Page{Before: before, Limit: 2})
		require.NoError(t, err)
		for _, n := range list {
			titles = append(titles, n.Title)
		}
		nexts = append(nexts, next)
		if before = next; next == 0 {
			break
		}
	}
	require.Equal(t, []string{"old-2", "old-1", "old-0"}, titles)
	require.Equal(t, []int64{3501, 2501, 1501, 2, 0}, nexts)
}

// The counts read no text of a notification, whatever its size, and are those of the page.
func TestInbox_CountsWithoutTexts(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const long = `jsonb_build_object('ko', jsonb_build_object('body', (SELECT string_agg(md5(g || '.' || i), '') FROM generate_series(1, 300) i)))`
	dbtest.Past(t, c.DB.Pool, `INSERT INTO belfry.jobs (id, type, category, title, body, variants, route, status, arrival, started_at, finished_at, walked_at, fence)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', CASE WHEN g % 10 = 0 THEN 'popular_content' ELSE 'operator_notice' END, 'x {{locale}}', 'y {{locale}}', `+long+`,
			'{push}', 'PROCESSED', g, now(), now(), now(), 1 FROM generate_series(1, 150) g`)
	c.Exec(t, `INSERT INTO belfry.notifications (channel_id, arrival, read_at, archived_at, withdrawn_at)
		SELECT 2, g, CASE WHEN g % 7 = 0 THEN now() END, CASE WHEN g % 11 = 0 THEN now() END, CASE WHEN g % 13 = 0 THEN now() END FROM generate_series(1, 150) g`)
	c.Exec(t, `INSERT INTO belfry.inbox (channel_id, seen_to, seen_except, read_to, read_except) VALUES (2, 120, '{99,101}', 90, '{80,81}')`)
	c.Exec(t, `INSERT INTO belfry.opt_outs (channel_id, category, opted_out_at) VALUES (2, 'popular_content', now() - interval '1 day')`)
	of := func(sql string) (counts [2]int, texts int64) {
		tx, err := c.DB.Pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		const reads = `SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid) + pg_stat_get_xact_tuples_fetched(i.indexrelid))::bigint
			FROM pg_class c JOIN pg_index i ON i.indrelid = c.reltoastrelid WHERE c.oid = ANY ('{belfry.jobs,belfry.activities,belfry.job_revisions}'::regclass[])`
		var before int64
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&before))
		require.NoError(t, tx.QueryRow(t.Context(), sql).Scan(&counts[0], &counts[1]))
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&texts))
		texts -= before
		return counts, texts
	}
	want, texts := of(`SELECT count(*) FILTER (WHERE NOT read), count(*) FILTER (WHERE NOT seen) FROM belfry.inbox_page(2, max_rows => 100, locale => 'ko')`)
	require.Positive(t, texts)
	got, texts := of(`SELECT unread, unseen FROM belfry.inbox_unread(2)`)
	require.Equal(t, want, got)
	require.Zero(t, texts)
}

// The rights of `belfry roles --for inbox` are enough, and no other role may execute the functions.
func TestInbox_IsForItsRole(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.reach(t, c.claim(t, "x"))
	calls := []string{"inbox_page(2)", "inbox_unread(2)", "inbox_seen(2)", "inbox_read_all(2)", "inbox_read(2, '{1}')", "inbox_archive(2, '{1}')"}
	const schema = "GRANT USAGE ON SCHEMA belfry TO :role"
	others := c.DB.Role(t, schema, "GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO :role").Pool
	centres := c.DB.Role(t, schema, `GRANT EXECUTE ON FUNCTION belfry.inbox_page, belfry.inbox_unread, belfry.inbox_seen, belfry.inbox_read_all,
		belfry.inbox_read, belfry.inbox_archive TO :role`).Pool
	for _, call := range calls {
		_, err := others.Exec(t.Context(), `SELECT belfry.`+call)
		require.ErrorContains(t, err, "permission denied", call)
		_, err = centres.Exec(t.Context(), `SELECT belfry.`+call)
		require.NoError(t, err, call)
	}
	_, err := centres.Exec(t.Context(), `SELECT FROM belfry.notifications`)
	require.ErrorContains(t, err, "permission denied")
}

// Marks pass no running job, however many other jobs are unfinished, and whatever numbers rows have.
func TestInbox_MarksPassNoRunningJob(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	walks := c.claim(t, "walks")
	for i := range 105 {
		c.Exec(t, `UPDATE belfry.jobs SET status = 'ABORTED', abort_requested = true WHERE id = $1`, c.claim(t, fmt.Sprint("ends-", i)))
	}
	c.reach(t, c.claim(t, "passes"))
	c.Exec(t, `INSERT INTO belfry.notifications (channel_id, arrival) VALUES (2, 1999999999)`) // of no job
	c.Exec(t, `SELECT belfry.inbox_read_all(2), belfry.inbox_seen(2)`)
	require.Equal(t, [2]int{0, 0}, c.counts(t))
	c.reach(t, walks)
	require.Equal(t, [2]int{1, 1}, c.counts(t))
	c.reach(t, c.claim(t, "new"))
	require.Equal(t, [2]int{2, 2}, c.counts(t), "a row of no job marks nothing")

	// Many marks as unread drop no job that is still to come.
	later := c.claim(t, "later")
	var ids []int64
	for i := range 210 {
		id := c.claim(t, fmt.Sprint("many-", i))
		c.reach(t, id)
		c.finish(t, id)
		ids = append(ids, c.page(t, ", max_rows => 1")[0].ID)
	}
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	for part := range slices.Chunk(ids, 100) {
		c.Exec(t, `SELECT belfry.inbox_read(2, $1, read => false)`, part)
	}
	c.Exec(t, `SELECT belfry.inbox_read(2, ARRAY[$1::bigint, NULL])`, ids[209])
	c.reach(t, later)
	require.False(t, outboxtest.One[bool](t, c.Database, `SELECT p.read FROM belfry.inbox_page(2, before => $1, max_rows => 1) p`, ids[0]))

	// A mark works after the newest notification was deleted.
	c.Exec(t, `DELETE FROM belfry.notifications WHERE arrival >= $1`, ids[200])
	c.Exec(t, `SELECT belfry.inbox_read_all(2), belfry.inbox_seen(2)`)
	require.Equal(t, [2]int{0, 0}, c.counts(t))
}

// Only the first 35 characters of a locale count, as in belfry.channels: the cost grows with the square of the length.
func TestInbox_CutsALongLocale(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const longest = "aaaaaaaa-bbbbbbbb-cccccccc-dddddddd"
	id := c.claim(t, "x")
	c.Exec(t, `UPDATE belfry.jobs SET status = 'PENDING' WHERE id = $1`, id)
	c.Exec(t, `SELECT belfry.abort($1), belfry.set($1, jsonb_build_object('variants', jsonb_build_object($2::text, '{"title": "a"}'::jsonb)))`, id, longest)
	c.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) SELECT arrival, 2 FROM belfry.jobs WHERE id = $1`, id)
	require.Equal(t, "a", c.page(t, ", locale => '"+longest+"x'")[0].Title)
}

// A template of a variant in JSON has a tab as an escape.
func TestRefersToValue_BehindAnyBlank(t *testing.T) {
	t.Parallel()
	for text, refers := range map[string]bool{"{{value.points}}": true, "{{ value.points}}": true, "{{\tvalue.points}}": true, "{{name}} value.points": false} {
		variants, err := json.Marshal(map[string]map[string]string{"ko": {"title": text}})
		require.NoError(t, err)
		require.Equal(t, refers, outbox.RefersToValue(job.Job{Title: text}), text)
		require.Equal(t, refers, outbox.RefersToValue(job.Job{Variants: variants}), text)
	}
}

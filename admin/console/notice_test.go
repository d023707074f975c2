package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// people makes channels: most of them on the web, some on ios, which read Korean.
func (h *house) people(t *testing.T, web, ios int) {
	t.Helper()
	_, err := h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform, locale, attributes)
		SELECT 'w' || n, 'web', 'en', '{"name": "<i>Ann</i>"}'::jsonb FROM generate_series(1, $1) n
		UNION ALL SELECT 'i' || n, 'ios', 'ko', '{"name": "Kim"}'::jsonb FROM generate_series(1, $2) n`, web, ios)
	require.NoError(t, err)
	_, err = h.db.Pool.Exec(t.Context(), `ANALYZE belfry.channels`)
	require.NoError(t, err)
}

// notice is what somebody types who tells everybody something.
func notice(more ...string) url.Values {
	form := url.Values{"category": {"operator_notice"}, "title": {"Hello"}, "body": {"It says more."}, "type": {"inbox"}, "_who": {"everyone"}}
	for i := 0; i < len(more); i += 2 {
		form[more[i]] = append([]string{}, strings.Split(more[i+1], "|")...)
	}
	return form
}

// agreed are the fields of a review, with the number typed.
func (p page) agreed(typed string) url.Values {
	form := make(url.Values)
	p.each(func(n *html.Node) {
		if n.Data == "input" && attr(n, "type") == "hidden" && attr(n, "name") != "return_to" {
			form.Add(attr(n, "name"), attr(n, "value"))
		}
	})
	if typed != "" {
		form.Set("_count", typed)
	}
	return form
}

// fields are the names of what can be typed or chosen, each with its value or, of an area, its text.
func (p page) fields() url.Values {
	all := make(url.Values)
	p.each(func(n *html.Node) {
		switch n.Data {
		case "input", "select":
			all.Add(attr(n, "name"), attr(n, "value"))
		case "textarea":
			text := ""
			if n.FirstChild != nil {
				text = n.FirstChild.Data
			}
			all.Add(attr(n, "name"), text)
		}
	})
	return all
}

// A parameter that is added to the operation needs its place on the page.
func TestNotice_HasEachParameter(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	p := author.get(t, "/enqueue")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.source, "data-draft", "a draft of before is put back into a fresh form")
	require.NotContains(t, author.post(t, "/enqueue", notice("_edit", "on")).source, "data-draft", "and not over what was sent")
	fields := p.fields()
	reviewed := author.post(t, "/enqueue", notice()).fields()
	for _, o := range admin.Operations() {
		if o.Name != "enqueue" {
			continue
		}
		for _, param := range o.Params() {
			switch {
			case param.Local:
				require.NotContains(t, fields, param.Name)
			case param.Name == "everyone":
				require.Contains(t, fields["_who"], param.Name)
			case param.Name == "variants":
				require.Contains(t, fields, "_locale")
			case param.Name == "preview":
				require.Contains(t, p.source, `id="reach"`)
			case param.Name == "confirm_count":
				require.Equal(t, "9", reviewed.Get(param.Name), "to an author fewer than ten are nine")
			default:
				require.Contains(t, fields, param.Name)
			}
		}
	}
	require.Contains(t, p.source, `<option value="Seoul,KR">`, "the places there are")
	require.Contains(t, p.source, "<option>operator_notice</option>", "the categories there are")
}

func TestNotice_ReachesWhomTheWalkWrites(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 12)
	author := h.as(t, "author")
	form := notice("_who", "platform", "platform", "ios", "type", "inbox|push", "segment", "not chosen")
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Enqueue for 12 channels")
	require.Contains(t, p.text, "by platform ios 12")
	require.Contains(t, p.text, "lane default: no overlap")
	require.Contains(t, h.everything(t), "0 jobs", "it is looked at first")
	form = p.agreed("")
	for range 2 {
		p = author.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "enqueued job")
		require.Contains(t, strings.Join(p.links(), " "), "/test-send")
	}
	require.Contains(t, h.everything(t), "2 jobs", "a form that is sent twice is done once")
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	runner, err := job.NewRunner(h.db.Pool, job.DefaultConfig(), outbox.Types(recipients))
	require.NoError(t, err)
	_, err = runner.RunDue(t.Context())
	require.NoError(t, err)
	var written []int64
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT array_agg(rows_written) FROM belfry.jobs`).Scan(&written))
	require.Equal(t, []int64{12, 12}, written)
}

// What was agreed to is bound to its number until it runs: an audience that has doubled by then stops
// at the ceiling, which the page of the job says. A ceiling that is lower, or asked for, stands.
func TestNotice_AnAudienceThatDoublesStopsAtTheCeiling(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 0, 30)
	author := h.as(t, "author")
	agree := func(more ...string) {
		p := author.post(t, "/enqueue", notice(more...))
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Equal(t, len(more) == 0, strings.Contains(p.text, "If by the time it runs it would reach half as many again, it stops before."))
		p = author.post(t, "/enqueue", p.agreed(""))
		require.Contains(t, p.text, "enqueued job")
	}
	agree()
	agree("max_recipients", "31")
	h.exec(t, `UPDATE belfry.categories SET max_recipients = 44`)
	agree()
	h.exec(t, `UPDATE belfry.categories SET max_recipients = NULL`)
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'x' || n, 'ios' FROM generate_series(1, 30) n`)
	config := job.DefaultConfig()
	config.Chunk.InitialRows, config.Chunk.MinRows, config.Chunk.MaxRows = 10, 10, 10
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	runner, err := job.NewRunner(h.db.Pool, config, outbox.Types(recipients))
	require.NoError(t, err)
	_, err = runner.RunDue(t.Context())
	require.NoError(t, err)
	rows, err := h.db.Pool.Query(t.Context(), `SELECT status || ' ' || max_recipients || ' ' || rows_written FROM belfry.jobs ORDER BY id`)
	require.NoError(t, err)
	became, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"ABORTED 45 40", "ABORTED 31 30", "ABORTED 44 40"}, became)
	require.Contains(t, author.get(t, "/jobs/1").text, "max_recipients is 45: 40 rows are written")
}

func TestNotice_AnotherCountThanWasSeenIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 12)
	author := h.as(t, "author")
	form := author.post(t, "/enqueue", notice()).agreed("")
	require.Equal(t, "42", form.Get("confirm_count"))
	_, err := h.db.Pool.Exec(t.Context(), `UPDATE belfry.channels SET active = false WHERE external_id = 'w1'`)
	require.NoError(t, err)
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusConflict, p.status, p.text)
	require.Contains(t, p.text, "nothing was enqueued")
	require.Contains(t, p.text, "Enqueue for 41 channels", "the new number is shown, to be agreed to")
	require.Contains(t, h.everything(t), "0 jobs")
	require.Contains(t, author.post(t, "/enqueue", p.agreed("")).text, "enqueued job")
}

func TestNotice_ToManyTheirNumberIsTyped(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 1100, 0)
	author := h.as(t, "author")
	p := author.post(t, "/enqueue", notice())
	require.Contains(t, p.text, "Type 1100 to agree")
	for _, typed := range []string{"", "110", "all"} {
		p = author.post(t, "/enqueue", p.agreed(typed))
		require.Contains(t, p.text, "Type 1100 to agree", "typed %q", typed)
		require.Contains(t, h.everything(t), "0 jobs")
	}
	_, err := h.db.Pool.Exec(t.Context(), `DELETE FROM belfry.channels WHERE id > (SELECT min(id) + 899 FROM belfry.channels)`)
	require.NoError(t, err)
	p = author.post(t, "/enqueue", p.agreed(""))
	require.Equal(t, []string{"900"}, p.agreed("")["confirm_count"], "the number that is shown, and no other")
	require.Contains(t, author.post(t, "/enqueue", p.agreed("")).text, "enqueued job")
	_, err = h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) SELECT 'more' || n, 'web' FROM generate_series(1, 200) n`)
	require.NoError(t, err)
	p = author.post(t, "/enqueue", notice())
	require.Contains(t, author.post(t, "/enqueue", p.agreed("1,100")).text, "enqueued job")
}

func TestNotice_IsNotForViewers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	viewer := h.as(t, "viewer")
	for _, p := range []page{
		viewer.get(t, "/enqueue"), viewer.post(t, "/enqueue", notice()), viewer.post(t, "/enqueue", notice("_reach", "on")), viewer.post(t, "/enqueue", notice("_test", "on", "_to", "w1")),
	} {
		require.Equal(t, http.StatusForbidden, p.status)
		require.NotContains(t, p.source, `name="title"`)
	}
	require.NotContains(t, viewer.get(t, "/").source, `href="/enqueue"`)
	require.Contains(t, h.as(t, "author").get(t, "/").source, `href="/enqueue"`)
}

func TestNotice_FaultsStandAtTheirFields(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	p := author.post(t, "/enqueue", url.Values{"body": {"Typed already."}})
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	for _, name := range []string{"category", "title", "type", "_who"} {
		require.Contains(t, p.source, `id="fault-`+name+`"`)
	}
	require.Equal(t, "Typed already.", p.fields().Get("body"))
	for _, c := range []struct {
		form        url.Values
		field, says string
	}{
		{notice("_who", "place", "city", "Seol", "radius", "30km"), "city", "near names: Seoul"},
		{notice("_who", "place", "city", "Seoul"), "radius", "is needed"},
		{notice("_who", "segment"), "segment", "is needed"},
		{notice("_who", "people"), "external_id", "is needed"},
		{notice("_who", "audience", "audience", "{"), "audience", ""},
		{notice("at", "soon"), "at", "allowed values"},
		{notice("priority", "5000"), "priority", "-1000 to 1000"},
		{notice("data", "[]"), "data", "allowed values"},
		{notice("at", "2036-01-02 03:04", "deliver_at", "2036-01-01 03:04"), "deliver_at", "is before"},
	} {
		p := author.post(t, "/enqueue", c.form)
		if p.status == http.StatusOK { // it is the act that says so
			p = author.post(t, "/enqueue", p.agreed(""))
		}
		require.Equal(t, http.StatusUnprocessableEntity, p.status, "%s: %s", c.field, p.text)
		require.Contains(t, p.source, `id="fault-`+c.field+`"`, p.text)
		require.Contains(t, p.text, c.says)
		fields := p.fields()
		require.Equal(t, "Hello", fields.Get("title"))
		if typed := c.form.Get(c.field); typed != "" && c.field != "at" && c.field != "deliver_at" {
			require.Equal(t, typed, fields.Get(c.field))
		}
	}
	long := strings.Repeat("가", 300)
	p = author.post(t, "/enqueue", notice("type", "push", "_locale", "ko|", "_locale_title", long+"|", "_locale_body", "|"))
	require.Equal(t, http.StatusOK, p.status, p.text)
	p = author.post(t, "/enqueue", p.agreed(""))
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Regexp(t, `locale faulty`, p.source)
	require.Equal(t, long, p.fields().Get("_locale_title"))
	require.Contains(t, h.everything(t), "0 jobs")
}

func TestNotice_LocalesAreVariants(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	form := notice("type", "push", "_locale", "ko||fr", "_locale_title", "안녕||", "_locale_body", "||Bonjour")
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.JSONEq(t, `{"ko": {"title": "안녕"}, "fr": {"body": "Bonjour"}}`, p.agreed("").Get("variants"))
	require.Contains(t, p.text, "안녕", "as a telephone shows it")
	back := p.agreed("")
	back.Set("_edit", "on")
	fields := author.post(t, "/enqueue", back).fields()
	require.Equal(t, []string{"fr", "ko"}, fields["_locale"])
	require.Equal(t, []string{"", "안녕"}, fields["_locale_title"])
	form.Set("_more", "on")
	require.Len(t, author.post(t, "/enqueue", form).fields()["_locale"], 3, "one more, and nothing is lost")
	p = author.post(t, "/enqueue", notice("_locale", "|ko|ko", "_locale_title", "Nowhere|a|b", "_locale_body", "||"))
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "the locale is needed")
	require.Contains(t, p.text, "each locale once")
	p = author.get(t, "/enqueue?variants="+url.QueryEscape(`{"ko": {"title": ""}}`))
	require.Contains(t, p.fields(), "variants", "what the fields cannot show stands as it is")
	require.Contains(t, author.post(t, "/enqueue", author.post(t, "/enqueue", notice("type", "push", "_locale", "ko", "_locale_title", "안녕", "_locale_body", "")).agreed("")).text, "enqueued job")
	var variants string
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT variants::text FROM belfry.jobs`).Scan(&variants))
	require.JSONEq(t, `{"ko": {"title": "안녕"}}`, variants)
}

func TestNotice_MarkupIsInert(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	evil := `"><script>alert(1)</script><b onclick=alert(2)>{{attributes.name}}`
	form := notice("type", "push", "title", evil, "body", evil, "_locale", "ko", "_locale_title", evil, "_locale_body", evil, "lane", evil, "_to", evil)
	edit, try, part := notice(), notice(), notice()
	for _, with := range []struct {
		form url.Values
		name string
	}{{edit, "_edit"}, {try, "_test"}, {part, "_reach"}} {
		for name, texts := range form {
			with.form[name] = texts
		}
		with.form.Set(with.name, "on")
	}
	for _, who := range []string{"author", "operator"} {
		for _, f := range []url.Values{form, edit, try, part} {
			p := h.as(t, who).post(t, "/enqueue", f)
			require.Less(t, p.status, http.StatusInternalServerError, p.text)
			require.Contains(t, p.text, "alert(1)", "it is shown as text")
			p.each(func(n *html.Node) {
				require.NotContains(t, []string{"b", "i"}, n.Data)
				require.False(t, n.Data == "script" && n.FirstChild != nil && n.Type == html.ElementNode, "a script in the page")
				for _, a := range n.Attr {
					require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style", "%s=%s", a.Key, a.Val)
				}
			})
		}
	}
}

// An operator reads what is composed for people; an author the words that were written.
func TestNotice_CountsWhileItIsWritten(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	form := notice("type", "push", "title", "Hello {{attributes.name}}", "_reach", "on")
	p := h.as(t, "operator").post(t, "/enqueue", form)
	require.NotContains(t, p.source, "<form", "a part of the page")
	for _, says := range []string{"5 channels", "by platform web 3, ios 2", "by locale en 3, ko 2", "without address 5"} {
		require.Contains(t, p.text, says)
	}
	_, err := h.db.Pool.Exec(t.Context(), `UPDATE belfry.channels SET addresses = '{"push": "t"}'`)
	require.NoError(t, err)
	p = h.as(t, "operator").post(t, "/enqueue", form)
	require.Contains(t, p.text, "Hello Kim")
	p = h.as(t, "author").post(t, "/enqueue", form)
	require.NotContains(t, p.text, "Kim")
	require.NotContains(t, p.text, admin.Masked)
	require.Contains(t, p.text, "Hello {{attributes.name}}")
	for _, c := range []struct {
		form url.Values
		says string
	}{
		{notice("title", "", "_reach", "on"), "fewer than 10 channels"},
		{notice("_who", "", "_reach", "on"), "counted once it is said who gets it"},
		{notice("_who", "place", "city", "Seoul", "_reach", "on"), "radius is needed"},
		{notice("_who", "segment", "segment", "none", "_reach", "on"), "no such segment"},
		{notice("_who", "people", "external_id", "w1\nw2", "_reach", "on"), "fewer than 10 channels"},
	} {
		require.Contains(t, h.as(t, "author").post(t, "/enqueue", c.form).text, c.says)
	}
	require.Contains(t, h.everything(t), "0 jobs, 0 events of jobs, 0 others", "to count is no act")
}

// A count ends with its request: who types on does not leave queries behind.
func TestNotice_ACountEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	tx, err := h.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it only holds a lock
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.channels IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	waiting := func() (n int) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'belfry.channels'::regclass`).Scan(&n))
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/enqueue", strings.NewReader(notice("_reach", "on").Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer author")
	ended := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return waiting() > 0 }, time.Minute, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return waiting() == 0 }, time.Minute, 10*time.Millisecond)
}

func TestNotice_IsTriedOnOnePerson(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	form := notice("type", "push", "_test", "on", "_to", "i1", "_test_key", "t-1", "_locale", "ko", "_locale_title", "안녕", "_locale_body", "")
	for range 2 {
		p := author.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "to channel")
		require.Equal(t, "Hello", p.fields().Get("title"), "what was typed stands")
		require.NotEqual(t, "t-1", p.fields().Get("_test_key"), "the next test is another one")
	}
	var title, external string
	var n int
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT min(a.variants -> 'ko' ->> 'title'), min(c.external_id), count(*) FROM belfry.activities a JOIN belfry.channels c ON c.id = a.channel_id`).Scan(&title, &external, &n))
	require.Equal(t, [2]string{"안녕", "i1"}, [2]string{title, external})
	require.Equal(t, 1, n, "a form that is sent twice is done once")
	require.Contains(t, h.everything(t), "0 jobs")
	for _, c := range []struct{ to, kind, says string }{
		{"nobody", "push", "nobody"}, {"", "push", "to whom?"}, {"i1", "inbox", "of type inbox alone"},
	} {
		p := author.post(t, "/enqueue", notice("type", c.kind, "_test", "on", "_to", c.to))
		require.GreaterOrEqual(t, p.status, http.StatusBadRequest)
		require.Contains(t, p.source, `id="fault-_to"`)
		require.Contains(t, p.text, c.says)
	}
}

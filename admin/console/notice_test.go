package console_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
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
	form := url.Values{"category": {"operator_notice"}, "title": {"Hello"}, "body": {"It says more."}, "type": {"inbox"}, "everyone": {"on"}}
	for i := 0; i < len(more); i += 2 {
		form[more[i]] = append([]string{}, strings.Split(more[i+1], "|")...)
	}
	return form
}

// agreed returns what a browser sends of a previewed form, with the typed number.
func (p page) agreed(typed string) url.Values {
	form := make(url.Values)
	selected := ""
	p.each(func(n *html.Node) {
		name := attr(n, "name")
		switch {
		case n.Data == "select":
			selected = name
		case n.Data == "option" && has(n, "selected"):
			form.Add(selected, n.FirstChild.Data)
		case n.Data == "textarea" && n.FirstChild != nil:
			form.Add(name, n.FirstChild.Data)
		case n.Data == "input" && !slices.Contains([]string{"_count", "return_to", "q", "zone"}, name) && (attr(n, "type") != "checkbox" || has(n, "checked")):
			form.Add(name, attr(n, "value"))
		}
	})
	if typed != "" {
		form.Set("_count", typed)
	}
	return form
}

// has reports whether an element has an attribute.
func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
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

func TestNotice_ReachesWhomTheWalkWrites(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 12)
	author := h.as(t, "author")
	form := notice("everyone", "", "platform", "ios", "type", "inbox,push")
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Enqueue for 12 channels")
	require.Contains(t, p.text, "by platform ios 12")
	require.Contains(t, p.text, "lane default : no overlap")
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
		require.Equal(t, len(more) == 0, strings.Contains(p.text, "The job stops if its audience has grown by half when it runs."))
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

// The form has a field for each parameter, and needs no script.
func TestNotice_HasEachParameter(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	p := author.get(t, "/enqueue")
	require.Equal(t, http.StatusOK, p.status, p.text)
	fields := p.fields()
	previewed := author.post(t, "/enqueue", notice()).fields()
	for _, o := range admin.Operations() {
		if o.Name != "enqueue" {
			continue
		}
		for _, param := range o.Params() {
			switch {
			case param.Local, param.Name == "preview":
				require.NotContains(t, fields, param.Name)
			case param.Name == "confirm_count":
				require.NotContains(t, fields, param.Name)
				require.Equal(t, "9", previewed.Get(param.Name), "to an author fewer than ten are nine")
			default:
				require.Contains(t, fields, param.Name)
			}
		}
	}
	require.Contains(t, p.source, `<option value="operator_notice">`, "the existing categories")
	require.Contains(t, author.get(t, "/enqueue?title=Copied&category=operator_notice").source, `value="Copied"`, "values of the address")
}

func TestNotice_IsNotForViewers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	viewer := h.as(t, "viewer")
	for _, p := range []page{viewer.get(t, "/enqueue"), viewer.post(t, "/enqueue", notice()), viewer.post(t, "/enqueue", notice("_agreed", "on", "confirm_count", "9"))} {
		require.Equal(t, http.StatusForbidden, p.status)
	}
	require.NotContains(t, viewer.get(t, "/").source, `href="/enqueue"`)
	require.Contains(t, h.as(t, "author").get(t, "/").source, `href="/enqueue"`)
	require.Contains(t, h.everything(t), "0 jobs")
}

// What was previewed is what is enqueued: a form whose values were changed after its preview is previewed
// again, though the number of channels is the same.
func TestNotice_AChangedFormIsPreviewedAgain(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 30)
	author := h.as(t, "author")
	form := author.post(t, "/enqueue", notice("everyone", "", "platform", "ios")).agreed("")
	for name, text := range map[string]string{"platform": "web", "title": "Another", "_seen": "forged"} {
		was := form.Get(name)
		form.Set(name, text)
		p := author.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "Enqueue for 30 channels", name)
		require.Contains(t, h.everything(t), "0 jobs", name)
		form.Set(name, was)
	}
	form.Set("_plan", "on")
	require.Contains(t, author.post(t, "/enqueue", form).text, "Enqueue for 30 channels")
	require.Contains(t, h.everything(t), "0 jobs")
	form.Del("_plan")
	require.Contains(t, author.post(t, "/enqueue", form).text, "enqueued job")
}

func TestNotice_FaultsStandAtTheirFields(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	p := author.post(t, "/enqueue", url.Values{"body": {"Typed already."}})
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	for _, name := range []string{"category", "title", "type"} {
		require.Contains(t, p.source, `id="fault-`+name+`"`)
	}
	require.Equal(t, "Typed already.", p.fields().Get("body"))
	for _, c := range []struct {
		form        url.Values
		field, says string
	}{
		{notice("at", "soon"), "at", "allowed values"},
		{notice("priority", "5000"), "priority", "-1000 to 1000"},
		{notice("data", "[]"), "data", "allowed values"},
		{notice("at", "2036-01-02 03:04", "deliver_at", "2036-01-01 03:04"), "deliver_at", "is before"},
		{notice("type", "push", "variants", `{"ko": {"title": "`+strings.Repeat("가", 300)+`"}}`), "variants", "ko.title"},
	} {
		p := author.post(t, "/enqueue", c.form)
		if p.status == http.StatusOK { // the operation reports it
			p = author.post(t, "/enqueue", p.agreed(""))
		}
		require.Equal(t, http.StatusUnprocessableEntity, p.status, "%s: %s", c.field, p.text)
		require.Contains(t, p.source, `id="fault-`+c.field+`"`, p.text)
		require.Contains(t, p.text, c.says)
		require.Equal(t, "Hello", p.fields().Get("title"))
	}
	p = author.post(t, "/enqueue", notice("segment", "vip"))
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "everyone", "two audiences")
	p = author.post(t, "/enqueue", notice("everyone", ""))
	require.Equal(t, http.StatusUnprocessableEntity, p.status, "no audience")
	require.Contains(t, h.everything(t), "0 jobs")
}

// An operator reads samples as they are composed; an author does not.
func TestNotice_PreviewShowsSamples(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	h.exec(t, `UPDATE belfry.channels SET addresses = '{"push": "t"}'`)
	form := notice("type", "push", "title", "Hello {{attributes.name}}", "variants", `{"ko": {"body": "<b>안녕</b>"}}`)
	p := h.as(t, "operator").post(t, "/enqueue", form)
	for _, says := range []string{"5 channels", "by platform web 3, ios 2", "by locale en 3, ko 2", "Hello Kim", "<b>안녕</b>"} {
		require.Contains(t, p.text, says)
	}
	p.each(func(n *html.Node) { require.NotContains(t, []string{"b", "i"}, n.Data, "texts are no markup") })
	p = h.as(t, "author").post(t, "/enqueue", form)
	require.Contains(t, p.text, "fewer than 10 channels")
	require.NotContains(t, p.text, "Kim")
	require.Contains(t, h.everything(t), "0 jobs, 0 events of jobs, 0 others", "a preview is no act")
}

// The query of a preview ends with its request.
func TestNotice_APreviewEndsWithItsRequest(t *testing.T) {
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/enqueue", strings.NewReader(notice().Encode()))
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

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
			value := n.FirstChild.Data
			if has(n, "value") {
				value = attr(n, "value")
			}
			form.Add(selected, value)
		case n.Data == "textarea" && n.FirstChild != nil:
			form.Add(name, n.FirstChild.Data)
		case n.Data == "input" && !slices.Contains([]string{"_count", "return_to", "q", "zone"}, name) && (attr(n, "type") != "checkbox" && attr(n, "type") != "radio" || has(n, "checked")):
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

func TestCompose_ReachesWhomTheWalkWrites(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 12)
	author := h.as(t, "author")
	form := notice("everyone", "", "platform", "ios", "type", "inbox,push")
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Send to 12 recipients")
	require.Contains(t, p.text, "By platform ios 12")
	require.Contains(t, p.text, "Lane default is free at that time.")
	require.Contains(t, h.everything(t), "0 jobs", "it is looked at first")
	form = p.agreed("")
	for range 2 {
		p = author.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "Open job")
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

// The review contains a limit of the rate and the least time that it takes, and the job has it.
func TestCompose_LimitsTheRate(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 0, 30)
	operator := h.as(t, "operator")
	p := operator.post(t, "/enqueue", notice("max_rows_per_second", "x"))
	require.Contains(t, p.text, "Most recipients per second allowed values: whole numbers from 0 to 10000000")
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'x' || n, 'ios' FROM generate_series(1, 970) n`)
	p = operator.post(t, "/enqueue", notice("max_rows_per_second", "5"))
	require.Contains(t, p.text, "Rate At most 5 recipients per second, so it takes at least 3 min 20 s")
	p = operator.post(t, "/enqueue", p.agreed(""))
	require.Contains(t, p.text, "Open job")
	j, err := h.jobs.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 5, *j.MaxRowsPerSecond)
	p = operator.post(t, "/enqueue", notice("max_rows_per_second", "0"))
	require.Contains(t, p.text, "Rate No limit of recipients per second")
	require.NotContains(t, operator.post(t, "/enqueue", notice()).text, "per second,")
}

// What was agreed to is bound to its number until it runs: an audience that has doubled by then stops
// at the ceiling, which the page of the job says. A ceiling that is lower, or asked for, stands.
func TestCompose_AnAudienceThatDoublesStopsAtTheCeiling(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 0, 30)
	author := h.as(t, "author")
	agree := func(more ...string) {
		p := author.post(t, "/enqueue", notice(more...))
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Equal(t, len(more) == 0, strings.Contains(p.text, "The job stops if its audience has grown by half when it runs."))
		p = author.post(t, "/enqueue", p.agreed(""))
		require.Contains(t, p.text, "Open job")
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
	require.Contains(t, author.get(t, "/jobs/1").text, "the next chunk exceeds max_recipients, which is 45")
}

func TestCompose_AnotherCountThanWasSeenIsRefused(t *testing.T) {
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
	require.Contains(t, p.text, "Send to 41 recipients", "the new number is shown, to be agreed to")
	require.Contains(t, h.everything(t), "0 jobs")
	require.Contains(t, author.post(t, "/enqueue", p.agreed("")).text, "Open job")
}

func TestCompose_ToManyTheirNumberIsTyped(t *testing.T) {
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
	require.Contains(t, author.post(t, "/enqueue", p.agreed("")).text, "Open job")
	_, err = h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) SELECT 'more' || n, 'web' FROM generate_series(1, 200) n`)
	require.NoError(t, err)
	p = author.post(t, "/enqueue", notice())
	require.Contains(t, author.post(t, "/enqueue", p.agreed("1,100")).text, "Open job")
}

// The form has a field for each parameter, and needs no script.
func TestCompose_HasEachParameter(t *testing.T) {
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
			case param.Name == "everyone", param.Name == "variants": // a choice, and the languages
				require.NotContains(t, fields, param.Name)
			default:
				require.Contains(t, fields, param.Name)
			}
		}
	}
	require.Contains(t, p.source, `<option value="operator_notice">`, "the existing categories")
	require.Contains(t, author.get(t, "/enqueue?title=Copied&category=operator_notice").source, `value="Copied"`, "values of the address")
}

func TestCompose_IsNotForViewers(t *testing.T) {
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
func TestCompose_AChangedFormIsPreviewedAgain(t *testing.T) {
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
		require.Contains(t, p.text, "Send to 30 recipients", name)
		require.Contains(t, h.everything(t), "0 jobs", name)
		form.Set(name, was)
	}
	form.Set("_plan", "on")
	require.Contains(t, author.post(t, "/enqueue", form).text, "Send to 30 recipients")
	require.Contains(t, h.everything(t), "0 jobs")
	form.Del("_plan")
	require.Contains(t, author.post(t, "/enqueue", form).text, "Open job")
}

func TestCompose_FaultsStandAtTheirFields(t *testing.T) {
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
func TestCompose_PreviewShowsSamples(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	h.exec(t, `UPDATE belfry.channels SET addresses = '{"push": "t"}'`)
	form := notice("type", "push", "title", "Hello {{attributes.name}}", "variants", `{"ko": {"body": "<b>안녕</b>"}}`)
	p := h.as(t, "operator").post(t, "/enqueue", form)
	for _, says := range []string{"5 recipients", "By platform web 3 ios 2", "By language en 3 ko 2", "Hello Kim", "<b>안녕</b>"} {
		require.Contains(t, p.text, says)
	}
	p.each(func(n *html.Node) { require.NotContains(t, []string{"b", "i"}, n.Data, "texts are no markup") })
	p = h.as(t, "author").post(t, "/enqueue", form)
	require.Contains(t, p.text, "fewer than 10 recipients")
	require.NotContains(t, p.text, "Kim")
	require.Contains(t, h.everything(t), "0 jobs, 0 events of jobs, 0 others", "a preview is no act")
}

// The query of a preview ends with its request.
func TestCompose_APreviewEndsWithItsRequest(t *testing.T) {
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

// The form is understood as its choices are: fields of other choices do not count, a place has coordinates, and the
// languages are the variants.
func TestCompose_ChoicesLeaveOutTheFieldsOfOthers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	h.exec(t, `UPDATE belfry.channels SET location = point(126.98, 37.57) WHERE platform = 'ios'`)
	author := h.as(t, "operator")
	form := notice("everyone", "", "_to", "near", "near", "seoul", "radius", "30km", "segment", "vip", "external_id", "w1", "_when", "now", "at", "2036-01-02T03:04")
	form["_locale"], form["_title"], form["_body"] = []string{"ko", ""}, []string{"안녕", ""}, []string{"", ""}
	p := author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Send to 2 recipients", "now, near Seoul, and to nobody else")
	require.Contains(t, p.text, "The audience on a map")
	require.Contains(t, p.text, "Within 30 km of 37.566, 126.9784 (seoul): 2 recipients")
	require.Equal(t, "seoul", p.fields().Get("near"), "as it was typed")
	p = author.post(t, "/enqueue", p.agreed(""))
	require.Contains(t, p.text, "Open job 1")
	j, err := h.jobs.Get(t.Context(), 1)
	require.NoError(t, err)
	require.JSONEq(t, `{"ko": {"title": "안녕"}}`, string(j.Variants))
	require.Equal(t, channels.KindRadius, j.Audience.Kind)
	require.WithinDuration(t, j.CreatedAt, j.ScheduleAt, time.Minute)

	form["_locale"] = []string{"ko", "ko"}
	form["_title"] = []string{"안녕", "하이"}
	p = author.post(t, "/enqueue", form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "has the language ko twice")
	require.Contains(t, p.source, `value="하이"`, "nothing that was typed is lost")
	p = author.post(t, "/enqueue", notice("_when", "at"))
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.source, `id="fault-at"`)
}

// The review says in words that a second person must approve, and why.
func TestCompose_TheReviewSaysWhatNeedsApproval(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 0)
	operator := h.as(t, "operator")
	require.NotContains(t, operator.post(t, "/enqueue", notice()).text, "second person must approve")
	for _, c := range []struct {
		above int
		most  string
		says  string
		waits bool
	}{
		{0, "", "operator_notice demands it of each job", true},
		{40, "", "jobs that may reach more than 40 recipients. This one may reach 45", true},
		{40, "35", "It waits for the approval of a second person if your jobs of operator_notice reach more than 40 recipients within an hour", false},
		{45, "", "more than 45 recipients within an hour", false},
	} {
		h.exec(t, `UPDATE belfry.categories SET approval_above = $1 WHERE name = 'operator_notice'`, c.above)
		p := operator.post(t, "/enqueue", notice("max_recipients", c.most))
		require.Contains(t, p.text, c.says)
		p = operator.post(t, "/enqueue", p.agreed(""))
		require.Equal(t, c.waits, strings.Contains(p.text, "waits for approval"), "%+v: %s", c, p.text)
		h.exec(t, `DELETE FROM belfry.activity_counts`)
	}
	require.Contains(t, operator.post(t, "/enqueue", notice("needs_approval", "on")).text, "you ask for it")
	near := notice("everyone", "", "near", "37.5,127", "radius", "5km")
	require.Contains(t, h.as(t, "author").post(t, "/enqueue", near).text, "your role demands it for a radius")
}

// A test is an activity to one person, with the content of the form. The same button, pressed twice, sends one.
func TestCompose_ATestGoesToOnePerson(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	operator := h.as(t, "operator")
	p := operator.get(t, "/enqueue")
	form := notice("_test", "on", "_test_to", "w2", "title", "A <test>")
	form.Set("_test_key", p.hidden().Get("_test_key"))
	for range 2 {
		p = operator.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "A test is on its way to w2")
		require.Equal(t, "A <test>", p.fields().Get("title"), "the form stays")
	}
	var sent []string
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT array_agg(a.title || ' ' || c.external_id) FROM belfry.activities a JOIN belfry.channels c ON c.id = a.channel_id`).Scan(&sent))
	require.Equal(t, []string{"A <test> w2"}, sent)
	for _, c := range []struct{ to, says string }{{"", "is needed"}, {"nobody", "nobody"}} {
		form.Set("_test_to", c.to)
		form.Set("_test_key", "k"+c.to)
		p = operator.post(t, "/enqueue", form)
		require.GreaterOrEqual(t, p.status, 400)
		require.Contains(t, p.text, c.says)
		require.NotContains(t, p.text, "on its way")
	}
	require.Contains(t, h.everything(t), "0 jobs")
}

// The script asks for the count of an unfinished form: that is no review, and binds nothing.
func TestCompose_CountsAnUnfinishedForm(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 30, 12)
	author := h.as(t, "author")
	p := author.post(t, "/enqueue", url.Values{"_live": {"on"}, "category": {"operator_notice"}, "_to": {"platform"}, "platform": {"ios"}, "_agreed": {"on"}, "confirm_count": {"12"}})
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.part("Recipients"), "12 recipients By language ko 12 By platform ios 12")
	require.Empty(t, p.hidden().Get("_seen"))
	require.NotContains(t, p.text, "is needed")
	require.Contains(t, author.post(t, "/enqueue", url.Values{"_live": {"on"}}).part("Recipients"), "Choose a category and who gets it")
	p = author.post(t, "/enqueue", url.Values{"_live": {"on"}, "category": {"operator_notice"}, "_to": {"near"}, "near": {"37,127"}})
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.part("Recipients"), "needs", "what is missing is said there")
	require.Contains(t, h.everything(t), "0 jobs")
}

// A busy lane has a next free time, which is a choice; an idle one is free now.
func TestCompose_OffersTheNextFreeTimeOfTheLane(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.people(t, 3, 2)
	author := h.as(t, "author")
	require.NotContains(t, author.get(t, "/enqueue").text, "When the lane is free")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) SELECT 'inbox', 'operator_notice', 'Busy', 'night', now() + g * interval '10 minutes' FROM generate_series(0, 5) g`)
	require.NotContains(t, author.get(t, "/enqueue").text, "When the lane is free", "another lane is busy")
	p := author.get(t, "/enqueue?lane=night&title=Hello&category=operator_notice&everyone=on")
	require.Contains(t, p.text, "When the lane is free")
	form := p.agreed("")
	free, err := time.Parse(time.RFC3339, form.Get("_free"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), free, 11*time.Minute)
	form.Set("_when", "free")
	p = author.post(t, "/enqueue", form)
	require.Contains(t, p.text, "Schedule for fewer than 10 recipients")
	p = author.post(t, "/enqueue", p.agreed(""))
	require.Contains(t, p.text, "is scheduled")
	var at time.Time
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT schedule_at FROM belfry.jobs WHERE title = 'Hello' LIMIT 1`).Scan(&at))
	require.WithinDuration(t, free, at, time.Second)
}

package console_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

func TestConsole_WithoutASessionShowsTheWayIn(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	nobody := h.as(t, "")
	p := nobody.get(t, "/jobs?status=PENDING")
	require.Equal(t, http.StatusSeeOther, p.status)
	require.Equal(t, "/sign-in?return_to=%2Fjobs%3Fstatus%3DPENDING", p.header.Get("Location"))
	require.Equal(t, http.StatusUnauthorized, nobody.get(t, "/live").status)
	p = nobody.post(t, "/abort", url.Values{"id": {text.Int(id)}})
	require.Equal(t, http.StatusUnauthorized, p.status)
	require.Contains(t, p.text, "nothing was done")
	require.Contains(t, p.source, `href="/sign-in?return_to=%2Fabort"`, "the way in leads back")
	require.Contains(t, nobody.post(t, "/time-zone", url.Values{}).source, `href="/sign-in?return_to=%2F"`)
	require.NotContains(t, p.source, "Hello")
	require.Empty(t, h.actions(t, id, job.EventAborted))
	p = h.as(t, "no-role-at-all").get(t, "/jobs")
	require.Equal(t, http.StatusSeeOther, p.status, "a bad token is nobody's")
}

func TestConsole_SignsInAndOut(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "")
	made := h.as(t, "admin").post(t, "/new/users/add", url.Values{"name": {"ann"}, "role": {"operator"}, "password": {"correct horse battery"}})
	require.Equal(t, http.StatusOK, made.status, made.text)
	p := b.get(t, "/sign-in?return_to=%2Fjobs")
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.source, `name="return_to" value="/jobs"`)
	p = b.post(t, "/sign-in", url.Values{"name": {"ann"}, "password": {"wrong"}, "return_to": {"/jobs"}})
	require.Equal(t, http.StatusUnauthorized, p.status)
	require.Contains(t, p.source, `value="ann"`)
	require.Contains(t, p.source, `name="return_to" value="/jobs"`)
	for _, name := range []string{"a\x00", "a\xff", strings.Repeat("a", 4001)} {
		require.Equal(t, http.StatusUnprocessableEntity, b.post(t, "/sign-in", url.Values{"name": {name}, "password": {"wrong"}}).status)
	}
	p = b.post(t, "/sign-in", url.Values{"name": {"ann"}, "password": {"correct horse battery"}, "return_to": {"/jobs"}})
	require.Equal(t, http.StatusSeeOther, p.status)
	require.Equal(t, "/jobs", p.header.Get("Location"))
	require.Contains(t, p.header.Get("Set-Cookie"), "HttpOnly")
	p = b.get(t, "/jobs")
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.text, "ann")
	require.Contains(t, p.text, "operator")
	require.Equal(t, http.StatusSeeOther, b.get(t, "/sign-in").status, "who is signed in has nothing to do there")
	require.Equal(t, "/sign-in", b.post(t, "/sign-out", url.Values{}).header.Get("Location"))
	require.Equal(t, http.StatusSeeOther, b.get(t, "/jobs").status)
}

func TestConsole_ASignInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer") // who is signed in already is led on at once
	for _, to := range []string{"https://elsewhere.example/", "//elsewhere.example/", `/\elsewhere.example`, "javascript:alert(1)", "jobs", "/\n/elsewhere.example", ""} {
		require.Equal(t, "/", b.get(t, "/sign-in?return_to="+url.QueryEscape(to)).header.Get("Location"), to)
	}
	require.Equal(t, "/jobs/17?x=1", b.get(t, "/sign-in?return_to="+url.QueryEscape("/jobs/17?x=1")).header.Get("Location"))
}

func TestConsole_NobodySignsInWhereItIsReadOnly(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *api.Options) { c.ReadOnly, c.Sessions = true, nil })
	id := h.enqueue(t, "Hello")
	require.Contains(t, h.as(t, "").get(t, "/sign-in").text, "This belfry is read-only")
	refused := h.as(t, "").post(t, "/sign-in", url.Values{"name": {"ann"}, "password": {"correct horse battery"}})
	require.Equal(t, http.StatusForbidden, refused.status)
	require.Contains(t, refused.text, "signing in is disabled")
	require.Equal(t, http.StatusForbidden, h.as(t, "").post(t, "/sign-out", url.Values{}).status)
	require.Equal(t, http.StatusOK, h.as(t, "admin").get(t, "/jobs/"+text.Int(id)).status)
	p := h.as(t, "admin").post(t, "/abort", url.Values{"id": {text.Int(id)}})
	require.Equal(t, http.StatusForbidden, p.status)
	require.Contains(t, p.text, "read-only")
	require.Empty(t, h.actions(t, id, job.EventAborted))
}

// about are values for what operations are about, by parameter.
func aboutOf(o operation.Operation, id int64) url.Values {
	values := make(url.Values)
	for _, p := range o.Params() {
		if p.Place != operation.Argument && !p.Required {
			continue
		}
		switch p.Name {
		case "id", "job":
			values.Set(p.Name, text.Int(id))
		case "lane":
			values.Set(p.Name, "default")
		case "category":
			values.Set(p.Name, "operator_notice")
		}
	}
	return values
}

func TestLong_ConsoleEveryOperationHasAPage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	boss, viewer := h.as(t, "admin"), h.as(t, "viewer")
	before := h.everything(t)
	for _, o := range admin.Operations() {
		if o.Shared {
			continue // it is / and /live
		}
		path := addressOf(o, aboutOf(o, id))
		p := boss.get(t, path)
		require.Less(t, p.status, http.StatusInternalServerError, "%s: %s", path, p.text)
		require.NotContains(t, p.text, "there is no page at this address", path)
		for _, to := range p.links() {
			require.NotContains(t, to, "{", path+": an address with a part that was not filled in")
		}
		p = viewer.get(t, path)
		if o.Role > operation.Viewer {
			require.Equal(t, http.StatusForbidden, p.status, path)
			if o.Changes {
				require.Equal(t, http.StatusForbidden, viewer.post(t, path, url.Values{}).status, path)
			}
		}
	}
	require.Equal(t, before, h.everything(t), "a page that is looked at changes nothing")
	require.NotContains(t, h.log.String(), "panic")
}

// addressOf is the path of an operation's page with values.
func addressOf(o operation.Operation, values url.Values) string {
	path, query := api.PathOf(o), make(url.Values)
	if o.Changes && o.Verb() == "set" {
		path += "/set"
	}
	for name := range values {
		if place := "{" + name + "}"; strings.Contains(path, place) {
			path = strings.ReplaceAll(path, place, url.PathEscape(values.Get(name)))
		} else {
			query[name] = values[name]
		}
	}
	for _, p := range o.Params() {
		path = strings.ReplaceAll(path, "{"+p.Name+"}", "something")
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// everything is how many rows there are of what people do.
func (h *house) everything(t *testing.T) string {
	t.Helper()
	var counts string
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM belfry.jobs) || ' jobs, ' || (SELECT count(*) FROM belfry.job_events) || ' events of jobs, '
		|| (SELECT count(*) FROM belfry.events) || ' others, ' || (SELECT count(*) FROM belfry.messages) || ' messages'`).Scan(&counts))
	return counts
}

func TestConsole_StoredMarkupIsInert(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	evil := `"><script>alert(1)</script><img src=x onerror=alert(2)>` + "`belfry jobs show 1`<b style=color:red>"
	id := h.enqueue(t, evil)
	_, err := h.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: evil, Reason: evil})
	require.NoError(t, err)
	boss := h.as(t, "admin")
	for _, path := range []string{"/", "/jobs", "/jobs/" + text.Int(id), "/jobs/" + text.Int(id) + "?tab=timeline", "/jobs/" + text.Int(id) + "?tab=report", "/jobs/" + text.Int(id) + "/resume",
		"/jobs/" + text.Int(id) + "/correct", "/jobs/" + text.Int(id) + "/events", "/jobs?type=" + url.QueryEscape(evil), "/resume?id=" + text.Int(id) + "&reason=" + url.QueryEscape(evil), "/" + url.PathEscape(evil)} {
		p := boss.get(t, path)
		require.Contains(t, p.header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'", path)
		scripts := 0
		p.each(func(n *html.Node) {
			if n.Type != html.ElementNode {
				return
			}
			if n.Data == "script" {
				scripts++
				require.Nil(t, n.FirstChild, path+": a script in the page")
				require.True(t, strings.HasPrefix(attr(n, "src"), "/assets/"), path)
			}
			require.NotEqual(t, "b", n.Data, path)
			for _, a := range n.Attr {
				require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style", "%s: %s=%s", path, a.Key, a.Val)
				require.NotContains(t, strings.ToLower(a.Val), "javascript:", path)
			}
		})
		require.Equal(t, 1, scripts, path)
	}
	require.Contains(t, boss.get(t, "/jobs/"+text.Int(id)).text, "alert(1)", "it is shown as text")
}

func TestConsole_StopsAJobOnce(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	boss := h.as(t, "operator")
	require.Contains(t, boss.get(t, "/lanes").links(), "/lanes/default/pause")
	require.NotContains(t, h.as(t, "viewer").get(t, "/lanes").links(), "/lanes/default/pause")
	p := boss.get(t, "/jobs/"+text.Int(id))
	require.Contains(t, p.links(), "/jobs/"+text.Int(id)+"/stop")
	p = boss.get(t, "/abort?id="+text.Int(id))
	require.Contains(t, p.text, "Stop job "+text.Int(id))
	require.Contains(t, p.text, "would be stopped: 1 job")
	form := p.hidden()
	require.Empty(t, form.Get("plan"), "a stop is not bound to its plan")
	require.NotEmpty(t, form.Get("_key"))
	form.Set("id", text.Int(id))
	form.Set("reason", "wrong text")
	for range 2 { // a second click
		p = boss.post(t, "/abort", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "Stopped")
		require.Contains(t, p.text, "done at")
	}
	require.Equal(t, []string{"the-operator"}, h.actions(t, id, job.EventAborted))
	p = boss.get(t, "/jobs/"+text.Int(id))
	require.NotContains(t, p.links(), "/jobs/"+text.Int(id)+"/stop", "there is nothing to stop any more")
	require.Contains(t, p.text, "wrong text")
	require.NotContains(t, h.as(t, "viewer").get(t, "/jobs/"+text.Int(id)).text, "Resume…", "who may not is shown no act")
}

func TestConsole_AStalePageDoesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	boss := h.as(t, "operator")
	correct := ""
	for _, to := range boss.get(t, "/jobs/"+text.Int(id)+"?tab=settings").links() {
		if strings.Contains(to, "/set?") {
			correct = to
		}
	}
	require.NotEmpty(t, correct)
	form := boss.get(t, correct).hidden()
	require.NotEmpty(t, form.Get("if_version"))
	_, err := h.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann", Reason: "first"})
	require.NoError(t, err)
	form.Set("title", "Other")
	p := boss.post(t, "/jobs/"+text.Int(id)+"/set", form)
	require.Equal(t, http.StatusPreconditionFailed, p.status)
	require.Contains(t, p.text, "was changed since: aborted by ann")
	require.Contains(t, p.source, `value="Other"`, "what was typed is not lost")
	got, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "Hello", got.Title)
}

func TestConsole_AnotherCountThanWasSeenIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	boss := h.as(t, "operator")
	h.exec(t, `SELECT belfry.abort(1, 'ann')`)
	form := boss.get(t, "/resume?id="+text.Int(id)).hidden()
	require.NotEmpty(t, form.Get("plan"), "it is bound to its plan")
	h.exec(t, `SELECT belfry.resume(1, 'ann')`)
	form.Set("id", text.Int(id))
	p := boss.post(t, "/resume", form)
	require.Equal(t, http.StatusConflict, p.status)
	require.Contains(t, p.text, "nothing was changed")
	require.Equal(t, "PENDING", h.text(t, `SELECT status FROM belfry.jobs`))
}

// An enqueuer changes the number of jobs all the time. A group stops nevertheless, with the jobs that came after the
// form was rendered.
func TestConsole_AGroupStopsWhateverItsNumber(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	const group = "00000000-0000-4000-8000-000000000001"
	more := func(n int) {
		h.exec(t, `INSERT INTO belfry.jobs (type, category, title, group_id) SELECT 'inbox', 'operator_notice', 'x', $1 FROM generate_series(1, $2::integer)`, group, n)
	}
	more(3)
	boss := h.as(t, "operator")
	p := boss.get(t, "/abort?group="+group)
	require.Contains(t, p.text, "would be stopped: 3 jobs")
	require.Contains(t, p.text, "the button stops what still runs or waits then, whatever the number is")
	form := p.hidden()
	form.Set("group", group)
	more(2)
	h.exec(t, `UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id = 1`)
	p = boss.post(t, "/abort", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "4 of 5 jobs aborted, 1 over already")
	require.Equal(t, "4", h.text(t, `SELECT count(*)::text FROM belfry.jobs WHERE status = 'ABORTED'`))
	form.Set("_key", "another")
	p = boss.post(t, "/abort", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Over before the stop arrived; nothing was left to stop.")
}

func TestConsole_ToManyTheirNumberIsTyped(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	_, err := h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) SELECT 'c' || n, 'web' FROM generate_series(1, 1200) n; ANALYZE belfry.channels`)
	require.NoError(t, err)
	boss := h.as(t, "author")
	form := url.Values{"type": {"inbox"}, "category": {"operator_notice"}, "title": {"Hello"}, "everyone": {"on"}, "at": {"2026-01-01T00:00:00Z"}, "_key": {"k-1"}}
	p := boss.post(t, "/enqueue", form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Type 1200 to agree")
	require.Contains(t, h.everything(t), "0 jobs")
	form.Set("_agreed", "on")
	form.Set("_seen", p.fields().Get("_seen"))
	form.Set("_count", "12")
	require.Contains(t, boss.post(t, "/enqueue", form).text, "Type 1200 to agree")
	require.Contains(t, h.everything(t), "0 jobs")
	form.Set("_count", "1,200")
	for range 2 {
		p = boss.post(t, "/enqueue", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.text, "Open job")
	}
	require.Contains(t, h.everything(t), "1 jobs", "a form that is sent twice is done once")
}

func TestConsole_FaultsStandAtTheirFields(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	boss := h.as(t, "admin")
	p := boss.get(t, "/dead-letters?limit=0")
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.source, `id="fault-limit"`)
	require.Contains(t, p.text, "allowed values: whole numbers from 1 to 1000")
	p = boss.get(t, "/jobs?status=NONE")
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "allowed values: PENDING, RUNNING")
	p = boss.post(t, "/new/tokens/create", url.Values{"name": {"x y"}, "role": {"king"}})
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.source, `id="fault-role"`)
	require.Equal(t, http.StatusNotFound, boss.get(t, "/jobs/99").status)
	require.Equal(t, http.StatusNotFound, boss.get(t, "/jobs/none").status)
	p = boss.get(t, "/jobs/none/events")
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.source, `id="fault-id"`, "also where the address says it")
}

func TestConsole_IsServedBelowAPath(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *api.Options) { c.PublicURL = "http://127.0.0.1/a/b" })
	id := h.enqueue(t, "Hello")
	b := h.as(t, "operator")
	require.Equal(t, "/a/b/sign-in?return_to=%2Fa%2Fb%2Fjobs", h.as(t, "").get(t, "/a/b/jobs").header.Get("Location"))
	for _, path := range []string{"/a/b/", "/a/b/jobs", "/a/b/jobs/" + text.Int(id), "/a/b/abort?id=" + text.Int(id), "/a/b/lanes"} {
		p := b.get(t, path)
		require.Equal(t, http.StatusOK, p.status, path)
		for _, to := range p.links() {
			require.True(t, strings.HasPrefix(to, "/a/b/") || to == "#main", "%s: %s", path, to)
		}
	}
	require.Equal(t, "/a/b/jobs", b.get(t, "/a/b/sign-in?return_to=%2Fa%2Fb%2Fjobs").header.Get("Location"))
	require.Equal(t, "/a/b/", b.get(t, "/a/b/sign-in?return_to=%2Fjobs").header.Get("Location"), "another path is somebody else's")
}

func TestConsole_AssetsAreKeptByTheirVersion(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "")
	for _, to := range b.get(t, "/sign-in").links() {
		if !strings.HasPrefix(to, "/assets/") {
			continue
		}
		p := b.get(t, to)
		require.Equal(t, http.StatusOK, p.status, to)
		require.Contains(t, p.header.Get("Cache-Control"), "immutable", to)
		old, _, _ := strings.Cut(to, "?")
		require.Equal(t, "no-store", b.get(t, old+"?v=old").header.Get("Cache-Control"))
	}
	require.Equal(t, http.StatusNotFound, b.get(t, "/assets/none.js").status)
	require.Equal(t, http.StatusNotFound, b.get(t, "/assets/..%2fdoc.go").status)
}

func TestConsole_AnotherSitesFormIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/abort", strings.NewReader("id="+text.Int(id)))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer admin")
	req.Header.Set("Origin", "https://elsewhere.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := h.as(t, "").client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	require.Empty(t, h.actions(t, id, job.EventAborted))
}

func TestLong_ConsoleLiveSendsWhatChanges(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "Hello")
	_, err := h.db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/live", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer viewer")
	req.Header.Set("Accept", "text/event-stream")
	res, err := h.as(t, "").client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	lines := bufio.NewScanner(res.Body)
	cells := make(map[string]string)
	until := func(name, text string) {
		for cells[name] != text {
			require.True(t, lines.Scan(), "the stream ended before %s was %s", name, text)
			data, is := strings.CutPrefix(lines.Text(), "data: ")
			if !is {
				continue
			}
			var event struct {
				Cells map[string]string `json:"cells"`
			}
			require.NoError(t, json.Unmarshal([]byte(data), &event))
			for name, text := range event.Cells {
				cells[name] = text
			}
		}
	}
	until(text.Int(id)+".status", "Running")
	require.Equal(t, "go", cells[text.Int(id)+".tone"])
	_, err = h.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	until(text.Int(id)+".status", "Stopped")
	require.Equal(t, "stop", cells[text.Int(id)+".tone"])
}

func TestLong_ConsoleAPageThatIsLeftOpenIsNoUse(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "")
	require.Equal(t, http.StatusOK, h.as(t, "admin").post(t, "/new/users/add", url.Values{"name": {"ann"}, "role": {"operator"}, "password": {"correct horse battery"}}).status)
	require.Equal(t, http.StatusSeeOther, b.post(t, "/sign-in", url.Values{"name": {"ann"}, "password": {"correct horse battery"}}).status)
	leave := func(ago string) {
		_, err := h.db.Pool.Exec(t.Context(), `UPDATE belfry.sessions SET used_at = now() - $1::interval`, ago)
		require.NoError(t, err)
	}
	unused := func() (unused bool) {
		require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT used_at < now() - interval '9 minutes' FROM belfry.sessions`).Scan(&unused))
		return unused
	}
	leave("10 minutes")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/live", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	res, err := b.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewScanner(res.Body)
	for range 3 { // it has asked again for each act
		_, err := h.db.Pool.Exec(t.Context(), `SELECT belfry.pause_lane('default'), belfry.resume_lane('default')`)
		require.NoError(t, err)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		require.NoError(t, lines.Err())
	}
	require.True(t, unused(), "the stream used the session")
	leave("61 minutes")
	for lines.Scan() {
		require.NoError(t, lines.Err())
	}
	require.Equal(t, http.StatusSeeOther, b.get(t, "/jobs").status)
	leave("10 minutes")
	require.Equal(t, http.StatusOK, b.get(t, "/jobs").status)
	require.False(t, unused(), "a page that is opened is a use")
}

// Which belfry it is stands on each page, also before anybody has signed in.
func TestConsole_SaysWhichOneItIs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, p := range []page{h.as(t, "").get(t, "/sign-in"), h.as(t, "viewer").get(t, "/"), h.as(t, "viewer").get(t, "/jobs"), h.as(t, "viewer").get(t, "/nowhere")} {
		require.Contains(t, p.source, `<aside class="environment" aria-label="Environment" data-colour="red">production &lt;1&gt;</aside>`)
		require.Contains(t, p.source, "· production &lt;1&gt; · belfry</title>")
	}
	nameless := open(t, func(c *api.Options) {
		c.Pages = func(served *api.Handler, at string) http.Handler {
			return console.New(served, at, admin.Operations(), api.Environment{})
		}
	})
	p := nameless.as(t, "viewer").get(t, "/")
	require.NotContains(t, p.source, "environment")
	require.Contains(t, p.source, "<title>Overview · belfry</title>")
}

// What is typed into the box leads to what it names.
func TestConsole_JumpsToWhatIsMeant(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "operator")
	_, err := h.jobs.PauseLane(t.Context(), "night", job.Act{Actor: "ann"})
	require.NoError(t, err)
	_, err = h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.schedules (name, source, every, template) VALUES ('digest', 'database', '1 hour', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`)
	require.NoError(t, err)
	_, err = h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('user 4711', 'ios')`)
	require.NoError(t, err)
	for q, to := range map[string]string{
		"user 4711": "/channels/show?external_id=user+4711", "17": "/jobs/17", " job 17 ": "/jobs/17", "#17": "/jobs/17", "digest": "/schedules/digest", "night": "/jobs?lane=night", "operator_notice": "/jobs?category=operator_notice",
		"3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74": "/jobs?group=3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74",
	} {
		p := b.get(t, "/jump?q="+url.QueryEscape(q))
		require.Equal(t, http.StatusSeeOther, p.status, q)
		require.Equal(t, to, p.header.Get("Location"), q)
	}
	h.enqueue(t, "Five walks for the weekend")
	require.Equal(t, "/jobs?text=five+walks", b.get(t, "/jump?q=five+walks").header.Get("Location"))
	for _, q := range []string{"", "<b>nobody</b>", "0", "-1", "99999999999999999999"} {
		p := b.get(t, "/jump?q="+url.QueryEscape(q))
		require.Equal(t, http.StatusNotFound, p.status, q)
		require.Contains(t, p.text, "no match for")
		require.NotContains(t, p.source, "<b>nobody")
	}
	require.Equal(t, http.StatusSeeOther, h.as(t, "").get(t, "/jump?q=17").status)
	require.Equal(t, "/sign-in?return_to=%2Fjump%3Fq%3D17", h.as(t, "").get(t, "/jump?q=17").header.Get("Location"))
}

// Who may not halt is not shown the way to.
func TestConsole_ShowsTheWayToHaltToWhoMay(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	require.Contains(t, h.as(t, "operator").get(t, "/jobs").links(), "/halt")
	require.NotContains(t, h.as(t, "viewer").get(t, "/jobs").links(), "/halt")
}

package inbox_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/inbox"
)

// list is a page of a channel.
func (b *bundle) list(channel int64, query string) (titles []string, ids []int64, next int64) {
	b.t.Helper()
	a := b.call(b.token(channel), "GET", "/v1/inbox"+query, "")
	require.Equal(b.t, http.StatusOK, a.status, a.text)
	body := into[struct {
		Notifications []inbox.Notification
		Next          int64
	}](b.t, a)
	require.NotNil(b.t, body.Notifications)
	for _, n := range body.Notifications {
		titles, ids = append(titles, n.Title), append(ids, n.ID)
	}
	return titles, ids, body.Next
}

// counts are the counts of unread and of unseen notifications.
func (b *bundle) counts(channel int64) inbox.Counts {
	b.t.Helper()
	return into[inbox.Counts](b.t, b.call(b.token(channel), "GET", "/v1/inbox/count", ""))
}

// done makes a change and requires 204.
func (b *bundle) done(path, body string) {
	b.t.Helper()
	a := b.call(b.token(2), "POST", path, body)
	require.Equal(b.t, http.StatusNoContent, a.status, a.text)
	require.Empty(b.t, a.text)
}

func TestHandler_ListsCountsAndMarks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	titles, ids, next := b.list(2, "")
	require.Equal(t, []string{"second", "first"}, titles)
	require.Zero(t, next)
	titles, _, next = b.list(2, "?limit=1")
	require.Equal(t, []string{"second"}, titles)
	require.Equal(t, ids[0], next)
	titles, _, next = b.list(2, fmt.Sprint("?limit=1&before=", next))
	require.Equal(t, []string{"first"}, titles)
	titles, _, _ = b.list(2, fmt.Sprint("?before=", next))
	require.Empty(t, titles)
	titles, _, _ = b.list(2, "?locale=ko-KR")
	require.Equal(t, []string{"제목", "제목"}, titles)

	require.Equal(t, inbox.Counts{Unread: 2, Unseen: 2}, b.counts(2))
	b.done("/v1/inbox/seen", "")
	require.Equal(t, inbox.Counts{Unread: 2}, b.counts(2))
	b.done("/v1/inbox/read", fmt.Sprintf(`{"ids": [%d]}`, ids[0]))
	require.Equal(t, inbox.Counts{Unread: 1}, b.counts(2))
	b.done("/v1/inbox/read", fmt.Sprintf(`{"ids": [%d, 999999], "read": false}`, ids[0]))
	require.Equal(t, inbox.Counts{Unread: 2}, b.counts(2))
	b.done("/v1/inbox/read", `{"all": true}`)
	require.Equal(t, inbox.Counts{}, b.counts(2))
	b.done("/v1/inbox/archive", fmt.Sprintf(`{"ids": [%d]}`, ids[1]))
	titles, _, _ = b.list(2, "")
	require.Equal(t, []string{"second"}, titles)
	titles, _, _ = b.list(2, "?archived=true")
	require.Equal(t, []string{"first"}, titles)
	b.done("/v1/inbox/archive", fmt.Sprintf(`{"ids": [%d], "archived": false}`, ids[1]))
	titles, _, _ = b.list(2, "")
	require.Len(t, titles, 2)

	// Ids of another channel have no effect there.
	_, others, _ := b.list(3, "")
	b.done("/v1/inbox/read", fmt.Sprintf(`{"ids": [%d]}`, others[0]))
	b.done("/v1/inbox/archive", fmt.Sprintf(`{"ids": [%d]}`, others[0]))
	require.Equal(t, inbox.Counts{Unread: 1, Unseen: 1}, b.counts(3))
	require.Empty(t, b.log.String())
}

func TestHandler_RefusesBadRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/inbox?limit=0", "", 422, "query.limit"},
		{"GET", "/v1/inbox?limit=101", "", 422, "query.limit"},
		{"GET", "/v1/inbox?before=x", "", 422, "query.before"},
		{"GET", "/v1/inbox?channel_id=3", "", 422, "query.channel_id"},
		{"GET", "/v1/inbox?locale=" + strings.Repeat("k", 36), "", 422, "query.locale"},
		{"GET", "/v1/inbox?locale=%00", "", 422, "not a valid text"},
		{"POST", "/v1/inbox/read", "", 400, "body is required"},
		{"POST", "/v1/inbox/read", "{", 400, ""},
		{"POST", "/v1/inbox/read", `{}`, 422, "allowed bodies"},
		{"POST", "/v1/inbox/read", `{"ids": []}`, 422, "body.ids"},
		{"POST", "/v1/inbox/read", `{"ids": [1], "all": true}`, 422, "allowed bodies"},
		{"POST", "/v1/inbox/read", `{"all": true, "read": false}`, 422, "allowed bodies"},
		{"POST", "/v1/inbox/read", `{"ids": [1], "channel_id": 3}`, 422, "channel_id"},
		{"POST", "/v1/inbox/read", `{"ids": [null]}`, 422, "body.ids[0]"},
		{"POST", "/v1/inbox/read", `{"ids": [1` + strings.Repeat(",1", 100) + `]}`, 422, "body.ids"},
		{"POST", "/v1/inbox/read", `{"ids": [1], "x": "` + strings.Repeat("x", 32<<10) + `"}`, 413, ""},
		{"POST", "/v1/inbox/archive", `{"archived": true}`, 422, "ids"},
		{"PUT", "/v1/inbox/preferences", `{"preferences": []}`, 422, "body.preferences"},
		{"PUT", "/v1/inbox/preferences", `{"preferences": [{"category": "*", "medium": "*"}]}`, 422, "opted_out"},
		{"PUT", "/v1/inbox/preferences", `{"preferences": [{"category": "nothing", "medium": "push", "opted_out": true}]}`, 422, "unknown"},
		{"DELETE", "/v1/inbox", "", 405, "allowed methods: GET"},
		{"GET", "/v1/inbox/read", "", 405, "allowed methods: POST"},
		{"GET", "/v1/inbox/", "", 404, "nothing at this path"},
		{"GET", "/api/v1/jobs", "", 404, "nothing at this path"},
		{"GET", "/", "", 404, "nothing at this path"},
	} {
		a := b.call(b.token(2), c.method, c.path, c.body)
		require.Equal(t, c.status, a.status, "%s %s %s: %s", c.method, c.path, c.body, a.text)
		a.detail(t)
		require.Contains(t, a.text, c.want, "%s %s %s", c.method, c.path, c.body)
	}
	a := b.call(b.token(2), "POST", "/v1/inbox/read", `all=true`, "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusUnsupportedMediaType, a.status, a.text)
	require.Equal(t, inbox.Counts{Unread: 2, Unseen: 2}, b.counts(2), "nothing has changed")
	require.Empty(t, b.log.String())
}

// The response to a bad request is small, and so is the memory for it: it repeats no values.
func TestHandler_AnswersBadRequestsBriefly(t *testing.T) { //nolint:paralleltest // it measures memory
	b := setup(t)
	var parameters strings.Builder
	for i := range 200 {
		fmt.Fprintf(&parameters, "&a%x", i)
	}
	unknown := func(n int) string {
		var keys strings.Builder
		for i := range n {
			fmt.Fprintf(&keys, `"%x":0,`, i)
		}
		return `{` + keys.String() + `"ids": [1]}`
	}
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"4,000 keys", "POST", "/v1/inbox/read", unknown(4000), 413},
		{"1,900 keys", "POST", "/v1/inbox/read", unknown(1900), 400},
		{"400 keys", "POST", "/v1/inbox/read", unknown(400), 422},
		{"long key", "POST", "/v1/inbox/read", `{"` + strings.Repeat("k", 15_000) + `": 0, "ids": [1]}`, 422},
		{"preferences", "PUT", "/v1/inbox/preferences", `{"preferences": [{}` + strings.Repeat(",{}", 5000) + `]}`, 400},
		{"100 preferences", "PUT", "/v1/inbox/preferences", `{"preferences": [{}` + strings.Repeat(",{}", 99) + `]}`, 422},
		{"texts as ids", "POST", "/v1/inbox/archive", `{"ids": ["` + strings.Repeat("x", 100) + `"` + strings.Repeat(`,"`+strings.Repeat("x", 100)+`"`, 99) + `]}`, 422},
		{"no object", "POST", "/v1/inbox/archive", `"` + strings.Repeat("x", 15_000) + `"`, 422},
		{"no JSON", "POST", "/v1/inbox/archive", strings.Repeat("x", 15_000), 400},
		{"unknown parameters", "GET", "/v1/inbox?a0" + strings.Repeat("&a1", 9000), "", 414},
		{"200 unknown parameters", "GET", "/v1/inbox?" + parameters.String(), "", 422},
		{"long value", "GET", "/v1/inbox?before=" + strings.Repeat("x", 1000), "", 422},
	} {
		req := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		req.Header.Set("Authorization", "Bearer "+b.token(2))
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.handler.ServeHTTP(w, req)
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 10
		t.Logf("%s: %d bytes, %d kB allocated", c.name, w.Body.Len(), allocated)
		require.Less(t, allocated, uint64(256), c.name)
		require.Equal(t, c.status, w.Code, "%s: %.1000s", c.name, w.Body)
		require.Less(t, w.Body.Len(), 4<<10, c.name)
		require.NotContains(t, w.Body.String(), `"value"`, c.name)
		require.NotContains(t, w.Body.String(), strings.Repeat("x", 100), c.name)
	}
}

// The largest requests that make sense are within the limits.
func TestHandler_TakesAHundredIDsAndPreferences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.done("/v1/inbox/read", `{"ids": [`+strings.Repeat(strconv.FormatInt(math.MaxInt64, 10)+", ", 99)+`1], "read": false}`)
	one := fmt.Sprintf(`{"category": "%s", "medium": "%s", "opted_out": false}`, strings.Repeat("c", 63), strings.Repeat("m", 31))
	a := b.call(b.token(2), "PUT", "/v1/inbox/preferences", `{"preferences": [`+strings.Repeat(one+", ", 99)+one+`]}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
}

// Markup in titles, data and requests reaches no browser as HTML.
func TestHandler_MarkupIsInert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const markup = "<script>alert(1)</script>"
	b.notify(markup, 2)
	for _, a := range []answer{
		b.call(b.token(2), "GET", "/v1/inbox", ""),
		b.call(b.token(2), "GET", "/v1/inbox?limit="+"%3Cscript%3E", ""),
		b.call(b.token(2), "POST", "/v1/inbox/read", `{"`+markup+`": 1}`),
		b.call(markup, "GET", "/v1/inbox", ""),
		b.call(b.token(2), "GET", "/v1/"+"%3Cscript%3E", ""),
		b.call("", "GET", "/v1/openapi.json", ""),
	} {
		require.Regexp(t, `^application/((problem|openapi)\+)?json$`, a.header.Get("Content-Type"))
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		require.Equal(t, "default-src 'none'; frame-ancestors 'none'", a.header.Get("Content-Security-Policy"))
		require.NotContains(t, a.text, "<")
	}
	titles, _, _ := b.list(2, "")
	require.Equal(t, markup, titles[0], "and a client gets the text")
}

func TestHandler_Preferences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type key struct{ category, medium string }
	decode := func(a answer) (out, silent []key) {
		t.Helper()
		require.Equal(t, http.StatusOK, a.status, a.text)
		all := into[struct{ Preferences []inbox.Effective }](t, a).Preferences
		require.Len(t, all, outboxtest.One[int](t, b.Database, `SELECT (1 + (SELECT count(*) FROM belfry.categories)) * (1 + (SELECT count(*) FROM belfry.media))`))
		for _, p := range all {
			if p.OptedOut {
				out = append(out, key{p.Category, p.Medium})
			}
			if !p.Receives {
				silent = append(silent, key{p.Category, p.Medium})
			}
		}
		return out, silent
	}
	put := func(category, medium string, out bool) ([]key, []key) {
		t.Helper()
		return decode(b.call(b.token(2), "PUT", "/v1/inbox/preferences",
			fmt.Sprintf(`{"preferences": [{"category": %q, "medium": %q, "opted_out": %t}]}`, category, medium, out)))
	}
	out, silent := decode(b.call(b.token(2), "GET", "/v1/inbox/preferences", ""))
	require.Empty(t, out)
	require.Empty(t, silent)
	out, silent = put("popular_content", "push", true)
	require.Equal(t, []key{{"popular_content", "push"}}, out)
	require.Equal(t, out, silent)
	require.Equal(t, "by the recipient, in the notification centre", outboxtest.One[string](t, b.Database, `SELECT reason FROM belfry.opt_outs WHERE channel_id = 2`))
	out, silent = put("*", "email", true)
	require.Equal(t, []key{{"*", "email"}, {"popular_content", "push"}}, out)
	require.Contains(t, silent, key{"operator_notice", "email"})
	require.NotContains(t, silent, key{"operator_notice", "push"})
	out, silent = put("operator_notice", "email", false)
	require.Len(t, out, 2, "the wider opt-out stays")
	require.Contains(t, silent, key{"operator_notice", "email"})

	// All changes of a request or none.
	a := b.call(b.token(2), "PUT", "/v1/inbox/preferences", `{"preferences": [{"category": "*", "medium": "email", "opted_out": false},
		{"category": "*", "medium": "pigeon", "opted_out": true}]}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	out, _ = decode(b.call(b.token(2), "GET", "/v1/inbox/preferences", ""))
	require.Len(t, out, 2)
	out, silent = decode(b.call(b.token(2), "PUT", "/v1/inbox/preferences", `{"preferences": [{"category": "*", "medium": "email", "opted_out": false},
		{"category": "popular_content", "medium": "push", "opted_out": false}]}`))
	require.Empty(t, out)
	require.Empty(t, silent)

	// An opt-out of every medium leaves later notifications of the category out.
	put("operator_notice", "*", true)
	b.notify("third", 2)
	titles, _, _ := b.list(2, "")
	require.Equal(t, []string{"second", "first"}, titles)
	out, _ = decode(b.call(b.token(3), "GET", "/v1/inbox/preferences", ""))
	require.Empty(t, out, "another reader's")
	require.Empty(t, b.log.String())
}

func TestHandler_CORS(t *testing.T) {
	t.Parallel()
	b := setup(t)
	preflight := func(origin string) answer {
		return b.call("", "OPTIONS", "/v1/inbox/read", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type")
	}
	a := preflight(page)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "GET, POST, PUT", a.header.Get("Access-Control-Allow-Methods"))
	require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Equal(t, []string{"Origin"}, a.header.Values("Vary"))
	a = b.call(b.token(2), "GET", "/v1/inbox", "", "Origin", page)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	require.Empty(t, a.header.Get("Access-Control-Allow-Credentials"))
	require.Equal(t, page, b.call("x", "GET", "/v1/inbox", "", "Origin", page).header.Get("Access-Control-Allow-Origin"), "a page can read the 401")

	for _, origin := range []string{"https://evil.example.com", page + ".evil.com", "https://www.example.com:8443", "http://www.example.com", "null", "*"} {
		a := preflight(origin)
		require.Equal(t, http.StatusForbidden, a.status, origin)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), origin)
		a = b.call(b.token(2), "GET", "/v1/inbox", "", "Origin", origin)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), origin)
		require.Equal(t, []string{"Origin"}, a.header.Values("Vary"), origin)
	}
	require.Equal(t, http.StatusMethodNotAllowed, b.call("", "OPTIONS", "/v1/inbox", "").status, "no preflight")
}

// Invariant 5.
func TestHandler_LimitsTheRateOfEachReader(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *inbox.Config) { c.RatePerSecond, c.Burst = 0.1, 3 })
	for range 3 {
		require.Equal(t, http.StatusOK, b.call(b.token(2), "GET", "/v1/inbox/count", "").status)
	}
	a := b.call(b.token(2), "GET", "/v1/inbox", "", "Origin", page)
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, "too many requests of this reader", a.detail(t))
	require.Equal(t, "Retry-After", a.header.Get("Access-Control-Expose-Headers"))
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.LessOrEqual(t, seconds, 10)
	require.Positive(t, seconds)
	require.Equal(t, http.StatusOK, b.call(b.token(3), "GET", "/v1/inbox", "").status, "another reader")
}

// A database that does not answer is 503 within the deadline, also for requests that wait for a connection.
func TestHandler_DatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.notifications IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	var calls sync.WaitGroup
	answers := make([]answer, 9)
	began := time.Now()
	for i := range answers {
		token := b.token(1 + int64(i)%3)
		calls.Go(func() { answers[i] = b.call(token, "GET", "/v1/inbox/count", "") })
	}
	calls.Wait()
	require.Less(t, time.Since(began), time.Minute)
	require.NoError(t, tx.Rollback(t.Context()))
	require.False(t, slices.ContainsFunc(answers, func(a answer) bool { return a.status != http.StatusServiceUnavailable }))
	require.Equal(t, "5", answers[0].header.Get("Retry-After"))
	require.Equal(t, inbox.Counts{Unread: 2, Unseen: 2}, b.counts(2))
}

// Marks that wait for locks use half of the pool, and one connection of each reader.
func TestHandler_MarksLeaveConnectionsToReads(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *inbox.Config) { c.MaxConnections = 2 })
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.notifications FOR UPDATE`)
	require.NoError(t, err)
	_, ids, _ := b.list(2, "")
	var calls sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		token, body := b.token(2+int64(i)%2), fmt.Sprintf(`{"ids": [%d, 1, 2, 3]}`, ids[i%2])
		calls.Go(func() {
			a := b.call(token, "POST", "/v1/inbox/read", body)
			statuses[i] = a.status
			if a.status == http.StatusTooManyRequests {
				require.Equal(t, "1", a.header.Get("Retry-After"))
			}
		})
	}
	waiting := func() int {
		return outboxtest.One[int](t, b.Database, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	require.Eventually(t, func() bool { return waiting() > 0 }, 20*time.Second, time.Millisecond)
	for range 10 {
		require.LessOrEqual(t, waiting(), 1)
		require.Equal(t, inbox.Counts{}, b.counts(1))
	}
	calls.Wait()
	require.NoError(t, tx.Rollback(t.Context()))
	for _, status := range statuses {
		require.Contains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, status)
	}
}

// A request that its client abandons is no line of the log.
func TestHandler_AbandonedRequestsAreNotLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.notifications IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	req := httptest.NewRequestWithContext(ctx, "GET", "/v1/inbox", nil)
	req.Header.Set("Authorization", "Bearer "+b.token(2))
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, req)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, b.log.String())
}

// A page has about a megabyte, whatever its notifications contain, and next continues it.
func TestHandler_PagesHaveABoundOfBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `SELECT belfry.notify(1, 'operator_notice', 'n', repeat('<', 10000)) FROM generate_series(1, 100)`)
	most, pages, all := 0, 0, map[int64]bool{}
	for next := int64(0); pages == 0 || next != 0; pages++ {
		query := "?limit=100"
		if next != 0 {
			query += fmt.Sprint("&before=", next)
		}
		a := b.call(b.token(1), "GET", "/v1/inbox"+query, "")
		most = max(most, len(a.text))
		body := into[struct {
			Notifications []inbox.Notification
			Next          int64
		}](t, a)
		for _, n := range body.Notifications {
			all[n.ID] = true
		}
		next = body.Next
	}
	t.Log(most, "bytes,", pages, "pages")
	require.Len(t, all, 100)
	require.LessOrEqual(t, most, 1<<20)
	require.LessOrEqual(t, pages, 7)
}

func TestHandler_ServesItsDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.call("", "GET", "/v1/openapi.json", "")
	require.Equal(t, http.StatusOK, a.status)
	document := into[struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}](t, a)
	var operations []string
	for path, methods := range document.Paths {
		for method, o := range methods {
			operations = append(operations, method+" "+path)
			require.Contains(t, o.Responses, "401")
			require.Contains(t, o.Responses, "429")
		}
	}
	slices.Sort(operations)
	require.Equal(t, []string{"get /v1/inbox", "get /v1/inbox/count", "get /v1/inbox/preferences", "post /v1/inbox/archive", "post /v1/inbox/read",
		"post /v1/inbox/seen", "put /v1/inbox/preferences"}, operations)
}

package app_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/app"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/inbox"
	"github.com/belfryhq/belfry/outbox/inbox/live"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// site is the application with its notification centre.
type site struct {
	*testing.T

	db  *dbtest.DB
	url string
}

func start(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, db: dbtest.New(t)}
	key := inbox.Key{ID: "k", Algorithm: "HS256", Key: "0123456789abcdef0123456789abcdef"}
	pages := httptest.NewUnstartedServer(nil)
	c := inbox.DefaultConfig()
	c.Audience, c.Keys, c.Origins = "app", []inbox.Key{key}, []string{"http://" + pages.Listener.Addr().String()}
	h, err := inbox.New(c, inbox.NewStore(s.db.Pool), zerolog.Nop())
	require.NoError(t, err)
	streams := live.New(s.db.Pool, c.MaxStreams, h, job.NewOutage(zerolog.Nop()), zerolog.Nop())
	h.Handle("GET /v1/stream", http.HandlerFunc(streams.ServeEvents))
	h.OnMark(streams.Marked)
	centre := httptest.NewServer(h)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- streams.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
		centre.Close()
	})
	application, err := app.Handler(t.Context(), s.db.Pool, app.Config{URL: centre.URL, Audience: c.Audience, Key: key})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", application)
	documented(t, mux, application, centre.URL)
	pages.Config.Handler = mux
	pages.Start()
	t.Cleanup(pages.Close)
	s.url = pages.URL
	return s
}

// documented adds the pages of docs/notification-centre.md, for Ben: /docs/html has the bell, and /docs/js the script
// with the functions that it takes from the application.
func documented(t *testing.T, mux *http.ServeMux, application http.Handler, centre string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/notification-centre.md")
	require.NoError(t, err)
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(text), "\n```"+language+"\n")
		block, _, _ := strings.Cut(rest, "\n```")
		require.Equal(t, 1, strings.Count(string(text), "\n```"+language+"\n"))
		require.Contains(t, block, "https://inbox.example.com")
		return strings.ReplaceAll(block, "https://inbox.example.com", centre)
	}
	serve := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!doctype html>"+body) })
	}
	serve("/docs/html", block("html"))
	serve("/docs/js", `<script>
		const got = { shown: [], lists: 0, tokens: 0 };
		const show = (n) => got.shown.push(n.title);
		const fetchList = () => got.lists++;
		const newToken = () => { got.tokens++; return fetch("/inbox-token").then((r) => r.text()); };
		`+block("js")+`
		open("expired");
		</script>`)
	mux.HandleFunc("GET /inbox-token", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/ben/token"
		application.ServeHTTP(w, r)
	})
}

func (s *site) post(path string) {
	s.Helper()
	r, err := http.Post(s.url+path, "", nil)
	require.NoError(s, err)
	require.NoError(s, r.Body.Close())
	require.Equal(s, http.StatusNoContent, r.StatusCode)
}

// Only people have tokens, and only pages of this machine get them.
func TestApp_GivesTokensOfItsPeopleToThisMachine(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		path, host string
		want       int
	}{
		{"/ann/token", "", 200}, {"/ann/token", "localhost:8480", 200}, {"/ann/token", "[::1]:8480", 200},
		{"/x/token", "", 404}, {"/x", "", 404}, {"/token", "", 404},
		{"/ann/token", "rebound.example.com", 421}, {"/", "192.0.2.7:8480", 421}, {"/", "localhost.example.com:8480", 421},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+c.path, nil)
		require.NoError(t, err)
		req.Host = c.host
		r, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, c.want, r.StatusCode, c)
	}
}

// tab is a page with a bell.
type tab struct {
	*testing.T

	ctx context.Context //nolint:containedctx // chromedp's handle of a page is a context
}

func (p tab) text(js string) string {
	p.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`(() => { const bell = document.querySelector("belfry-bell"), root = bell?.shadowRoot; return String(`+js+`) })()`))
	require.NoError(p, err)
	return text
}

// shows waits until an expression has a value.
func (p tab) shows(js, want string) {
	p.Helper()
	var got string
	for began := time.Now(); time.Since(began) < time.Minute; <-time.After(20 * time.Millisecond) {
		if got = p.text(js); got == want {
			return
		}
	}
	require.Equal(p, want, got, js)
}

// open opens paths in the tabs of a browser.
func (s *site) open(paths ...string) (tabs []tab) {
	s.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(dbtest.ChromiumProgram(s)), chromedp.UserDataDir(s.TempDir()))
	if os.Getuid() == 0 { // Chromium's own sandbox does not start for root
		options = append(options, chromedp.NoSandbox)
	}
	in, end := chromedp.NewExecAllocator(context.WithoutCancel(s.Context()), options...)
	s.Cleanup(end)
	for _, path := range paths {
		ctx, leave := chromedp.NewContext(in)
		s.Cleanup(leave)
		require.NoError(s, chromedp.Do(ctx, chromedp.Navigate(s.url+path)))
		tabs, in = append(tabs, tab{s.T, ctx}), ctx
	}
	return tabs
}

const (
	badge  = `root.querySelector("b").textContent`
	titles = `[...root.querySelectorAll("li button")].map((b) => (b.className ? "*" : "") + b.firstChild.textContent).join("|")`
)

// An element that is moved, or removed while it fetches, leaves one stream open, or none.
func TestBrowser_BellClosesItsStreams(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := s.open("/ben")[0]
	p.shows(`bell.stream?.readyState`, "1")
	p.text(`(() => {
		const made = window.made = [], of = window.EventSource;
		window.EventSource = function (url) { const s = new of(url); made.push(s); return s; };
		for (let i = 0; i < 15; i++) document.body.append(bell);
	})()`)
	p.shows(`made.length`, "15")
	p.shows(`made.filter((s) => s.readyState == 2).length`, "14")
	p.shows(`made.filter((s) => s.readyState == 1).length`, "1")
	require.Equal(t, "true", p.text(`(window.gone = bell, document.body.append(bell), document.body.append(bell.cloneNode()), bell.remove(), gone.stream.readyState == 2)`))
	p.shows(`made.at(-1).readyState`, "1") // the clone's
	p.shows(`made.filter((s) => s.readyState != 2).length`, "1")
	require.Equal(t, "16", p.text(`made.length`))
}

// The bell counts, lists, marks and receives, in two tabs of one person, and shows texts as texts.
func TestBrowser_BellCountsOpensMarksAndReceives(t *testing.T) {
	t.Parallel()
	s := start(t)
	tabs := s.open("/ben", "/ben")
	for _, p := range tabs {
		p.shows(`bell.stream?.readyState`, "1")
	}
	s.post("/ann/like")
	for _, p := range tabs {
		p.shows(badge, "1")
	}
	tabs[0].text(`root.querySelector(".bell").click()`)
	tabs[0].shows(titles, "*ann likes your post")
	tabs[0].shows(`root.querySelector(".bell").getAttribute("aria-expanded")`, "true")
	s.post("/ann/like") // the open list follows
	tabs[0].shows(titles, "*2 likes of your post")
	_, err := s.db.Pool.Exec(t.Context(), `SELECT belfry.notify((SELECT id FROM belfry.channels WHERE external_id = 'demo-app-ben'),
		'activity', '<img src=x onerror=document.title="run">', '<b>body</b>', data => '{"url": "javascript:document.title=1"}')`)
	require.NoError(t, err)
	tabs[0].shows(titles, `*<img src=x onerror=document.title="run">|*2 likes of your post`)
	tabs[1].shows(badge, "2")
	require.Equal(t, "0", tabs[0].text(`root.querySelectorAll("img, li b").length`))
	tabs[0].text(`root.querySelector("li button").click()`)
	tabs[0].shows(titles, `<img src=x onerror=document.title="run">|*2 likes of your post`)
	tabs[1].shows(badge, "1")
	tabs[1].text(`root.querySelector(".bell").click()`)
	tabs[1].shows(titles, `<img src=x onerror=document.title="run">|*2 likes of your post`)
	tabs[1].text(`root.querySelector("div > button").click()`) // mark all as read
	for _, p := range tabs {
		p.shows(badge, "")
	}
	require.Equal(t, "ben", tabs[0].text(`document.title`))
}

// The page and the script of docs/notification-centre.md run: the script gets a token when its own is refused, fetches
// the list, and shows a notification.
func TestBrowser_TheExamplesOfTheDocsRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	tabs := s.open("/docs/html", "/docs/js")
	tabs[0].shows(`bell.stream?.readyState`, "1")
	tabs[1].shows(`JSON.stringify(got)`, `{"shown":[],"lists":1,"tokens":1}`)
	s.post("/ann/like")
	tabs[0].shows(badge, "1")
	tabs[0].text(`root.querySelector(".bell").click()`)
	tabs[0].shows(titles, "*ann likes your post")
	tabs[1].shows(`JSON.stringify(got.shown)`, `["ann likes your post"]`)
}

package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// house is a belfry that serves its pages.
type house struct {
	db   *dbtest.DB
	jobs *job.Store
	url  string // without a slash at its end
	log  *dbtest.Buffer
}

// tokens are good: each is the name of its role.
func tokens(_ context.Context, token string) (access.Identity, error) {
	var who access.Identity
	if who.Role.UnmarshalText([]byte(token)) != nil {
		return who, access.ErrToken
	}
	who.Name = "the-" + token
	return who, nil
}

// open serves all operations at a path; change may be nil.
func open(t *testing.T, change func(*api.Options)) *house {
	t.Helper()
	return openOn(t, dbtest.Reused(t, 10), change)
}

// openOn is open on a database.
func openOn(t *testing.T, db *dbtest.DB, change func(*api.Options)) *house {
	t.Helper()
	h := &house{db: db, log: new(dbtest.Buffer)}
	h.jobs = job.NewStore(h.db.Pool)
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	c := api.Options{
		Operations: admin.Operations(),
		Env: operation.Env{
			DB: h.db.Pool, Jobs: h.jobs, Channels: recipients, Broadcaster: jobs.NewBroadcaster(10 * time.Millisecond),
			Carrier: operation.Carrier{Transport: outbox.NoCarrier}, Compose: operation.Compose(compose.DefaultConfig()),
		},
		Authenticate: tokens,
		Pages: func(served *api.Handler, at string) http.Handler {
			return console.New(served, at, admin.Operations(), api.Environment{Name: "production <1>", Colour: "red"})
		},
		Log: zerolog.New(h.log),
	}
	c.Sessions, err = access.NewSessions(h.db.Pool, 12*time.Hour, time.Hour)
	require.NoError(t, err)
	if change != nil {
		change(&c)
	}
	server := httptest.NewServer(api.New(c))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// browser is somebody at a browser, with a token for a role; "": signed out.
type browser struct {
	house  *house
	role   string
	client *http.Client
}

func (h *house) as(t *testing.T, role string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Transport: new(http.Transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	return &browser{h, role, client}
}

// page is what the browser was answered.
type page struct {
	status int
	header http.Header
	source string
	text   string // what a person reads
	root   *html.Node
}

func (b *browser) ask(t *testing.T, method, path string, form url.Values) page {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.house.url+path, body)
	require.NoError(t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.role != "" {
		req.Header.Set("Authorization", "Bearer "+b.role)
	}
	res, err := b.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	source, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	p := page{status: res.StatusCode, header: res.Header, source: string(source)}
	p.root, err = html.Parse(strings.NewReader(p.source))
	require.NoError(t, err)
	p.text = p.read()
	return p
}

// read returns the texts of a page.
func (p page) read() string {
	var text strings.Builder
	p.each(func(n *html.Node) {
		if n.Type == html.TextNode {
			text.WriteString(n.Data + " ")
		}
	})
	return strings.Join(strings.Fields(text.String()), " ")
}

func (b *browser) get(t *testing.T, path string) page {
	t.Helper()
	return b.ask(t, http.MethodGet, path, nil)
}

func (b *browser) post(t *testing.T, path string, form url.Values) page {
	t.Helper()
	return b.ask(t, http.MethodPost, path, form)
}

func (p page) each(do func(*html.Node)) {
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		do(n)
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(p.root)
}

// attr is an attribute of an element; "": it has none.
func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// hidden are the hidden fields of the page's act.
func (p page) hidden() url.Values {
	fields := make(url.Values)
	p.each(func(n *html.Node) {
		if n.Data == "input" && attr(n, "type") == "hidden" && attr(n, "name") != "return_to" {
			fields.Set(attr(n, "name"), attr(n, "value"))
		}
	})
	return fields
}

// links are the addresses that the page leads to.
func (p page) links() []string {
	var all []string
	p.each(func(n *html.Node) {
		for _, name := range []string{"href", "src", "action"} {
			if to := attr(n, name); to != "" {
				all = append(all, to)
			}
		}
	})
	return all
}

// enqueue enqueues a job of that title.
func (h *house) enqueue(t *testing.T, title string) int64 {
	t.Helper()
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: title, Body: "It says more."})
	require.NoError(t, err)
	return id
}

// acts are the acts on a job, by whom.
func (h *house) actions(t *testing.T, id int64, kind string) []string {
	t.Helper()
	events, err := h.jobs.Events(t.Context(), id, 0, 100)
	require.NoError(t, err)
	var by []string
	for _, e := range events {
		if e.Kind == kind {
			by = append(by, e.Actor)
		}
	}
	return by
}

package walk_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const trying = "trying to connect again"

// liveAgain waits until the page says no more that it is not live.
func (p *tab) liveAgain() {
	p.Helper()
	until(p.T, func() bool { return evaluate[bool](p, `document.getElementById("stale").hidden`) }, p.text)
}

// A proxy refuses while what is behind it is upgraded; no browser asks again for a stream that was refused.
func TestBrowser_APageOutlivesAProxysRefusals(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	behind, err := url.Parse(h.url)
	require.NoError(t, err)
	var away atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(behind)
	forward.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if away.Load() {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(front.Close)
	h.url = front.URL
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	p.goTo("/jobs")
	p.stays()

	p.goesAway(true)
	away.Store(true)
	front.CloseClientConnections()
	p.shows(trying)
	require.Regexp(t, `Not live since \d\d:\d\d:\d\d \S+; trying`, p.text())
	h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Meanwhile"})
	away.Store(false)
	p.liveAgain()
	p.shows("job 1 enqueued")
	p.stayed()
	p.goesAway(false)
	p.sound()
}

// A page says that its session is over, and is live again once the browser has another.
func TestBrowser_ASessionThatEndsIsSaid(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	p.goTo("/lanes?page_size=20")
	p.stays()
	other := p.another()
	other.goTo("/senders")
	for _, one := range []*tab{p, other} {
		one.goesAway(true)
	}
	h.exec("DELETE FROM belfry.sessions")
	for _, one := range []*tab{p, other} {
		one.shows("the session has ended. Sign in again")
	}
	p.picture("signed-out")
	other.follow("Sign in again")
	other.fill("name", "the-operator")
	other.fill("password", password)
	other.follow("Sign in")
	other.shows("Senders")
	require.True(t, strings.HasSuffix(evaluate[string](other, "location.href"), "/senders"))
	p.liveAgain()
	for _, one := range []*tab{p, other} {
		one.goesAway(false)
	}
	h.run("lanes", "pause", "night")
	p.shows("lane night paused")
	p.stayed()
	p.sound()
	other.sound()
}

// The database is away for longer than any stream bears: pages say since when, and show what it has
// when it is back.
func TestBrowser_APageOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, true)
	h := live(t, options{channels: 10, on: dbtest.NewOn(t, server)})
	h.run("lanes", "pause", "night", "--reason", "the night shift is out")
	id := h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Stays", Lane: "night"})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	p.goTo("/jobs")
	p.stays()
	name := text.Int(id)
	require.Contains(t, p.cell(name+".status"), "Paused")

	p.goesAway(true)
	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	p.shows(trying)
	require.Never(t, func() bool { return !strings.Contains(p.text(), trying) }, 35*time.Second, time.Second, "longer than streams and requests have")
	require.NoError(t, server.Start(t.Context()))
	p.liveAgain()
	h.exec("SELECT belfry.abort($1, 'ann', 'wrong text')", id)
	until(t, func() bool { return strings.Contains(p.cell(name+".status"), "Stopped") }, func() string { return "shown is " + p.cell(name+".status") })
	p.stayed()
	p.goesAway(false)
	p.sound()
}

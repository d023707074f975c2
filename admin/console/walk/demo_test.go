package walk_test

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
)

// output is what a process wrote so far.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// demonstrated starts `belfry demo --serve` on a database, and returns the address of its console and the
// secret of a sign-in link.
func demonstrated(t *testing.T, db *dbtest.DB) (root, link string) {
	t.Helper()
	program, err := built()
	require.NoError(t, err)
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	demo := exec.Command(program, "--config", "/dev/null", "demo", "--channels", "30000", "--database", db.Name, "--serve="+address)
	demo.Env = append(demo.Environ(), "BELFRY_DATABASE_URL="+db.DSN)
	var out output
	demo.Stdout, demo.Stderr = &out, &out
	require.NoError(t, demo.Start())
	ended := make(chan struct{})
	go func() {
		_ = demo.Wait() // its output says why it ended
		close(ended)
	}()
	t.Cleanup(func() {
		_ = demo.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = demo.Process.Kill()
			<-ended
		}
	})
	secret := regexp.MustCompile(`/sign-in#link=([\w-]+)\n`)
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			return secret.MatchString(out.String())
		}
	}, 3*time.Minute, 50*time.Millisecond)
	found := secret.FindStringSubmatch(out.String())
	require.NotNil(t, found, out.String())
	return "http://" + address, found[1]
}

// Each page of a demo has content, and none is empty. `make screenshots` takes the pictures of docs/screenshots
// here.
func TestLong_EachPageOfTheDemoHasContent(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	root, link := demonstrated(t, db)
	p := startBrowser(t).person(t, root)
	p.goTo("/sign-in#link=" + link)
	p.picture("sign-in")
	p.follow("Sign in with the link")
	running := func() (id int64) {
		require.Eventually(t, func() bool {
			return db.Pool.QueryRow(t.Context(), `SELECT id FROM belfry.jobs WHERE status = 'RUNNING' AND chunks > 2 ORDER BY id LIMIT 1`).Scan(&id) == nil
		}, time.Minute, 50*time.Millisecond)
		return id
	}
	var person string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT c.external_id FROM belfry.messages m JOIN belfry.channels c ON c.id = m.channel_id
		WHERE m.status = 'DEAD' AND m.job_id = 2 ORDER BY c.id LIMIT 1`).Scan(&person))
	job := "/jobs/" + text.Int(running())
	for _, page := range []struct{ path, name, has string }{
		{"/", "overview", "Stop job"}, {job, "job", "Stop job"}, {"/jobs/2", "job-corrected", "messages sent"}, {"/jobs/2?tab=delivery", "job-delivery", "Delivery over time"},
		{"/jobs/2?tab=recipients&external_id=" + person, "job-recipients", "Failed"}, {"/jobs/2?tab=timeline", "job-timeline", "the day is misspelt"},
		{"/jobs", "jobs", "Five walks for the weekend"}, {"/upcoming", "schedule", "Asia/Seoul"}, {"/senders", "delivery", "UNREGISTERED"},
		{"/channels/show?external_id=" + person, "person", "Did not get"}, {"/events", "activity", "kim stopped job 2"}, {"/settings", "settings", "popular_content"},
		{"/enqueue", "new-notification", "Who gets it"},
	} {
		p.goTo(page.path)
		p.shows(page.has)
		p.accessible(page.path)
		p.fits(page.path)
		p.picture(page.name)
	}
	job = text.Int(running())
	p.goTo("/jobs/" + job)
	p.do(chromedp.Click(`//main//*[self::a or self::button][contains(normalize-space(), "Stop job ` + job + `")]`))
	p.shows("people will not get it")
	p.picture("stop")
	require.NotContains(t, p.text(), "belfry abort")
}

package walk_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/job"
)

// addressOf is the path of an operation's page, about this job.
func addressOf(o operation.Operation, id int64) string {
	path, query := api.PathOf(o), make(url.Values)
	if o.Changes && o.Verb() == "set" {
		path += "/set"
	}
	for _, p := range o.Params() {
		value := map[string]string{"id": strconv.FormatInt(id, 10), "job": strconv.FormatInt(id, 10), "lane": "default", "category": "operator_notice"}[p.Name]
		if value == "" {
			value = "something"
		}
		switch place := "{" + p.Name + "}"; {
		case strings.Contains(path, place):
			path = strings.ReplaceAll(path, place, value)
		case p.Required && value != "something":
			query.Set(p.Name, value)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// The house of this walk has something on every page: jobs in each status, messages sent and dead,
// a schedule, a paused lane.
func furnished(t *testing.T) (*house, int64) {
	t.Helper()
	h := live(t, options{channels: 300, faults: `{for: all, status: 400, address: "(token-|0000)7$"}`})
	notice := job.Spec{Type: "push", Category: "operator_notice", Title: "The lift is out of service", Body: "Until Thursday; the stairs are open.", Route: []string{"push", "sms"}}
	done := h.enqueue(notice)
	h.becomes("SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1", done)
	h.becomes("SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status NOT IN ('SENT', 'DEAD', 'CANCELLED'))")
	require.Positive(t, h.number("SELECT count(*) FROM belfry.messages WHERE status = 'DEAD'"))
	h.run("lanes", "pause", "night", "--reason", "the night shift is out")
	h.run("schedules", "add", "daily", "--cron", "0 9 * * *", "--type", "inbox", "--category", "popular_content", "--title", "Popular today", "--everyone")
	aborted := notice
	aborted.Title, aborted.Lane = "Too early", "night"
	_, err := h.jobs.Abort(t.Context(), job.One(h.enqueue(aborted)), job.Act{Actor: "ann", Reason: "it says Tuesday"})
	require.NoError(t, err)
	waiting := notice
	waiting.Title, waiting.Lane = "Waits for its lane", "night"
	h.enqueue(waiting)
	return h, done
}

func TestBrowser_EveryPageIsSoundAndAccessible(t *testing.T) {
	t.Parallel()
	h, id := furnished(t)
	b := startBrowser(t)
	p := b.person(t, h.url)
	p.goTo("/jobs")
	p.shows("Sign in")
	p.accessible("sign in")
	p.signIn("the-admin", password)

	one := fmt.Sprintf("/jobs/%d", id)
	paths := []string{
		"/", "/jobs", one, "/schedules", "/lanes", "/dead-letters", "/dead-letters/errors", "/senders", "/upcoming", "/enqueue",
		"/channels/show?external_id=u7", "/transport/status", "/events", "/users", "/tokens", "/channels/segment", "/jobs?lane=default",
		"/there/is/no/page", "/jobs?status=what", "/channels/show?external_id=nobody",
		one + "?tab=delivery", one + "?tab=recipients&external_id=u7", one + "?tab=timeline", one + "?tab=settings", one + "?tab=report",
		fmt.Sprintf("/jobs/%d/resume", id+1), fmt.Sprintf("/jobs/%d/correct", id+1), fmt.Sprintf("/jobs/%d/stop", id+2),
	}
	for _, o := range admin.Operations() {
		if at := addressOf(o, id); !o.Shared && !slices.Contains(paths, at) {
			paths = append(paths, at)
		}
	}
	for _, path := range paths {
		p.goTo(path)
		require.NotEmpty(t, p.text(), path)
		p.accessible(path)
		p.fits(path)
	}
	p.sound()
}

// The page of a job prints as a report: facts, counts, charts and events, in light colours, without
// navigation and controls.
func TestBrowser_AJobPrintsAsAReport(t *testing.T) {
	t.Parallel()
	h, id := furnished(t)
	p := startBrowser(t).person(t, h.url)
	p.goTo("/jobs")
	p.signIn("the-operator", password)
	p.goTo(fmt.Sprintf("/jobs/%d?tab=report", id))
	p.prefers(dark)
	printed := command(p, page.PrintToPDF, page.PrintToPDFParams{PreferCSSPageSize: new(true)})
	require.NotEmpty(t, printed.Data)
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}}})
	p.width(700)
	for _, text := range []string{"The lift is out of service", "Results", "Timeline", "Requested", "All recipients written", "failed"} {
		require.Contains(t, p.text(), text)
	}
	require.Empty(t, evaluate[[]string](p, `[...document.querySelectorAll("nav, button, .button, form, summary, .stale")].filter((e) => e.checkVisibility()).map((e) => e.outerHTML)`))
	require.Equal(t, "rgb(255, 255, 255)", evaluate[string](p, `getComputedStyle(document.body).backgroundColor`))
	require.LessOrEqual(t, evaluate[int](p, `document.documentElement.scrollWidth`), 700)
	if dir := os.Getenv("BELFRY_TEST_SCREENSHOTS"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "job.pdf"), printed.Data, 0o644))
		shot := command(p, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: new(true)})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "job-printed.png"), shot.Data, 0o644))
	}
	p.sound()
}

// picture leaves pictures of the page where the environment says: at the width of a telephone and of
// a desk, in light and dark.
func (p *tab) picture(name string) {
	p.Helper()
	dir := os.Getenv("BELFRY_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, width := range []int64{phone, desk} {
		p.width(width)
		for _, scheme := range []string{light, dark} {
			p.prefers(scheme)
			shot := command(p, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(70))})
			file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s.webp", name, width, scheme))
			require.NoError(p, os.WriteFile(file, shot.Data, 0o644))
		}
	}
	p.prefers(light)
	p.width(desk)
}

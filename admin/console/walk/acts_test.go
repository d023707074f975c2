package walk_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// actors are who did what to a job, by the kind of event.
func (h *house) actors(id int64) map[string]string {
	h.Helper()
	events, err := h.jobs.Events(h.Context(), id, 0, 100)
	require.NoError(h, err)
	by := make(map[string]string)
	for _, e := range events {
		by[e.Kind] = e.Actor
	}
	return by
}

// stays marks the page, so that stayed can tell that it was not loaded again.
func (p *tab) stays() {
	p.Helper()
	evaluate[bool](p, "window.stayed = true")
}

func (p *tab) stayed() {
	p.Helper()
	require.True(p, evaluate[bool](p, "window.stayed === true"), "the page was loaded again")
}

func TestBrowser_AJobIsWatchedStoppedResumedAndFinished(t *testing.T) {
	t.Parallel()
	const people = 60_000 // for a minute, at first
	h := live(t, options{channels: people, config: map[string]any{"runner": map[string]any{
		"load": map[string]any{"health": map[string]any{"enabled": false}, "max_rows_per_second": 1_000}, "chunk": map[string]any{"initial_rows": 500, "max_rows": 500},
	}}})
	b := startBrowser(t)
	now := b.person(t, h.url)
	now.signIn("the-operator", password)
	now.shows("Nothing has been sent yet")
	now.stays()
	id := h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "To everybody"})
	name := text.Int(id)
	now.shows("1 job has begun: show it")
	now.stayed()
	now.follow("1 job has begun: show it")
	now.stays()

	page := now.another()
	page.goTo("/jobs/" + name)
	page.stays()
	seen := make(map[string]bool)
	until(t, func() bool {
		seen[page.bar(name)] = true
		return len(seen) >= 4
	}, func() string { return fmt.Sprint("the page shows no progress: ", seen) })
	page.stayed()

	page.dialog("Stop job " + name)
	page.shows("people will not get it")
	page.accessible("the dialog that stops a job")
	page.enters("reason", "it says Tuesday")
	asked := time.Now()
	page.press("Stop job " + name)
	page.shows("Stopped. ")
	h.becomes("SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1", id)
	now.shows("Stopped")
	t.Logf("stopped, and shown so on the other page, after %v", time.Since(asked).Round(time.Millisecond))
	now.stayed()
	written := h.number("SELECT rows_written FROM belfry.jobs WHERE id = $1", id)
	require.Less(t, written, int64(people))
	require.Equal(t, written, h.number("SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1", id))
	left := h.number("SELECT channels_total - channels_read FROM belfry.jobs WHERE id = $1", id)
	page.shows(fmt.Sprintf("Stopped. %s of about %s recipients have it, %s people did not get it.", text.Grouped(written), text.Grouped(written+left), text.Grouped(left)))
	page.press("Done")
	page.shows("Stopped by the-operator")
	page.shows("it says Tuesday")
	page.stayed()
	require.Equal(t, written, h.number("SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1", id), "it has stopped")

	page.dialog("Resume…")
	page.confirms()
	page.press("Resume job " + name)
	page.shows("Continues. " + text.Grouped(left) + " people will still get it.")
	page.press("Done")
	page.shows("Stop job " + name)
	h.run("jobs", "set", name, "max_rows_per_second=0", "max_chunk_rows=20000")
	page.shows("Delivered")
	page.shows("It has ended. Show the result")
	require.NotContains(t, page.text(), "Stop job "+name, "there is nothing to stop")
	page.stayed()
	page.follow("It has ended. Show the result")
	page.shows(text.Grouped(people) + " people have it in their inbox.")
	require.NotContains(t, page.text(), "message yet")
	require.EqualValues(t, people, h.number("SELECT count(DISTINCT channel_id) FROM belfry.job_notifications WHERE job_id = $1", id))
	require.EqualValues(t, people, h.number("SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1", id))
	require.Equal(t, "the-operator", h.actors(id)[job.EventAborted])
	require.Equal(t, "the-operator", h.actors(id)["resume_requested"])
	now.sound()
	page.sound()
}

// texts counts what the providers were handed, by title, and refuses that anybody got two.
func (h *house) texts() map[string]int {
	h.Helper()
	titles, people := make(map[string]int), make(map[string]bool)
	for _, c := range h.fakes.Calls(fake.FCM) {
		titles[c.Title]++
		require.False(h, people[c.Address], "%s got two", c.Address)
		people[c.Address] = true
	}
	return titles
}

func TestBrowser_ACampaignIsCorrectedInMidDelivery(t *testing.T) {
	t.Parallel()
	const people = 4_000
	h := live(t, options{channels: people, limit: map[string]any{"rate_per_second": 1_000}})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	id := h.enqueue(job.Spec{Type: "push", Category: "operator_notice", Title: "Closed on Tuesday", Route: []string{"push"}})
	name := text.Int(id)
	h.becomes("SELECT count(*) > 200 FROM belfry.messages WHERE status = 'SENT'")
	p.goTo("/jobs/" + name)
	p.shows("Delivering")
	p.stays()
	p.dialog("Stop job " + name)
	p.press("Stop job " + name)
	h.becomes("SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1", id)
	h.becomes("SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PROCESSING', 'QUEUED'))")
	before := h.texts()
	require.Less(t, before["Closed on Tuesday"], people)

	p.dialog("Correct…")
	p.enters("title", "Closed on Wednesday")
	p.do(chromedp.Click(`dialog summary`), chromedp.WaitVisible(`dialog [name="_locale"]`))
	p.enters("_locale", "ko")
	p.enters("_title", "수요일 휴무")
	p.sound()
	p.press("Correct job " + name)
	p.shows("Corrected. ")
	require.JSONEq(t, `{"ko": {"title": "수요일 휴무"}}`, h.text("SELECT variants::text FROM belfry.jobs WHERE id = $1", id))
	require.EqualValues(t, 1, h.number("SELECT count(*) FROM belfry.job_revisions WHERE job_id = $1", id), "what was not corrected is as it was")
	p.dialog("Resume…")
	p.shows(text.Grouped(h.number("SELECT count(*) FROM belfry.messages WHERE status = 'PENDING'")) + " people will still get it")
	p.confirms()
	p.press("Resume job " + name)
	p.shows("Continues. ")
	p.press("Done")
	p.shows("Closed on Wednesday")
	p.stayed()
	h.becomes("SELECT count(*) = $1 FROM belfry.messages WHERE status = 'SENT'", people)
	after := h.texts()
	require.Equal(t, before["Closed on Tuesday"], after["Closed on Tuesday"], "what is said after a correction is the correction")
	require.Positive(t, after["수요일 휴무"], "the language that the correction added")
	require.Equal(t, people, after["Closed on Tuesday"]+after["Closed on Wednesday"]+after["수요일 휴무"])
	p.goTo("/jobs/" + name)
	p.shows(fmt.Sprintf("%s messages were sent of %[1]s", text.Grouped(people)))
	p.sound()
}

func TestBrowser_DeadLettersAreSentAgain(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 100, faults: `{for: fcm, status: 400, address: "[05]$"}`})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	id := h.enqueue(job.Spec{Type: "push", Category: "operator_notice", Title: "Hello", Route: []string{"push"}})
	h.becomes("SELECT count(*) = 20 FROM belfry.messages WHERE status = 'DEAD' AND job_id = $1", id)
	require.NoError(t, h.fakes.SetFaults(nil))
	p.goTo("/dead-letters?job=" + text.Int(id))
	p.follow("Send again…")
	p.shows("20")
	p.follow("Send failed messages again")
	h.becomes("SELECT count(*) = 100 FROM belfry.messages WHERE status = 'SENT' AND job_id = $1", id)
	p.goTo("/dead-letters")
	require.NotContains(t, p.text(), "permanent")
	p.goTo("/events")
	p.shows("the-operator")
	p.sound()
}

// All that a filter finds is acted on as it was seen, on whatever page of the list; what came to it since
// is left alone. What became of one of them is one file.
func TestBrowser_AllThatMatchAreActedOn(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	h.run("lanes", "pause", "night")
	notice := job.Spec{Type: "inbox", Category: "operator_notice", Title: "<b>The lift</b> is out of service", Lane: "night"}
	for range 12 {
		h.enqueue(notice)
	}
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	p.goTo("/jobs?lane=night&limit=5")
	p.accessible("a narrowed list")
	p.follow("Stop all that match…")
	p.shows("would be stopped: 12 jobs")
	p.accessible("an act on all that match")
	late := h.enqueue(notice)
	p.fill("reason", "it is Tuesday")
	p.follow("Stop 12 jobs")
	h.becomes("SELECT count(*) FILTER (WHERE status = 'ABORTED') = 12 AND count(*) FILTER (WHERE status = 'PENDING' AND id = $1) = 1 FROM belfry.jobs", late)
	p.goTo("/jobs?lane=night&status=ABORTED")
	p.follow("Resume all that match…")
	p.follow("Resume 12 jobs")
	h.becomes("SELECT count(*) = 13 FROM belfry.jobs WHERE status = 'PENDING'")
	require.EqualValues(t, 12, h.number("SELECT count(*) FROM belfry.job_events WHERE kind = 'aborted' AND actor = 'the-operator' AND reason = 'it is Tuesday'"))

	notice.Lane, notice.ScheduleAt = "default", new(time.Now().Add(2*time.Hour+30*time.Second))
	h.enqueue(notice)
	p.goTo("/")
	p.shows("in 2 h")

	p.sound()
}

func TestBrowser_HaltStopsDeliveryAndWalks(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 20_000, limit: map[string]any{"rate_per_second": 500}})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	h.enqueue(job.Spec{Type: "push", Category: "operator_notice", Title: "Hello", Route: []string{"push"}})
	h.becomes("SELECT count(*) > 200 FROM belfry.messages WHERE status = 'SENT'")
	p.follow("Halt everything")
	asked := time.Now()
	p.follow("Halt everything")
	answered := time.Now()
	h.becomes("SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PROCESSING', 'QUEUED'))")
	calls := h.fakes.Calls(fake.FCM)
	last := slices.MaxFunc(calls, func(a, b fake.Call) int { return a.At.Compare(b.At) }).At
	t.Logf("the last call came %v after the press, the answer after %v", last.Sub(asked).Round(time.Millisecond), answered.Sub(asked).Round(time.Millisecond))
	require.False(t, last.After(answered), "something was sent after the page had said that it is halted")
	require.Never(t, func() bool { return len(h.fakes.Calls(fake.FCM)) > len(calls) }, time.Second, 50*time.Millisecond, "something was sent after it was halted")
	require.Positive(t, h.number("SELECT count(*) FROM belfry.messages WHERE status = 'PENDING'"))
	p.sound()
}

func TestBrowser_SignsInAndOutAndLocksOut(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	id := text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello"}))
	b := startBrowser(t)
	p := b.person(t, h.url)
	p.goTo("/jobs/" + id)
	p.shows("Sign in")
	p.fill("name", "the-viewer")
	p.fill("password", password)
	p.follow("Sign in")
	p.shows("Hello") // where they wanted to go
	require.NotContains(t, p.text(), "Halt everything")
	p.goTo("/abort?id=" + id)
	p.shows("abort needs the role operator; this is viewer")
	require.NotContains(t, p.text(), "Stop job "+id)

	p.goTo("/")
	p.do(chromedp.Click(".who details.more summary"))
	p.goesAway(true) // the page's stream may begin again before the page of the sign-in is there
	p.follow("Sign out")
	p.shows("Sign in")
	p.goesAway(false)
	p.goTo("/jobs")
	p.shows("Sign in")

	for n := 0; ; n++ {
		require.Less(t, n, 50, "nobody is locked out")
		if status := p.signIn("the-author", "wrong horse battery staple"); status != 401 {
			require.EqualValues(t, 429, status)
			break
		}
	}
	require.EqualValues(t, 429, p.signIn("the-author", password), "the password is right, and it is too late")
	link := strings.TrimSpace(h.run("users", "link", "the-author"))
	p.goTo("/") // what follows a # alone loads no page
	p.goTo("/sign-in#link=" + link)
	require.True(t, evaluate[bool](p, `document.getElementById("password").offsetParent === null`), "the link alone signs in")
	p.follow("Sign in with the link")
	p.shows("the-author")
	require.NotContains(t, evaluate[string](p, "location.href"), link)
	p.sound()
}

func TestBrowser_AnAddressHasAPrefix(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	root := "http://127.0.0.1:" + strconv.Itoa(port) + "/tools/belfry"
	h := live(t, options{channels: 10, port: port, config: map[string]any{"api": map[string]any{"public_url": root}}})
	id := text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello", ScheduleAt: new(time.Now().Add(time.Hour))}))
	h.url = root
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-admin", password)
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if seen[path] || len(seen) > 120 {
			return
		}
		seen[path] = true
		p.goTo(path)
		require.NotContains(t, p.text(), "there is no page at this address", path)
		for _, to := range evaluate[[]string](p, `[...document.querySelectorAll("a[href], link[href], script[src], form[action]")].map((e) => (e.action ? "form " : "") + (e.href || e.src || e.action))`) {
			to, form := strings.CutPrefix(to, "form ")
			require.True(t, strings.HasPrefix(to, root+"/"), "%s leads to %s", path, to)
			if form {
				continue
			}
			if rest := strings.TrimPrefix(to, root); !strings.Contains(rest, "?") && !strings.Contains(rest, "#") && !strings.HasPrefix(rest, "/assets/") {
				visit(rest)
			}
		}
	}
	visit("/")
	require.Contains(t, seen, "/jobs")
	require.Greater(t, len(seen), 20)
	p.goTo("/jobs/" + id)
	p.dialog("Stop job " + id)
	p.press("Stop job " + id)
	h.becomes("SELECT status = 'ABORTED' FROM belfry.jobs")
	p.sound()
}

// choose clicks the box or the radio button of a field with a value.
func (p *tab) choose(name, value string) {
	p.Helper()
	p.do(chromedp.Click(fmt.Sprintf(`//main//input[@name=%q and @value=%q]`, name, value)))
}

// types fills a field as a person does, whom the script of the page hears.
func (p *tab) types(name, text string) {
	p.Helper()
	p.fill(name, text)
	evaluate[bool](p, fmt.Sprintf(`document.querySelector('main [name=%q]').dispatchEvent(new Event("input", {bubbles: true}))`, name))
}

// phone is what the phone of a new notification shows, below its first line.
func (p *tab) phone() string {
	p.Helper()
	return evaluate[string](p, `[...document.querySelectorAll("#phone .says, #phone .body")].map((e) => e.textContent).join(" ")`)
}

// A notice to everybody near a place reaches as many as its page has counted; a second person, and
// nobody else, lets it go; an audience that doubles meanwhile stops where it was approved.
func TestBrowser_ANoticeIsWrittenCountedAndApproved(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 2_000})
	h.run("categories", "set", "operator_notice", "approval_above=100")
	h.exec("UPDATE belfry.channels SET location = point(129.04, 35.1) WHERE id % 4 = 0") // Busan
	near := h.number("SELECT count(*) FROM belfry.channels WHERE location <-> point(129.04, 35.1) < 0.01")
	b := startBrowser(t)
	author, second := b.person(t, h.url), b.person(t, h.url)
	author.signIn("the-operator", password)
	author.goTo("/enqueue")
	author.accessible("the page of a new notification")
	author.types("category", "operator_notice")
	author.types("title", "The bridge is closed")
	author.types("body", "Until eight.")
	require.Equal(t, "The bridge is closed Until eight.", author.phone(), "the phone shows what is typed")
	author.choose("_language", "1")
	author.types("_locale", "ko")
	author.types("_title", "다리 폐쇄")
	require.Equal(t, "다리 폐쇄 Until eight.", author.phone(), "the text that it lacks is that of all languages")
	require.Equal(t, "All languages ko Add a language", evaluate[string](author, `[...document.querySelectorAll(".tab")].map((e) => e.innerText.trim()).join(" ")`))
	author.choose("type", "push") // off
	author.choose("_to", "near")
	author.types("near", "35.1,129.04")
	author.types("radius", "5km")
	author.shows(text.Grouped(near) + " recipients")
	require.Zero(t, h.number("SELECT count(*) FROM belfry.jobs"))
	author.accessible("a new notification with its count")
	author.fits("a new notification with its count")
	author.follow("Review")
	author.shows("A second person must approve it")
	author.accessible("the review of a new notification")
	author.fits("the review of a new notification")
	author.picture("preview")
	author.follow("Submit for " + text.Grouped(near) + " recipients")
	id := h.number("SELECT max(id) FROM belfry.jobs")
	name := text.Int(id)
	require.JSONEq(t, `{"ko": {"title": "다리 폐쇄"}}`, h.text("SELECT variants FROM belfry.jobs WHERE id = $1", id))
	author.goTo("/jobs/" + name)
	author.shows("Waits for approval")
	author.picture("approval")
	author.dialog("Approve job " + name + "…")
	author.shows("another person must approve it")
	require.Equal(t, "PENDING", h.text("SELECT status FROM belfry.jobs WHERE id = $1", id))

	second.signIn("the-admin", password)
	second.shows("Waits for approval")
	second.goTo("/jobs/" + name)
	second.dialog("Approve job " + name + "…")
	second.shows(text.Grouped(near) + " recipients")
	second.shows("다리 폐쇄")
	second.accessible("the dialog that approves a job")
	second.do(chromedp.SetAttributeValue(`#act form`, "class", "shown"))
	second.press("Refresh preview")
	until(t, func() bool { return evaluate[bool](second, `document.querySelector("#act form.act .plan") !== null`) }, second.textIfAny)
	second.press("Approve job " + name)
	second.shows("approved by")
	second.press("Job " + name)
	h.becomes("SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1", id)
	require.Equal(t, near, h.number("SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1", id))
	require.Equal(t, "the-admin", h.actors(id)["approved"])

	h.run("lanes", "pause", "night")
	grows := h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "It grows", Lane: "night", RequestedBy: "somebody"})
	name = text.Int(grows)
	second.goTo("/jobs/" + name)
	second.dialog("Approve job " + name + "…")
	second.shows("2,000 recipients")
	second.press("Approve job " + name)
	second.shows("approved by")
	h.exec("INSERT INTO belfry.channels (external_id, platform) SELECT 'more' || n, 'ios' FROM generate_series(1, 2000) n")
	h.run("lanes", "resume", "night")
	h.becomes("SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1", grows)
	require.LessOrEqual(t, h.number("SELECT count(*) FROM belfry.job_notifications WHERE job_id = $1", grows), int64(2_100))
	author.sound()
	second.sound()
}

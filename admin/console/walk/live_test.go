package walk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// By HTTP/1.1 a browser has six connections to a server. Twelve tabs need one.
func TestBrowser_TwelveTabsAreLiveByOneStream(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 200_000, config: map[string]any{"runner": map[string]any{
		"load": map[string]any{"health": map[string]any{"enabled": false}, "max_rows_per_second": 1_000}, "chunk": map[string]any{"min_rows": 100, "initial_rows": 100, "max_rows": 100},
	}}})
	id := text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "To everybody"}))
	h.becomes("SELECT status = 'RUNNING' AND rows_written > 0 FROM belfry.jobs")
	first := startBrowser(t).person(t, h.url)
	first.signIn("the-operator", password)
	tabs := []*tab{first}
	for range 11 {
		tabs = append(tabs, first.another())
	}
	first.mu.Lock()
	first.streams = 0 // of the page that it leaves
	first.mu.Unlock()
	before := make([]string, len(tabs))
	for i, p := range tabs {
		p.goTo("/jobs/" + id)
		before[i] = p.bar(id)
	}
	for i, p := range tabs {
		until(t, func() bool { return p.bar(id) != before[i] }, func() string { return fmt.Sprintf("tab %d of %d is not live", i+1, len(tabs)) })
	}
	streams := 0
	for _, p := range tabs {
		p.mu.Lock()
		streams += p.streams
		p.mu.Unlock()
		p.sound()
	}
	require.Equal(t, 1, streams, "streams that were asked for")
	first.goTo("/jobs/" + id)
	first.dialog("Stop job " + id)
	first.press("Stop job " + id)
	for _, p := range tabs[1:] {
		p.shows("Stopped")
	}
}

// Cells change; no row comes, goes or moves while somebody aims at it.
func TestBrowser_RowsStayUnderTheFinger(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 2_000})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	h.exec("INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'")
	for n := range 20 { // which change when the page is open, however long that takes
		h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: fmt.Sprintf("Job %d", n)})
	}
	p.goTo("/jobs")
	evaluate[bool](p, `(() => {
		window.moved = 0;
		window.changed = 0;
		window.where = [...document.querySelectorAll("tbody tr")].map((r) => r.getBoundingClientRect().top);
		new MutationObserver((all) => { for (const m of all) if (m.target.closest("tbody") && m.type === "childList" && ![...m.addedNodes, ...m.removedNodes].every((n) => n.nodeType === Node.TEXT_NODE)) moved++; else changed++; })
			.observe(document.querySelector("main"), { childList: true, subtree: true, characterData: true });
		return true;
	})()`)
	for n := range 60 {
		h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: fmt.Sprintf("Later %d", n)})
	}
	h.exec("UPDATE belfry.lanes SET paused_at = NULL, paused_by = NULL WHERE name = 'default'")
	h.becomes("SELECT count(*) = 80 FROM belfry.jobs WHERE status = 'PROCESSED'")
	until(t, func() bool { return evaluate[int](p, "changed") > 0 }, func() string { return "nothing on the page changed" })
	require.Zero(t, evaluate[int](p, "moved"))
	require.True(t, evaluate[bool](p, `JSON.stringify(where) === JSON.stringify([...document.querySelectorAll("tbody tr")].map((r) => r.getBoundingClientRect().top))`), "a row has moved")
	p.sound()
}

// Whoever has aimed at a row of a list that churns hits that row, however long ago that was.
func TestBrowser_AThousandClicksHitTheirRows(t *testing.T) {
	t.Parallel()
	const clicks = 1_000
	h := live(t, options{channels: 500})
	for n := range 20 {
		h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: fmt.Sprintf("Job %d", n)})
	}
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	p.goTo("/jobs")
	// Where the links are that can be seen. They note what was pressed, and lead nowhere.
	aims := evaluate[[][2]float64](p, `(() => {
		window.links = [...document.querySelectorAll("tbody a")].filter((a) => /\/jobs\/\d+$/.test(a.href) && a.getBoundingClientRect().bottom < innerHeight);
		window.pressed = "";
		window.announced = 0;
		for (const a of links) a.addEventListener("click", (event) => { event.preventDefault(); pressed = a.href; });
		new MutationObserver(() => announced++).observe(document.getElementById("announce"), { attributes: true, childList: true, subtree: true });
		return links.map((a) => { const r = a.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; });
	})()`)
	require.Greater(t, len(aims), 10)
	for n := range clicks {
		if n%20 == 0 { // the list churns
			h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: fmt.Sprintf("Later %d", n)})
		}
		one := n * 7 % len(aims)
		p.do(chromedp.MouseClickXY(aims[one][0], aims[one][1]))
		require.True(t, evaluate[bool](p, fmt.Sprintf(`pressed === links[%d].href && (pressed = "") === ""`, one)), "click %d", n)
	}
	require.Positive(t, evaluate[int](p, "announced"), "nothing has happened meanwhile")
	p.sound()
}

// A page that is open for eight hours takes an event a second.
func TestBrowser_APageStaysSmall(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	id := text.Int(h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello"}))
	h.becomes("SELECT status = 'PROCESSED' FROM belfry.jobs")
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	other := p.another()
	p.goTo("/jobs/" + id)
	other.goTo("/")
	size := func() float64 {
		command(p, heapprofiler.CollectGarbage, cdp.Empty{})
		return command(p, runtime.GetHeapUsage, cdp.Empty{}).UsedSize
	}
	// As the tab that has the stream passes events on.
	hours := func(from, to int) {
		evaluate[bool](other, fmt.Sprintf(`(async () => {
			const pass = new BroadcastChannel("belfry " + document.body.dataset.live + " " + document.body.dataset.zone);
			for (let n = %d; n < %d; n++) {
				pass.postMessage({ cells: { %q: n + " rows", "1.rate": n + " messages/s" }, jobs: [%s] });
				if (n %% 500 === 0) await new Promise((next) => setTimeout(next, 5));
			}
			pass.close();
			return true;
		})()`, from, to, id+".status", id))
		want := fmt.Sprintf("%d rows", to-1)
		until(t, func() bool { return p.cell(id+".status") == want }, func() string { return p.cell(id+".status") + " is shown, not " + want })
	}
	hours(0, 3600)
	before := size()
	hours(3600, 9*3600)
	after := size()
	t.Logf("%.0f kB after an hour, %.0f kB after nine", before/1000, after/1000)
	require.Less(t, after, before+300_000, "bytes of the heap")
	p.sound()
}

// What others do is seen on the pages that show it, by whatever way it was done; it moves nothing.
func TestBrowser_WhatOthersDoIsSeen(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	h.exec("INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'")
	stopped, finished := h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Stopped"}), h.enqueue(job.Spec{Type: "inbox", Category: "operator_notice", Title: "Finished"})
	jobs := startBrowser(t).person(t, h.url)
	jobs.signIn("the-operator", password)
	lanes, senders, one := jobs.another(), jobs.another(), jobs.another()
	lanes.goTo("/lanes")
	senders.goTo("/senders")
	one.goTo("/jobs/" + text.Int(stopped))
	jobs.goTo("/jobs")
	all := []*tab{jobs, lanes, senders, one}
	for _, p := range all {
		evaluate[bool](p, `(() => {
			window.place = document.querySelector("main h1").getBoundingClientRect().top;
			const here = document.getElementById("announce");
			window.announced = 0;
			new MutationObserver(() => { if (!here.hidden && !announced) announced = Date.now(); }).observe(here, { attributes: true });
			return true;
		})()`)
	}

	// A job that never was under way at a look, and a way that no process of the API sees.
	began := time.Now()
	h.exec("SELECT belfry.abort($1, 'ann', 'wrong text')", stopped)
	h.becomes("SELECT status = 'ABORTED' FROM belfry.jobs WHERE id = $1", stopped)
	until(t, func() bool { return jobs.cell(text.Int(stopped)+".status") == "Stopped" }, func() string { return "the list does not show that the job was stopped" })
	one.shows("ann: job " + text.Int(stopped) + " aborted: show the page as it is now")
	t.Logf("seen by a page %d ms after the act was sent", evaluate[int64](one, "announced")-began.UnixMilli())

	h.run("lanes", "resume", "default", "--reason", "it is moved")
	lanes.shows("lane default resumed")
	until(t, func() bool { return jobs.cell(text.Int(finished)+".status") == "Delivered" }, func() string { return "the list does not show that the job was done" })
	require.True(t, evaluate[bool](senders, `document.getElementById("announce").hidden`), "a lane is no sender")

	// Everything is halted, on every page at once, and goes on.
	h.run("halt", "--reason", "wrong link")
	for _, p := range all {
		p.shows("everything is halted since")
		require.True(t, evaluate[bool](p, `document.querySelector("a.halt").hidden`))
		require.True(t, evaluate[bool](p, `place === document.querySelector("main h1").getBoundingClientRect().top`), "the page has moved")
	}
	h.run("unhalt")
	for _, p := range all {
		until(t, func() bool {
			return evaluate[bool](p, `document.getElementById("halted").hidden && !document.querySelector("a.halt").hidden`)
		}, func() string { return "a page still says that everything is halted" })
	}
	for _, p := range all {
		require.True(t, evaluate[bool](p, `place === document.querySelector("main h1").getBoundingClientRect().top`), "the page has moved")
		p.sound()
	}
}

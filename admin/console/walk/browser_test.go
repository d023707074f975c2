package walk_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// patience is how long anything on a page may take on a machine that does other things as well.
const patience = time.Minute

// until waits, as long as patience lasts, until something is so; never says what was seen instead.
func until(t *testing.T, so func() bool, never func() string) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); !so(); <-look.C {
		if time.Since(began) > patience {
			require.Fail(t, never())
		}
	}
}

// browser is Chromium; people in it share nothing.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp's handle of a browser is a context
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(dbtest.ChromiumProgram(t)),
		chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU, chromedp.Flag("disable-quic", true))
	if os.Getuid() == 0 { // Chromium's own sandbox does not start for root
		options = append(options, chromedp.NoSandbox)
	}
	allocated, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, leave := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = chromedp.Cancel(closing) // it may have ended with its last tab
		leave()
		end()
	})
	require.NoError(t, chromedp.Do(ctx))
	return &browser{ctx}
}

// tab is a page that somebody has open.
type tab struct {
	*testing.T

	ctx  context.Context //nolint:containedctx // chromedp's handle of a page is a context
	root string          // the console's address, without a slash at its end

	mu      sync.Mutex
	faults  []string // what the browser complained of
	foreign []string // what was asked of other servers
	streams int      // how many streams of events were asked for
	away    bool     // the test has its stream of events refused
}

// person opens a tab of somebody who is signed in nowhere.
func (b *browser) person(t *testing.T, root string) *tab {
	t.Helper()
	return open(t, b.ctx, root, chromedp.WithNewBrowserContext())
}

// another opens another tab of the same person.
func (p *tab) another() *tab {
	p.Helper()
	return open(p.T, p.ctx, p.root)
}

func open(t *testing.T, in context.Context, root string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	p := &tab{T: t, root: root}
	ctx, leave := chromedp.NewContext(in, options...)
	p.ctx = ctx
	t.Cleanup(leave)
	server, err := url.Parse(root)
	require.NoError(t, err)
	require.NoError(t, chromedp.Listen(ctx, func(event any) { p.note(server.Host, event) }))
	command(p, log.Enable, cdp.Empty{})
	command(p, network.Enable, network.EnableParams{})
	p.width(desk)
	return p
}

// note keeps what the browser says about the page.
func (p *tab) note(server string, event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		// That a page was refused is no fault of it, and a test's own business.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			p.faults = append(p.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		p.faults = append(p.faults, fmt.Sprintf("console.%s", e.Type))
	case *network.EventRequestWillBeSent:
		if to, err := url.Parse(e.Request.URL); err != nil || to.Host != server && to.Scheme != "data" && to.Scheme != "blob" {
			p.foreign = append(p.foreign, e.Request.URL)
		}
		if e.Type == network.ResourceTypeEventSource {
			p.streams++
		}
	case *network.EventResponseReceived:
		refused := p.away && strings.Contains(e.Response.URL, "/live")
		if e.Type != network.ResourceTypeDocument && e.Response.Status >= 400 && !refused {
			p.faults = append(p.faults, fmt.Sprintf("%d %s", e.Response.Status, e.Response.URL))
		}
	}
}

// sound requires that the browser has had nothing to complain of.
func (p *tab) sound() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p, p.faults)
	require.Empty(p, p.foreign, "asked of other servers")
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, steps...))
}

// goesAway tells that the stream of events is refused on purpose, until it is back.
func (p *tab) goesAway(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = is
}

// command has the browser do something that is no step of a person.
func command[P, R any](p *tab, what cdp.Command[P, R], with P) R {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	told, err := chromedp.Call(ctx, what, with)
	require.NoError(p, err)
	return told
}

// evaluate is what an expression of JavaScript comes to on the page, once a promise is kept.
func evaluate[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	is, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p, err)
	return is
}

// goTo opens a page.
func (p *tab) goTo(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.root + path))
}

// follow presses the link or the button of that name, which leads to another page, and returns the
// status of that.
func (p *tab) follow(name string) int64 {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	at := fmt.Sprintf(`//*[self::a or self::button][not(@aria-hidden)][normalize-space()=%q]`, name)
	at = "(//main" + at + " | //*[@role='status']" + at + " | //header[not(//main" + at + ")]" + at + ")[1]" // what the page is about goes first
	answer, err := chromedp.RunResponse(ctx, chromedp.Click(at))
	require.NoError(p, err, "%q on the page:\n%s", name, p.textIfAny())
	return answer.Status
}

// fill types into the field of that name.
func (p *tab) fill(name, text string) {
	p.Helper()
	p.do(chromedp.SetValue(fmt.Sprintf(`//main//*[@name=%q]`, name), text))
}

// dialog presses the link of that name, which opens a dialog on the page or replaces its content.
func (p *tab) dialog(name string) {
	p.Helper()
	at := fmt.Sprintf(`//a[normalize-space()=%q]`, name)
	p.do(chromedp.Click("(//dialog[@open]" + at + " | //main[not(//dialog[@open])]" + at + ")[1]"))
	until(p.T, func() bool { return evaluate[bool](p, `document.querySelector("#act[open] form") !== null`) }, func() string { return "no dialog opens: " + p.textIfAny() })
}

// enters types into the field of that name of the open dialog.
func (p *tab) enters(name, text string) {
	p.Helper()
	p.do(chromedp.SetValue(fmt.Sprintf(`//dialog[@open]//*[@name=%q]`, name), text))
}

// confirms types the number that the open dialog demands, if it demands one.
func (p *tab) confirms() {
	p.Helper()
	if label := evaluate[string](p, `document.querySelector("#act[open] label[for=in-count]")?.textContent ?? ""`); label != "" {
		p.enters("_count", strings.Fields(label)[1])
	}
}

// press presses the button or the link of that name in the open dialog.
func (p *tab) press(name string) {
	p.Helper()
	p.do(chromedp.Click(fmt.Sprintf(`//dialog[@open]//*[self::a or self::button][normalize-space()=%q]`, name)))
}

// text is what a person reads on the page.
func (p *tab) text() string {
	p.Helper()
	return strings.Join(strings.Fields(evaluate[string](p, "document.body.innerText")), " ")
}

func (p *tab) textIfAny() string {
	ctx, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + ' ' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// shows waits until the page shows the text.
func (p *tab) shows(text string) {
	p.Helper()
	var page string
	until(p.T, func() bool {
		page = p.text()
		return strings.Contains(page, text)
	}, func() string { return fmt.Sprintf("never showed %q, but:\n%s", text, page) })
}

// cell is the text of a live cell of the page.
func (p *tab) cell(name string) string {
	p.Helper()
	return strings.TrimSpace(evaluate[string](p, fmt.Sprintf(`document.querySelector('[data-cell=%q]')?.textContent ?? ""`, name)))
}

// bar is the text alternative of a job's bar.
func (p *tab) bar(id string) string {
	p.Helper()
	return evaluate[string](p, fmt.Sprintf(`document.querySelector('[data-bar="%s.bar"]')?.getAttribute("aria-label") ?? ""`, id))
}

// signIn signs the person in by name and password.
func (p *tab) signIn(name, password string) int64 {
	p.Helper()
	p.goTo("/sign-in")
	p.fill("name", name)
	p.fill("password", password)
	return p.follow("Sign in")
}

// phone and desk are the widths of screens, in pixels.
const (
	phone = 390
	desk  = 1440
)

func (p *tab) width(pixels int64) {
	p.Helper()
	command(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: pixels, Height: 900, DeviceScaleFactor: 1, Mobile: pixels == phone})
}

// axe is the source of axe-core.
var axe = sync.OnceValues(func() (string, error) {
	file, err := os.Open("testdata/axe.min.js.gz")
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return "", err
	}
	source, err := io.ReadAll(unpacked)
	return string(source), err
})

// dark and light are what people prefer.
const (
	light = "light"
	dark  = "dark"
)

func (p *tab) prefers(scheme string) {
	p.Helper()
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// accessible requires that axe finds nothing, and that the contrasts are good in dark too.
func (p *tab) accessible(what string) {
	p.Helper()
	source, err := axe()
	require.NoError(p, err)
	evaluate[bool](p, source+"; true")
	for scheme, rules := range map[string]string{light: "", dark: `, runOnly: ["color-contrast"]`} { // the rest does not depend on it
		p.prefers(scheme)
		found := evaluate[[]struct {
			ID    string `json:"id"`
			Help  string `json:"help"`
			Nodes []struct {
				HTML    string `json:"html"`
				Failure string `json:"failureSummary"`
			} `json:"nodes"`
		}](p, `axe.run({resultTypes: ["violations"]`+rules+`}).then((r) => r.violations)`)
		for _, f := range found {
			p.Errorf("%s, %s: %s (%s): %s: %s", what, scheme, f.Help, f.ID, f.Nodes[0].HTML, f.Nodes[0].Failure)
		}
	}
	p.prefers(light)
}

// fits requires that nothing is wider than a telephone.
func (p *tab) fits(what string) {
	p.Helper()
	p.width(phone)
	if over := evaluate[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		p.Errorf("%s is wider than a telephone by %d pixels", what, over)
	}
	p.width(desk)
}

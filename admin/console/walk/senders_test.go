package walk_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// opens shows a form of a sender by its name.
func (p *tab) opens(sender, name string) {
	p.Helper()
	p.do(chromedp.Click(`//article[.//h2[contains(., "` + sender + `")]]//summary[normalize-space()="` + name + `"]`))
}

// A sender is changed, paused and resumed by forms on the page, which shows what happened at the sender; relays follow.
func TestBrowser_ASenderIsChangedWhereItIsShown(t *testing.T) {
	t.Parallel()
	h := live(t, options{channels: 10})
	p := startBrowser(t).person(t, h.url)
	p.signIn("the-operator", password)
	h.becomes("SELECT EXISTS (SELECT FROM belfry.relays WHERE senders @> '{fcm,sms}')")
	p.goTo("/senders")
	p.opens("fcm", "Limits…")
	p.fill("rate_per_second", "70")
	require.EqualValues(t, http.StatusOK, p.follow("Change fcm"))
	p.shows("fcm: 70/s, 16 at once on each relay.")
	require.Equal(t, "/senders#sender-fcm", evaluate[string](p, "location.pathname + location.hash"))
	h.becomes("SELECT EXISTS (SELECT FROM belfry.relays WHERE limits @> '[{\"name\": \"fcm\", \"rate_per_second\": 70}]')")

	p.opens("fcm", "Limits…")
	p.fill("rate_per_second", "fast")
	require.EqualValues(t, http.StatusUnprocessableEntity, p.follow("Change fcm"))
	p.shows("Rate per second:")
	require.Equal(t, "fast", evaluate[string](p, `document.querySelector("details[open] [name=rate_per_second]").value`), "the form is open, with what was typed")
	p.accessible("a fault at a form")

	p.goTo("/senders")
	p.opens("sms", "Pause…")
	p.follow("Pause sms")
	p.shows("sms is paused.")
	h.becomes("SELECT paused_by = 'the-operator' FROM belfry.senders WHERE name = 'sms'")
	p.follow("Resume sms")
	p.shows("sms sends again.")
	p.sound()
}

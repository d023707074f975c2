package console

import (
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/settings"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// settingsShown is the number of objects of a card. Its list has all of them.
const settingsShown = 12

// settings renders the index of the settings.
func (h *handler) settings() {
	categories, err := listOf[channels.Category](h, views.CategoriesOperation, nil)
	cards := []settings.Card{
		h.listed(views.CategoriesOperation, settings.Categories(categories.Items, h.site()), err),
		h.listed(views.CategoriesOperation, settings.Approvals(categories.Items, h.site()), err), cardOf(h, "lanes list", settings.Lanes),
		h.limits(), cardOf(h, "channels segment list", settings.Segments), cardOf(h, "users list", settings.Users),
		cardOf(h, "tokens list", settings.Tokens), cardOf(h, "sessions list", settings.Sessions),
	}
	awaiting := url.Values{"awaiting_approval": {"on"}, "limit": {"100"}}
	if waiting, err := h.listJobs(awaiting); err == nil && len(waiting.Items) > 0 {
		cards[1].Links = h.action(jobsList, text.CountedTo(int64(len(waiting.Items)), 99, "job")+" waiting", parts.Without(awaiting, "limit"))
	}
	about := []string{"category", "lane", "limits", "user", "token", "segment"}
	h.show(http.StatusOK, "settings", layout{Title: "Settings", About: about, Page: cards})
}

// cardOf reads a list and returns its card.
func cardOf[T any](h *handler, list string, describe func([]T, parts.Site) settings.Card) settings.Card {
	rows, err := listOf[T](h, list, nil)
	return h.listed(list, describe(rows.Items, h.site()), err)
}

// listed returns the card of a list with its first rows. An error of the list is a fault of its card.
func (h *handler) listed(list string, card settings.Card, err error) settings.Card {
	if err != nil {
		card.Fault = h.failure(err)
	}
	if n := len(card.Rows); n > settingsShown {
		card.Rows = card.Rows[:settingsShown]
		card.Links = append(h.action(list, "All "+text.Grouped(int64(n)), nil), card.Links...)
	}
	return card
}

// limits returns the card of the limits.
func (h *handler) limits() settings.Card {
	a, err := h.query("limits list", nil)
	l, _ := a.out.(job.Limits)
	return h.listed("limits list", settings.Limits(l, h.site()), err)
}

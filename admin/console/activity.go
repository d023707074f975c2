package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// activityPage is the list of acts of operators and programs, the audit log.
type activityPage struct {
	parts.FilterBar

	Days                []views.ActDay
	Next, Newest, Sheet string
	Fault               template.HTML
}

// titlesOf returns the titles of the jobs of acts by id. Jobs that are much older than the newest one have none.
func (h *handler) titlesOf(list []job.ControlEvent) map[string]string {
	titles, newest := make(map[string]string), int64(0)
	for _, e := range list {
		if id, err := strconv.ParseInt(e.Name, 10, 64); err == nil && e.Subject == job.SubjectJob {
			newest = max(newest, id)
		}
	}
	if newest == 0 {
		return titles
	}
	found, _ := h.listJobs(url.Values{"before": {text.Int(newest + 1)}, "limit": {"100"}}) // else the acts have no titles
	for _, j := range found.Items {
		titles[text.Int(j.ID)] = j.Title
	}
	return titles
}

// activity renders the acts, newest first.
func (h *handler) activity() {
	o, _ := h.named(eventsOperation)
	values, served := h.filters(o)
	if served {
		return
	}
	who := append(h.names("users list"), h.names("tokens list")...)
	i := slices.IndexFunc(o.Params(), func(p operation.Param) bool { return p.Name == "of" })
	page := activityPage{Sheet: h.csvLink(o), FilterBar: h.filterBar(o, values,
		[]parts.Input{{Name: "by", Label: "Person", Kind: "search", Offers: who}},
		views.ActSubjects(o.Params()[i].Choices()), views.ActKinds(), parts.Since("When"))}
	if values.Get("before") != "" {
		page.Newest = h.linkWith(o, parts.Without(values, "before"))
	}
	list, err := listOf[job.ControlEvent](h, o.Name, values)
	status := http.StatusOK
	if err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	page.Days, page.Next = views.ActDays(list.Items, h.titlesOf(list.Items), h.site(), time.Now()), h.next(o, list, values)
	for _, day := range page.Days {
		for i := range day.Acts {
			day.Acts[i].ByWho = page.Action + "?" + url.Values{"by": {day.Acts[i].Who}}.Encode()
		}
	}
	h.show(status, "activity", layout{Title: "Activity", About: aboutOf(o, values), Page: page})
}

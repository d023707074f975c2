package console

import (
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/console/agenda"
	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/job/schedule"
)

// schedulePage is the calendar of pending jobs and occurrences of schedules, with the schedules behind it.
type schedulePage struct {
	parts.FilterBar

	Days        []agenda.Day
	Schedules   []agenda.Schedule
	Key         []draw.Series
	Next, Sheet string
	New         []tab // acts that plan something
	Fault       template.HTML
}

// schedule renders upcoming work: by default of a week.
func (h *handler) schedule() {
	o, _ := h.named(upcomingOperation)
	shown, served := h.filters(o)
	if served {
		return
	}
	values := maps.Clone(shown)
	for name, usual := range map[string]string{"until": "+168h", "limit": "300", "occurrences": "100"} {
		if values.Get(name) == "" {
			values.Set(name, usual)
		}
	}
	page := schedulePage{Key: agenda.Key(), Sheet: h.csvLink(o), FilterBar: h.filterBar(o, shown, nil, agenda.Ranges(),
		parts.Names("lane", "Lane", h.names("lanes list")), agenda.Held()),
		New: slices.Concat(h.action(enqueueOperation, "New notification", nil), h.action("schedules add", "Add a schedule", nil))}
	entries, err := listOf[upcoming.Entry](h, upcomingOperation, values)
	var schedules operation.List[schedule.Schedule]
	if err == nil {
		schedules, err = listOf[schedule.Schedule](h, schedulesList, nil)
	}
	status := http.StatusOK
	if err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	page.Days, page.Next = agenda.Days(entries.Items, schedules.Items, h.state.PausedLanes, h.site(), time.Now()), h.next(o, entries, shown)
	page.Schedules = agenda.Schedules(schedules.Items, shown.Get("lane"), h.site())
	h.show(status, "schedule", layout{Title: "Schedule", About: aboutOf(o, shown), Page: page})
}

// filters returns the filters of the request for a list. It reports whether it has served the list as CSV, or an
// invalid request.
func (h *handler) filters(o operation.Operation) (values url.Values, served bool) {
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return nil, true
	}
	if in, faults := read(o, values); len(faults) == 0 && h.req.URL.Query().Get(formParam) == "csv" {
		h.sheet(o, in, values)
		return nil, true
	}
	return values, false
}

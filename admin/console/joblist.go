package console

import (
	"cmp"
	"html/template"
	"maps"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobsPage is the list of jobs with its filters.
type jobsPage struct {
	parts.FilterBar

	Rows        []jobRow
	Selection   []tab // acts on the selected jobs
	Matching    []tab // acts on all jobs that match the filters
	Next, Sheet string
	Newest      string // the first page; "" on it
	New         []tab
	Fault       template.HTML
}

// jobRow is a job in a list.
type jobRow struct {
	ID, Title, About, Link string
	Status                 template.HTML
	Bar                    draw.Progress
	Recipients, Who        string
	When                   template.HTML
	Actions                []tab
}

// awaitingStatus is the value of the filter of the status for jobs that wait for approval.
const awaitingStatus = "WAITS"

// jobStatuses are the values of the filter of the status.
func jobStatuses() []parts.Option {
	return []parts.Option{{Text: "Any"}, {Value: awaitingStatus, Text: "Waits for approval"}, {Value: string(job.Pending), Text: "Waiting"},
		{Value: string(job.Running), Text: "Running"}, {Value: string(job.Processed), Text: "Delivering or delivered"},
		{Value: string(job.Aborted), Text: "Stopped"}, {Value: string(job.Failed), Text: "Failed"}, {Value: string(job.Expired), Text: "Expired"}}
}

// jobs renders the list of jobs.
func (h *handler) jobs() {
	o, _ := h.named(jobsList)
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	shown := maps.Clone(values)
	if values.Get("status") == awaitingStatus {
		values.Del("status")
		values.Set("awaiting_approval", "on")
	}
	if in, faults := read(o, values); len(faults) == 0 && h.req.URL.Query().Get(formParam) == "csv" {
		h.sheet(o, in, values)
		return
	}
	page := h.jobsPage(o, shown, values)
	list, err := h.listJobs(values)
	status := http.StatusOK
	if err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	for _, s := range list.Items {
		page.Rows = append(page.Rows, h.jobRow(s))
	}
	page.Next = h.next(o, list, shown)
	h.show(status, "jobs", layout{Title: "Jobs", About: aboutOf(o, values), Page: page})
}

// jobsPage returns the page without rows. shown are the filters as the form has them.
func (h *handler) jobsPage(o operation.Operation, shown, values url.Values) jobsPage {
	p := jobsPage{
		Sheet: h.csvLink(o), Matching: h.actionsOnMatching(values), New: h.action(enqueueOperation, "New notification", nil),
		FilterBar: h.filterBar(o, shown, []input{{Name: "text", Label: "Title", Kind: "search"}},
			parts.Choice{Name: "status", Label: "Status", Options: jobStatuses()},
			parts.Names("category", "Category", h.names(views.CategoriesOperation)),
			parts.Names("lane", "Lane", h.names("lanes list")), parts.Since("Requested")),
	}
	if shown.Get("before") != "" {
		p.Newest = h.linkWith(o, parts.Without(shown, "before"))
	}
	for _, act := range listActs() {
		if o, allowed := h.allowed(act.operation); allowed {
			p.Selection = append(p.Selection, tab{Name: act.name + "…", Link: h.link(barePath(o))})
		}
	}
	return p
}

// filterBar returns the filter of a list. shown are the filters as the form has them.
func (h *handler) filterBar(o operation.Operation, shown url.Values, texts []input, filters ...parts.Choice) parts.FilterBar {
	return parts.NewFilterBar(h.link(h.req.URL.Path), shown, func(v url.Values) string { return h.linkWith(o, v) }, texts, filters...)
}

// listJobs returns the jobs that match a filter.
func (h *handler) listJobs(filter url.Values) (operation.List[jobs.JobState], error) {
	return listOf[jobs.JobState](h, jobsList, filter)
}

// jobRows returns the jobs that match a filter as rows.
func (h *handler) jobRows(filter url.Values) (rows []jobRow, err error) {
	list, err := h.listJobs(filter)
	for _, s := range list.Items {
		rows = append(rows, h.jobRow(s))
	}
	return rows, err
}

// jobRow returns a job as a row.
func (h *handler) jobRow(s jobs.JobState) jobRow {
	id := text.Int(s.ID)
	r := jobRow{
		ID: id, Title: text.OneLine(s.Title, 120), About: words.AboutJob(s.Lane, "Job "+id, s.Type, s.Category),
		Link: h.pageFor("job", id), Status: badge(views.JobStatus(s, h.held(s)), id+".status"), Bar: views.JobProgress(s), Who: s.RequestedBy,
		When: words.When(h.zone, *cmp.Or(s.FinishedAt, s.StartedAt, &s.ScheduleAt)),
	}
	if s.RowsWritten > 0 || s.AtRest() {
		r.Recipients = text.Grouped(s.RowsWritten)
	}
	if s.AwaitsApproval() {
		r.Actions = h.action("jobs approve", "Approve…", url.Values{"id": {id}, "if_version": {text.Int(s.Version)}})
	}
	return r
}

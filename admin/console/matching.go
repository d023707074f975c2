package console

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	jobsList = "jobs list"
	// matchingParam contains the filter of an act on all jobs that match it. The form has their ids.
	matchingParam = "_matching"
	// maxMatching is the largest number of jobs of one form.
	maxMatching = 1000
	// maxNamed is the largest number of names in a title.
	maxNamed = 5
)

// listAct is an act on several jobs of a list, with the statuses of the jobs that it may change.
type listAct struct {
	operation, name string
	statuses        []job.Status
}

func listActs() []listAct {
	return []listAct{
		{"abort", "Stop", []job.Status{job.Pending, job.Running, job.Processed, job.Failed}},
		{"resume", "Resume", []job.Status{job.Aborted}},
		{"retry", "Retry", []job.Status{job.Failed, job.Expired}},
		{"recall", "Recall", []job.Status{job.Aborted, job.Processed, job.Failed}},
	}
}

// actionsOnMatching returns links to acts on all jobs that match a list's filter. It omits acts that no
// requested status allows.
func (h *handler) actionsOnMatching(values url.Values) (actions []tab) {
	filter := make(url.Values)
	for name, texts := range values {
		if name != "limit" && !slices.Contains(operation.Pagers(), name) {
			filter[name] = texts
		}
	}
	if len(filter) == 0 {
		return nil
	}
	statuses := filter["status"]
	for _, act := range listActs() {
		fits := len(statuses) == 0 || slices.ContainsFunc(act.statuses, func(s job.Status) bool { return slices.Contains(statuses, string(s)) })
		if o, allowed := h.allowed(act.operation); allowed && fits {
			actions = append(actions, h.matchingLink(o, act.name, filter.Encode()))
		}
	}
	return actions
}

// matchingLink returns the link to an act on all jobs that match a filter.
func (h *handler) matchingLink(o operation.Operation, name, filter string) tab {
	return tab{Name: name + " all that match…", Link: h.link(barePath(o)) + "?" + url.Values{matchingParam: {filter}}.Encode()}
}

// matching returns the newest jobs that match an encoded filter.
func (h *handler) matching(encoded string) (list operation.List[jobs.JobState], err error) {
	filter, err := url.ParseQuery(encoded)
	if err != nil {
		return list, operation.Invalid("", "invalid filter: %s", err)
	}
	filter.Set("limit", strconv.Itoa(maxMatching))
	return h.listJobs(filter)
}

// noteMatching adds the number of jobs that match the filter of a completed stop and are not stopped, such as
// jobs that were enqueued after the form was rendered.
func (h *handler) noteMatching(o operation.Operation, page *operationPage) {
	filter := h.req.PostForm.Get(matchingParam)
	if filter == "" {
		return
	}
	now, err := h.matching(filter)
	n := int64(0)
	for _, j := range now.Items {
		if !j.AtRest() {
			n++
		}
	}
	if err != nil || n == 0 {
		return
	}
	page.Result.note("%s of those that match the filter now can still be stopped; they came after the form was counted, or did not fit in it.",
		text.Counted(n, "job"))
	page.Actions = append(page.Actions, h.matchingLink(o, "Stop", filter))
}

// match adds the ids of the jobs that match the filter of the form's address to values. It reports whether
// there are more.
func (h *handler) match(o operation.Operation, values url.Values) (more bool, err error) {
	encoded := h.req.URL.Query().Get(matchingParam)
	args := arguments(o)
	if encoded == "" || len(args) == 0 || !args[0].Repeated || len(values[args[0].Name]) > 0 {
		return false, nil
	}
	page, err := h.matching(encoded)
	if err != nil {
		return false, err
	}
	switch {
	case len(page.Items) == 0 && page.Next != "":
		return false, operation.Invalid("", "none of the newest jobs matches all filters; add a status or a time")
	case len(page.Items) == 0:
		return false, operation.Invalid("", "no job matches the filter any more")
	}
	for _, j := range page.Items {
		values.Add(args[0].Name, text.Int(j.ID))
	}
	return page.Next != "", nil
}

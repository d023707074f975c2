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
	// matchingParam contains the filter of an act on all jobs that match it. The form is bound to their ids.
	matchingParam = "_matching"
	// maxMatching is the largest number of jobs of one form.
	maxMatching = 1000
	// maxNamed is the largest number of names in a title.
	maxNamed = 5
)

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
	of := func(these ...job.Status) bool {
		return len(statuses) == 0 || slices.ContainsFunc(these, func(s job.Status) bool { return slices.Contains(statuses, string(s)) })
	}
	for _, act := range []struct {
		operation, name string
		fits            bool
	}{
		{"abort", "Stop", of(job.Pending, job.Running, job.Processed, job.Failed)},
		{"resume", "Resume", of(job.Aborted)},
		{"retry", "Retry", of(job.Failed, job.Expired)},
		{"recall", "Recall", of(job.Aborted, job.Processed, job.Failed)},
	} {
		if o, allowed := h.allowed(act.operation); allowed && act.fits {
			actions = append(actions, tab{Name: act.name + " all that match…",
				Link: h.link(barePath(o)) + "?" + url.Values{matchingParam: {filter.Encode()}}.Encode()})
		}
	}
	return actions
}

// match adds the ids of the jobs that match the filter of the form's address to values. It reports whether
// there are more.
func (h *handler) match(o operation.Operation, values url.Values) (more bool, err error) {
	encoded := h.req.URL.Query().Get(matchingParam)
	args := arguments(o)
	if encoded == "" || len(args) == 0 || !args[0].Repeated || len(values[args[0].Name]) > 0 {
		return false, nil
	}
	filter, err := url.ParseQuery(encoded)
	if err != nil {
		return false, operation.Invalid("", "invalid filter: %s", err)
	}
	filter.Set("limit", strconv.Itoa(maxMatching))
	a, err := h.query(jobsList, filter)
	if err != nil {
		return false, err
	}
	page, _ := a.out.(operation.List[jobs.JobState])
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

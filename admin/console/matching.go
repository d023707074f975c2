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
	// matchingOf is the parameter of an act's form by which it is about all jobs that pass the
	// filter in it: the form has their ids, and what is done is done to them.
	matchingOf = "_matching"
	// mostMatching is how many jobs one form is about.
	mostMatching = 1000
	// mostNamed is how many things a title names.
	mostNamed = 5
)

// unmatchedError is what is wrong with a filter, or that nothing passes it.
type unmatchedError string

// Error says it.
func (e unmatchedError) Error() string { return string(e) }

// actsOnMatching are what may be done about all jobs that a narrowed list has, whatever page of it is
// shown: acts that jobs of the statuses asked for allow.
func (v *visit) actsOnMatching(values url.Values) (acts []tab) {
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
		{"abort", "Abort", of(job.Pending, job.Running, job.Processed, job.Failed)},
		{"resume", "Resume", of(job.Aborted)},
		{"retry", "Retry", of(job.Failed, job.Expired)},
		{"recall", "Take back", of(job.Aborted, job.Processed, job.Failed)},
	} {
		o, there := v.named(act.operation)
		if there && act.fits && o.Allowed(v.who.Role) == nil {
			acts = append(acts, tab{Name: act.name + " all that match…", Link: v.link(barePath(o)) + "?" + url.Values{matchingOf: {filter.Encode()}}.Encode()})
		}
	}
	return acts
}

// match has values name the jobs that pass the filter of the form's address, if it has one, and says
// whether there are more.
func (v *visit) match(o operation.Operation, values url.Values) (more bool, err error) {
	encoded := v.req.URL.Query().Get(matchingOf)
	list, there := v.named(jobsList)
	args := arguments(o)
	if encoded == "" || !there || len(args) == 0 || !args[0].Repeated || len(values[args[0].Name]) > 0 {
		return false, nil
	}
	filter, err := url.ParseQuery(encoded)
	if err != nil {
		return false, unmatchedError("the filter was not understood: " + err.Error())
	}
	filter.Set("limit", strconv.Itoa(mostMatching))
	in, faults := read(list, filter)
	for name, fault := range faults {
		return false, unmatchedError(name + ": " + fault)
	}
	out, err := v.do(v.req.Context(), list, in)
	if err != nil {
		return false, err
	}
	page, is := out.(operation.List[jobs.JobState])
	if !is {
		panic("jobs list tells no jobs")
	}
	if len(page.Items) == 0 && page.Next != "" {
		return false, unmatchedError("none of the newest jobs passes all filters; a status or a time narrows it")
	}
	if len(page.Items) == 0 {
		return false, unmatchedError("no job passes the filter any more")
	}
	for _, j := range page.Items {
		values.Add(args[0].Name, text.Int(j.ID))
	}
	return page.Next != "", nil
}

package console

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/console/views"
)

// jobNumber matches a job's id as people write it: 17, job 17, #17.
var jobNumber = regexp.MustCompile(`^(?i:job)? *#?([1-9][0-9]{0,18})$`)

// jump redirects to the object of a search: a job by id, a group by id, a person by external id, a schedule,
// lane, category or sender by name, and jobs by a part of their title.
func (h *handler) jump() {
	q := strings.TrimSpace(h.req.URL.Query().Get("q"))
	if to := h.resolve(q); to != "" {
		http.Redirect(h.w, h.req, to, http.StatusSeeOther)
		return
	}
	h.problem(http.StatusNotFound,
		fmt.Errorf("no match for %q: search by the id or title of a job, group id, external id, or the name of a schedule, lane, "+
			"category or sender", q))
}

// resolve returns the address of a search's match, or "".
func (h *handler) resolve(q string) string {
	if number := jobNumber.FindStringSubmatch(q); number != nil {
		return h.pageFor("job", number[1])
	}
	if _, err := uuid.Parse(q); err == nil {
		return h.pageFor("group", q)
	}
	for _, of := range []struct{ list, kind string }{{schedulesList, "schedule"}, {"lanes list", "lane"},
		{views.CategoriesOperation, "category"}, {views.SendersOperation, "sender"}} {
		if slices.Contains(h.names(of.list), q) {
			return h.pageFor(of.kind, q)
		}
	}
	if q == "" {
		return ""
	}
	if _, err := h.query(views.PersonOperation, url.Values{"external_id": {q}, "limit": {"1"}}); err == nil {
		return h.pageFor("person", q)
	}
	if list, err := h.listJobs(url.Values{"text": {q}, "limit": {"1"}}); err == nil && len(list.Items) > 0 {
		return h.link("/jobs") + "?" + url.Values{"text": {q}}.Encode()
	}
	return ""
}

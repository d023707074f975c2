package console

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/google/uuid"
)

// jobNumber matches a job's id as people write it: 17, job 17, #17.
var jobNumber = regexp.MustCompile(`^(?i:job)? *#?([1-9][0-9]{0,18})$`)

// jump redirects to the object of a search: a job by id, a group by id, a person by external id, and a
// schedule, lane, category or sender by name.
func (h *handler) jump() {
	q := strings.TrimSpace(h.req.URL.Query().Get("q"))
	if to := h.resolve(q); to != "" {
		http.Redirect(h.w, h.req, to, http.StatusSeeOther)
		return
	}
	h.problem(http.StatusNotFound, fmt.Errorf("no match for %q: search by job id, group id, external id, or the name of a schedule, lane, category or sender", q))
}

// resolve returns the address of a search's match, or "".
func (h *handler) resolve(q string) string {
	if number := jobNumber.FindStringSubmatch(q); number != nil {
		return h.to("jobs show", "id", number[1])
	}
	if _, err := uuid.Parse(q); err == nil {
		return h.to(jobsList, "group", q)
	}
	for _, place := range []struct{ list, page, by string }{
		{"schedules list", "schedules show", "name"}, {"lanes list", jobsList, "lane"}, {"categories list", jobsList, "category"}, {"senders list", "senders events", "sender"},
	} {
		if h.listed(place.list, q) {
			return h.to(place.page, place.by, q)
		}
	}
	if o, there := h.named("channels show"); there && q != "" {
		if in, faults := read(o, map[string][]string{"external_id": {q}, "limit": {"1"}}); len(faults) == 0 {
			if _, err := h.do(h.req.Context(), o, in); err == nil {
				return h.to("channels show", "external_id", q)
			}
		}
	}
	return ""
}

// to returns the address of an operation's page about one object, or "" without the operation.
func (h *handler) to(name, by, value string) string {
	o, there := h.named(name)
	if !there {
		return ""
	}
	return h.linkWith(o, map[string][]string{by: {value}})
}

// listed reports whether a list contains a name. It is false if the list cannot be read.
func (h *handler) listed(name, thing string) bool {
	o, there := h.named(name)
	if !there {
		return false
	}
	out, err := h.do(h.req.Context(), o, o.NewInput())
	if err != nil {
		return false
	}
	offers, err := o.Suggestions(out, "")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(offers, func(offer operation.Suggestion) bool { return offer.Value == thing })
}

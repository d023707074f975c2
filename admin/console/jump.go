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

// jobNumber is how people write which job they mean: 17, job 17, #17.
var jobNumber = regexp.MustCompile(`^(?i:job)? *#?([1-9][0-9]{0,18})$`)

// jump leads to what somebody has typed: a job by its number, a group by its id, by their names
// schedules, lanes, categories and senders, and a person by external id, as who asks sees them.
func (v *visit) jump() {
	q := strings.TrimSpace(v.req.URL.Query().Get("q"))
	if to := v.meant(q); to != "" {
		http.Redirect(v.w, v.req, to, http.StatusSeeOther)
		return
	}
	v.problem(http.StatusNotFound, fmt.Errorf("nothing is called %q; what is understood: the number of a job, the id of a group, the name of a schedule, a lane, a category or a sender, and the external id of a person", q))
}

// meant is the address of what a text means; "": nothing.
func (v *visit) meant(q string) string {
	if number := jobNumber.FindStringSubmatch(q); number != nil {
		return v.to("jobs show", "id", number[1])
	}
	if _, err := uuid.Parse(q); err == nil {
		return v.to(jobsList, "group", q)
	}
	for _, place := range []struct{ list, page, by string }{
		{"schedules list", "schedules show", "name"}, {"lanes list", jobsList, "lane"}, {"categories list", jobsList, "category"}, {"senders list", "senders events", "sender"},
	} {
		if v.listed(place.list, q) {
			return v.to(place.page, place.by, q)
		}
	}
	if o, there := v.named("channels show"); there && q != "" {
		if in, faults := read(o, map[string][]string{"external_id": {q}, "limit": {"1"}}); len(faults) == 0 {
			if _, err := v.do(v.req.Context(), o, in); err == nil {
				return v.to("channels show", "external_id", q)
			}
		}
	}
	return ""
}

// to is the address of an operation's page about one thing; "": there is none.
func (v *visit) to(name, by, value string) string {
	o, there := v.named(name)
	if !there {
		return ""
	}
	return v.linkWith(o, map[string][]string{by: {value}})
}

// listed reports whether a list has something of that name. A list that cannot be read has not.
func (v *visit) listed(name, thing string) bool {
	o, there := v.named(name)
	if !there {
		return false
	}
	out, err := v.do(v.req.Context(), o, o.NewInput())
	if err != nil {
		return false
	}
	offers, err := o.Offered(out, "")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(offers, func(offer operation.Offer) bool { return offer.Value == thing })
}

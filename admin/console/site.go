package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/channels"
)

// site runs operations for the caller of a page of package views.
type site struct{ *handler }

// viewed returns the request for a page of package views.
func (h *handler) viewed() views.Request {
	return views.Request{Site: site{h}, Zone: h.zone, Values: h.req.URL.Query(), Here: h.link(h.req.URL.RequestURI()),
		Outcome: h.takeOutcome()}
}

// Query implements views.Site.
func (s site) Query(ctx context.Context, name string, values url.Values) (any, error) {
	a, err := s.queryWithin(ctx, name, values)
	return a.out, err
}

// Link implements views.Site.
func (s site) Link(name string, values url.Values) string {
	o, allowed := s.allowed(name)
	if !allowed {
		return ""
	}
	return s.linkWith(o, values)
}

// delivery renders the senders, the errors, the carrier and the relays.
func (h *handler) delivery() {
	o, _ := h.named(views.SendersOperation)
	if h.req.URL.Query().Get(formParam) == "csv" {
		h.sheet(o, o.NewInput(), nil)
		return
	}
	h.extendDeadline(o)
	if act, there := h.named("dead-letters " + h.req.URL.Query().Get(views.PlanParam)); there {
		h.extendDeadline(act)
	}
	var page struct {
		views.Delivery
		faulty

		Sheet string
	}
	var err error
	page.Delivery, err = views.NewDelivery(h.req.Context(), h.viewed())
	page.Sheet = h.csvLink(o)
	h.show(page.set(h, err), "delivery", layout{Title: "Delivery", About: aboutOf(o, nil), Page: page})
}

// person renders a person, or the empty field for one.
func (h *handler) person() {
	o, _ := h.named(views.PersonOperation)
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	asked := len(values["external_id"])+len(values["channel"]) > 0
	if in, faults := read(o, values); asked && len(faults) == 0 && h.req.URL.Query().Get(formParam) == "csv" {
		h.sheet(o, in, values)
		return
	}
	request := h.viewed()
	var page struct {
		faulty

		Query, Sheet string
		Asked        bool
		Done         *views.Outcome
		Person       *views.Person // nil without a person
	}
	page.Query, page.Sheet, page.Asked, page.Done = values.Get("external_id"), h.csvLink(o), asked,
		cmp.Or(request.Outcome.At(views.OptOutPlace), request.Outcome.At(""))
	title := "Person"
	if asked {
		var a answer
		a, err = h.query(views.PersonOperation, values)
		if found, is := a.out.(accounts.Person); is && err == nil {
			page.Person = views.NewPerson(h.req.Context(), request, found, values)
			title += " " + page.Person.Name
		}
	}
	status := page.set(h, err)
	if errors.Is(err, channels.ErrNoChannel) {
		page.Fault = "No person has this id. It may be misspelled, or the person was erased."
	}
	h.show(status, "person", layout{Title: title, About: aboutOf(o, values), Page: page})
}

package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// handler serves one request of an authenticated caller.
type handler struct {
	*Console

	w      http.ResponseWriter
	req    *http.Request
	caller *api.Caller
	who    api.SignedInAs   // the caller
	state  operation.Status // at the start of the request; zero if the query failed

	// reserved runs the reads of the page on the connections that are reserved for operations that stop something.
	reserved bool

	outcome *views.Outcome // of the act that led to the page; nil without one
	status  int            // of a page with the fault of an act; 0 without one
}

// writeSlack is the time for writing a page after its operation has ended.
const writeSlack = 30 * time.Second

// extendDeadline sets the write deadline to the operation's time limit.
func (h *handler) extendDeadline(o operation.Operation) {
	_ = http.NewResponseController(h.w).SetWriteDeadline(time.Now().Add(o.Limit() + writeSlack)) // recorders of tests support none
}

// layout is the data of the template around every page.
type layout struct {
	Title string
	Who   *api.SignedInAs // nil on anonymous pages
	Nav   []tab
	New   []tab    // the form of a new notification, if the caller may enqueue
	About []string // the control events that concern the page (see aboutOf)
	Place string   // the position in the stream of events at the start of the request
	Page  any
	Zone  string // the chosen zone; "" without a choice
	Clock string // the name of the zone of displayed times
	Here  string // the page's address
	Halt  []tab  // empty if the caller may not halt
	Halts halted
}

// halted is the banner of a halt.
type halted struct {
	Text string // "" without a halt
	Lift []tab
}

// tab is a named link.
type tab = parts.Link

// site returns what pages know about the reader.
func (h *handler) site() parts.Site {
	return parts.Site{Zone: h.zone, Action: h.action, Page: h.pageFor}
}

// authenticated serves a page to its caller. See authenticatedFor.
func (c *Console) authenticated(serve func(*handler)) http.HandlerFunc {
	return c.authenticatedFor(func(*http.Request) string { return "" }, serve)
}

// authenticatedFor redirects to the sign-in page unless the request has a caller. Events do not extend a
// session: an open page receives them without the person. actOf returns the name of the request's operation. If it
// stops something, the reserved connections authenticate the caller and, if the caller may run it, read the page,
// so that other requests do not delay it.
func (c *Console) authenticatedFor(actOf func(*http.Request) string, serve func(*handler)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		events := req.URL.Path == "/live"
		act, _ := c.named(actOf(req))
		var caller *api.Caller
		var err error
		if act.Stops {
			caller, err = c.api.StopCaller(req)
		} else {
			caller, err = c.api.Caller(req, events)
		}
		switch {
		case err != nil:
			setRetryAfter(w, err)
			c.problem(w, req, statusFor(err), err)
		case caller != nil:
			own := *c
			own.zone, own.role = zoneOf(req), caller.Role
			h := &handler{Console: &own, w: w, req: req, caller: caller, who: api.SignedInAs{Name: caller.Name, Role: caller.Role}}
			h.reserved = act.Stops && act.Allowed(caller.Role) == nil
			h.state = h.systemStatus(act.Stops)
			serve(h)
		case req.Method != http.MethodGet:
			c.signedOut(w, req)
		case events:
			http.Error(w, "not signed in", http.StatusUnauthorized)
		default:
			http.Redirect(w, req, c.link("/sign-in")+"?"+url.Values{"return_to": {c.link(req.URL.RequestURI())}}.Encode(), http.StatusSeeOther)
		}
	}
}

// show renders a page. It panics if the template fails, and the API's handler logs the panic. Responses to GET are
// compressed; a secret is only in a response to POST.
func (c *Console) show(w http.ResponseWriter, req *http.Request, status int, page string, f layout) {
	if f.Who != nil {
		f.Nav = c.navigation(req)
	}
	var b bytes.Buffer
	text.Must(0, c.pages[page].Execute(&b, f))
	content := text.CleanHTML(b.Bytes())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept-Encoding")
	if req.Method == http.MethodGet && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		content = zip(content)
	}
	w.WriteHeader(status)
	_, _ = w.Write(content)
}

// show renders a page for the caller.
func (h *handler) show(status int, page string, f layout) {
	f.Who, f.Clock, f.Here = &h.who, h.clock(), h.link(h.req.URL.RequestURI())
	if h.zone != nil {
		f.Zone = h.zone.String()
	}
	f.New = h.action(enqueueOperation, "New notification", nil)
	f.Halt = h.action("halt", "Halt everything", nil)
	f.Halts = halted{Text: h.plain(h.state.HaltLine()), Lift: h.action("unhalt", "End the halt…", nil)}
	f.Place = h.state.Place
	status = cmp.Or(h.status, status)
	h.Console.show(h.w, h.req, status, page, f)
}

// systemStatus returns the system status. It is zero if the query fails, and the page is shown without it. With brief
// the query fails after partTimeout.
func (h *handler) systemStatus(brief bool) (s operation.Status) {
	if h.req.URL.Path != "/live" {
		ctx := h.req.Context()
		if brief {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, partTimeout)
			defer cancel()
		}
		a, _ := h.queryWithin(ctx, "status", nil)
		s, _ = a.out.(operation.Status)
	}
	return s
}

// problemPage is the page of an error.
type problemPage struct {
	Status int
	Text   template.HTML
	Back   string // the sign-in page that leads back; "" if signing in does not help
}

// signedOut rejects a form that was sent without a session. The page links to the sign-in page, which leads
// back to the form.
func (c *Console) signedOut(w http.ResponseWriter, req *http.Request) {
	to := c.link(req.URL.RequestURI())
	if req.URL.Path == "/time-zone" { // it has no page
		to = c.link("/")
	}
	page := problemPage{Status: http.StatusUnauthorized, Text: "the session has ended; nothing was done",
		Back: c.link("/sign-in") + "?" + url.Values{"return_to": {to}}.Encode()}
	c.show(w, req, http.StatusUnauthorized, "problem", layout{Title: http.StatusText(http.StatusUnauthorized), Page: page})
}

// problem renders an error for an anonymous client.
func (c *Console) problem(w http.ResponseWriter, req *http.Request, status int, err error) {
	c.show(w, req, status, "problem", layout{Title: http.StatusText(status), Page: problemPage{Status: status, Text: c.failure(err)}})
}

// problem renders an error for the caller.
func (h *handler) problem(status int, err error) {
	h.show(status, "problem", layout{Title: http.StatusText(status), Page: problemPage{Status: status, Text: h.failure(err)}})
}

// notFound renders the page of an unknown address.
func (h *handler) notFound() {
	h.problem(http.StatusNotFound, errors.New("there is no page at this address"))
}

// setRetryAfter sets the header with the time after which a refused request may be sent again, if it is known.
func setRetryAfter(w http.ResponseWriter, err error) {
	if refused := new(api.RefusedError); errors.As(err, &refused) && refused.After > 0 {
		w.Header().Set("Retry-After", text.Int(int64(math.Ceil(refused.After.Seconds()))))
	}
}

// statusFor returns the HTTP status of an error, as the API does.
func statusFor(err error) int {
	if refused := new(api.RefusedError); errors.As(err, &refused) {
		return refused.Status
	}
	return api.StatusOf(db.KindOf(err))
}

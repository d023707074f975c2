package console

import (
	"bytes"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/errkind"
)

// visit is a request by somebody who is signed in.
type visit struct {
	*Console

	w      http.ResponseWriter
	req    *http.Request
	caller *api.Caller
	who    api.SignedInAs // the caller
	state  jobs.Status    // when the page was begun; the zero value: it could not be told
}

// slack is what a page may take beside its operation.
const slack = 30 * time.Second

// allow gives the answer as long as the operation may take.
func (v *visit) allow(o operation.Operation) {
	_ = http.NewResponseController(v.w).SetWriteDeadline(time.Now().Add(o.Limit() + slack)) // one of a test has none
}

// frame is what surrounds every page.
type frame struct {
	Title string
	Who   *api.SignedInAs // nil: nobody is signed in
	Nav   []tab
	More  []tab
	About []string // of which events there is news on the page (see about)
	Place string   // where the events ended when the page was begun
	Plots bool     // it draws what the stream brings
	Page  any
	Zone  string // the zone that was chosen; "": none
	Clock string // in which zone times are, in words
	Here  string // the address of the page
	Halt  string // the way to halt everything; "": who asks may not
	Halts halted
}

// halted says that everything is halted.
type halted struct {
	Text string // "": it is not
	Lift tab    // its Link is "": who asks may not
}

// tab is a place to go to.
type tab struct {
	Name, Link string
	Here       bool
}

// signedIn redirects to the sign-in page unless the request has a caller. Events do not extend a
// session: an open page receives them without the person.
func (c *Console) signedIn(serve func(*visit)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		events := req.URL.Path == "/live"
		caller, err := c.api.Caller(req, events)
		switch {
		case err != nil:
			c.problem(w, req, statusFor(err), err)
		case caller != nil:
			own := *c
			own.zone, own.role = zoneOf(req), caller.Role
			v := &visit{&own, w, req, caller, api.SignedInAs{Name: caller.Name, Role: caller.Role}, jobs.Status{}}
			v.state = v.status()
			serve(v)
		case req.Method != http.MethodGet:
			c.signedOut(w, req)
		case events:
			http.Error(w, "not signed in", http.StatusUnauthorized)
		default:
			http.Redirect(w, req, c.link("/sign-in")+"?"+url.Values{"return_to": {c.link(req.URL.RequestURI())}}.Encode(), http.StatusSeeOther)
		}
	}
}

// places are where the frame leads to, and the operations behind them.
func places() (nav, more []struct{ name, operation string }) {
	type place = struct{ name, operation string }
	return []place{{"Jobs", jobsList}, {"Schedules", "schedules list"}, {"Upcoming", upcomingOf}, {"Lanes", "lanes list"}, {"Dead letters", "dead-letters list"}, {"Senders", "senders list"}},
		[]place{
			{"Person", personOf}, {"New notification", "enqueue"}, {"Send one message", "send"}, {"Carrier", "transport status"}, {"Categories", "categories list"}, {"Segments", "channels segment list"},
			{"Limits", "limits list"}, {"Check-up", "doctor"}, {"Audit log", "events list"}, {"Users", "users list"}, {"Sessions", "sessions list"}, {"Tokens", "tokens list"}, {"Erase a person", "channels forget"},
		}
}

// show answers with a page.
func (c *Console) show(w http.ResponseWriter, req *http.Request, status int, page string, f frame) {
	if f.Who != nil {
		nav, more := places()
		f.Nav = []tab{{"Now", c.link("/"), req.URL.Path == "/"}}
		for _, p := range nav {
			if o, there := c.named(p.operation); there && o.Allowed(f.Who.Role) == nil {
				f.Nav = append(f.Nav, tab{p.name, c.link(pathOf(o)), under(req.URL.Path, pathOf(o))})
			}
		}
		for _, p := range more {
			if o, there := c.named(p.operation); there && o.Allowed(f.Who.Role) == nil {
				f.More = append(f.More, tab{p.name, c.link(pathOf(o)), under(req.URL.Path, pathOf(o))})
			}
		}
	}
	var b bytes.Buffer
	if err := c.pages[page].Execute(&b, f); err != nil {
		panic(err) // the API's handler logs it
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// under reports whether a page is one of a place's.
func under(path, place string) bool {
	return path == place || len(path) > len(place) && path[:len(place)+1] == place+"/"
}

// show answers with a page to who is signed in.
func (v *visit) show(status int, page string, f frame) {
	f.Who, f.Clock, f.Here = &v.who, v.clock(), v.link(v.req.URL.RequestURI())
	if v.zone != nil {
		f.Zone = v.zone.String()
	}
	if halt, there := v.named("halt"); there && halt.Allowed(v.who.Role) == nil {
		f.Halt = v.linkWith(halt, nil)
	}
	f.Halts, f.Place = v.halted(), v.state.Place
	v.Console.show(v.w, v.req, status, page, f)
}

// status is whether belfry goes on. If that cannot be told, the page is shown without.
func (v *visit) status() (s jobs.Status) {
	if o, there := v.named("status"); there && v.req.URL.Path != "/live" {
		out, _ := v.do(v.req.Context(), o, o.NewInput())
		s, _ = out.(jobs.Status)
	}
	return s
}

// halted is whether everything is.
func (v *visit) halted() halted {
	h := halted{Text: v.plain(v.state.HaltLine())}
	if lift, there := v.named("unhalt"); there && lift.Allowed(v.who.Role) == nil {
		h.Lift = tab{Name: "End the halt…", Link: v.linkWith(lift, nil)}
	}
	return h
}

// failed is a page that tells an error.
type failed struct {
	Status int
	Text   template.HTML
	Back   string // the way to sign in, and back; "": that is not it
}

// signedOut answers what was sent without a session: nothing is done, and the way to sign in leads
// back to the form. The script has kept what was typed, and says so.
func (c *Console) signedOut(w http.ResponseWriter, req *http.Request) {
	to := c.link(req.URL.RequestURI())
	if req.URL.Path == "/time-zone" { // there is no page at it
		to = c.link("/")
	}
	page := failed{Status: http.StatusUnauthorized, Text: "you are not signed in any more; nothing was done", Back: c.link("/sign-in") + "?" + url.Values{"return_to": {to}}.Encode()}
	c.show(w, req, http.StatusUnauthorized, "problem", frame{Title: http.StatusText(http.StatusUnauthorized), Page: page})
}

// problem answers with an error where nobody is signed in.
func (c *Console) problem(w http.ResponseWriter, req *http.Request, status int, err error) {
	c.show(w, req, status, "problem", frame{Title: http.StatusText(status), Page: failed{Status: status, Text: c.inline(err.Error())}})
}

// problem answers who is signed in with an error.
func (v *visit) problem(status int, err error) {
	v.show(status, "problem", frame{Title: http.StatusText(status), Page: failed{Status: status, Text: v.inline(err.Error())}})
}

// lost is a page that there is not.
func (v *visit) lost() {
	v.problem(http.StatusNotFound, errors.New("there is no page at this address"))
}

// statusFor returns the status of a page with an error, which is the API's.
func statusFor(err error) int {
	if refused := new(api.RefusedError); errors.As(err, &refused) {
		return refused.Status
	}
	return api.StatusOf(errkind.Of(err))
}

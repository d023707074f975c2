package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/operation"
)

// route is a designed page.
type route struct {
	pattern string // method and path
	name    string // in the navigation; "" means that it is not there
	key     string // the key after g that opens it
	// operation is the operation that the caller must be allowed to run. A designed page at its path replaces
	// its generated page. It may be empty.
	operation string
	serve     func(*handler)
}

// routes returns the designed pages, in the order of the navigation. A page is one line here, its handler, its view
// struct, and a template pages/NAME.html, which Console.parse finds.
func routes() []route {
	return []route{
		{"GET /{$}", "Overview", "o", "", (*handler).overview},
		{"GET /jobs", "Jobs", "j", jobsList, (*handler).jobs},
		{"GET /upcoming", "Schedule", "s", upcomingOperation, (*handler).schedule},
		{"GET /senders", "Delivery", "d", views.SendersOperation, (*handler).delivery},
		{"GET /channels/show", "Person", "p", views.PersonOperation, (*handler).person},
		{"GET /events", "Activity", "a", eventsOperation, (*handler).activity},
		{"GET /settings", "Settings", "t", "", (*handler).settings},
		{"GET /jobs/{id}", "", "", views.JobOperation, (*handler).job},
		{"GET /enqueue", "", "", enqueueOperation, (*handler).compose},
		{"POST /enqueue", "", "", enqueueOperation, (*handler).compose},
		{"GET /jobs/{id}/{act}", "", "", "", (*handler).jobAct},
		{"POST /jobs/{id}/{act}", "", "", "", (*handler).doJobAct},
		{"GET /operations", "", "", "", (*handler).allOperations},
	}
}

// path returns the path of a page in the navigation.
func (r route) path() string {
	return strings.TrimSuffix(strings.TrimPrefix(r.pattern, "GET "), "{$}")
}

// route registers all pages. An operation has a generated page unless a designed page has its path.
func (c *Console) route() {
	c.mux.HandleFunc("GET /assets/{name}", c.asset)
	c.mux.HandleFunc("GET /sign-in", c.signInPage)
	c.mux.HandleFunc("POST /sign-in", c.signIn)
	c.mux.HandleFunc("POST /sign-out", c.signOut)
	c.mux.HandleFunc("POST /time-zone", c.authenticated((*handler).setZone))
	c.mux.HandleFunc("GET /live", c.authenticated((*handler).live))
	c.mux.HandleFunc("GET /jump", c.authenticated((*handler).jump))
	designed := make(map[string]bool)
	for _, r := range routes() {
		designed[r.pattern] = true
		c.page(r.pattern, r.operation, r.serve)
	}
	for _, o := range c.operations {
		generated := func(pattern string, serve func(*handler, operation.Operation)) {
			if !designed[pattern] {
				c.page(pattern, o.Name, func(h *handler) { serve(h, o) })
			}
		}
		switch {
		case o.Shared: // part of /live
		case o.Changes:
			for _, at := range slices.Compact([]string{pathOf(o), barePath(o)}) {
				generated("GET "+at, (*handler).form)
				generated("POST "+at, (*handler).act)
			}
		default:
			generated("GET "+pathOf(o), (*handler).showResult)
		}
	}
	c.mux.HandleFunc("/", c.authenticated((*handler).notFound))
}

// page registers a page for signed-in callers. Metrics count it for the operation.
func (c *Console) page(pattern, operation string, serve func(*handler)) {
	actOf := func(req *http.Request) string {
		if i := slices.IndexFunc(jobActs(), func(a jobAct) bool { return a.name == req.PathValue("act") }); i >= 0 {
			return jobActs()[i].operation
		}
		return operation
	}
	c.mux.HandleFunc(pattern, c.authenticatedFor(actOf, func(h *handler) {
		if operation != "" {
			api.Note(h.req, operation, false)
		}
		serve(h)
	}))
}

// navigation returns the links of the layout that the caller may follow.
func (c *Console) navigation(req *http.Request) (nav []tab) {
	for _, r := range routes() {
		if _, allowed := c.allowed(r.operation); r.name != "" && (allowed || r.operation == "") {
			at := r.path()
			nav = append(nav, tab{Name: r.name, Link: c.link(at), Here: isUnder(req.URL.Path, at), Key: r.key})
		}
	}
	return nav
}

// isUnder reports whether path is place or below it.
func isUnder(path, place string) bool {
	return path == place || place != "/" && strings.HasPrefix(path, place+"/")
}

package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin"
)

// Prefix is what every path begins with.
const Prefix = "/api/v1"

// route is where an operation is found, and where its parameters stand.
type route struct {
	method, path string
	in           map[string]place // by the parameter's name
	of           operation.Operation
}

// place is where a parameter stands in a request.
type place string

const (
	inPath  place = "path"
	inQuery place = "query"
	inBody  place = "body"
)

// location names a parameter of a request, for people and programs.
func (p place) location(name string) string { return string(p) + "." + name }

// PathOf is the path of an operation below Prefix: /jobs/{id}, /lanes/{lane}/pause.
func PathOf(o operation.Operation) string { return routeOf(o).path }

// routeOf is the one rule of the paths.
func routeOf(o operation.Operation) route {
	r := route{method: http.MethodPost, in: make(map[string]place), of: o}
	var b strings.Builder
	for word := range strings.FieldsSeq(o.Noun()) {
		b.WriteString("/" + word)
	}
	rest, named := inBody, false
	// /channels/{relation}/attach and /channels/segment/{name} would be two operations of one address.
	begins := slices.ContainsFunc(admin.Nouns(), func(n admin.Noun) bool { return strings.HasPrefix(n.Name, o.Noun()+" ") })
	if !o.Changes {
		r.method, rest = http.MethodGet, inQuery
	}
	for _, p := range o.Params() {
		switch {
		case p.Local:
		case p.Place == operation.Argument && p.Required && !p.Repeated && !p.File && !begins:
			b.WriteString("/{" + p.Name + "}")
			r.in[p.Name], named = inPath, true
		default:
			r.in[p.Name] = rest
		}
	}
	switch verb := o.Verb(); {
	case o.Noun() != "" && !o.Changes && (verb == "list" || verb == "show" && named):
	case o.Noun() != "" && o.Changes && verb == "set":
		r.method = http.MethodPatch
	case o.Noun() == "": // the verb is all there is, and stands first
		r.path = "/" + verb
	default:
		b.WriteString("/" + verb)
	}
	r.path += b.String()
	return r
}

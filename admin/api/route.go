package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// Prefix begins the path of every operation.
const Prefix = "/api/v1"

// route is the method and path of an operation, with the places of its parameters.
type route struct {
	method, path string
	in           map[string]place // by the parameter's name
	of           operation.Operation
}

// place is the part of a request that contains a parameter.
type place string

const (
	inPath  place = "path"
	inQuery place = "query"
	inBody  place = "body"
)

// location returns the name of a parameter in a Fault.
func (p place) location(name string) string { return string(p) + "." + name }

// PathOf returns the path of an operation below Prefix: /jobs/{id}, /lanes/{lane}/pause.
func PathOf(o operation.Operation) string { return routeOf(o).path }

// routeOf derives the route of an operation from its name and parameters.
func routeOf(o operation.Operation) route {
	r := route{method: http.MethodPost, in: make(map[string]place), of: o}
	var b strings.Builder
	for word := range strings.FieldsSeq(o.Noun()) {
		b.WriteString("/" + word)
	}
	rest, named := inBody, false
	// /channels/{relation}/attach and /channels/segment/{name} would match the same paths.
	begins := slices.ContainsFunc(operation.Nouns(), func(n operation.Noun) bool { return strings.HasPrefix(n.Name, o.Noun()+" ") })
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
	case o.Noun() == "": // such as halt: the verb is the whole name
		r.path = "/" + verb
	default:
		b.WriteString("/" + verb)
	}
	r.path += b.String()
	return r
}

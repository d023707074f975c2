package console

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// formParam is the query parameter that requests a page as CSV. No operation has a parameter of this name.
const formParam = "_form"

// csvLink returns the address of a list as CSV. It is empty if the page shows no list.
func (h *handler) csvLink(o operation.Operation) string {
	if o.Records() == nil || o.Changes {
		return ""
	}
	query := h.req.URL.Query()
	query.Set(formParam, "csv")
	return h.link(h.req.URL.Path) + "?" + query.Encode()
}

// rows writes records as CSV. The response begins with the first record.
type rows struct {
	h       *handler
	of      operation.Operation
	name    string
	into    *text.CSV
	started bool
}

// add writes records.
func (r *rows) add(records any) error {
	if !r.started {
		r.started = true
		r.h.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		r.h.w.Header().Set("Content-Disposition", `attachment; filename="`+r.name+`.csv"`)
		if err := r.into.Row(r.of.Records().Names()...); err != nil {
			return err
		}
	}
	columns := r.of.Records()
	if r.h.zone != nil {
		columns = columns.In(r.h.zone)
	}
	return columns.Each(records, r.into.Row)
}

// sheet writes the result of an operation as CSV: the page of a list, or all items of a stream. It aborts
// the response if the operation fails midway, so that clients detect the truncation.
func (h *handler) sheet(o operation.Operation, in any, values url.Values) {
	r := &rows{h: h, of: o, name: fileName(o, values), into: text.NewCSV(h.w)}
	var err error
	if o.Item() != nil {
		_, err = h.stream(h.req.Context(), o, in, func(item any) error { return r.add(o.Listed(item)) })
	} else {
		var out any
		if out, err = h.do(h.req.Context(), o, in); err == nil {
			err = r.add(o.Listed(out))
		}
	}
	if err == nil { // a stream ends without an error when its reader disconnects
		err = errors.Join(h.req.Context().Err(), r.add([]any{}), r.into.Flush())
	}
	switch {
	case err == nil:
	case r.started:
		api.AbortResponse()
	default:
		h.problem(statusFor(err), err)
	}
}

// unsafe matches characters that file names must not contain.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName returns the name of the CSV file, such as jobs-report-17.
func fileName(o operation.Operation, values url.Values) string {
	name := strings.ReplaceAll(o.Name, " ", "-")
	for _, p := range arguments(o) {
		for _, text := range values[p.Name] {
			name += "-" + text
		}
	}
	return strings.Trim(unsafe.ReplaceAllString(name[:min(len(name), 100)], "_"), "_.")
}

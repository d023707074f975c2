package console

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// formOf is the query parameter that requests a page as CSV. No operation has a parameter of this name.
const formOf = "_form"

// sheetLink is the address of a list as CSV. It is empty if the page shows no list.
func (v *visit) sheetLink(o operation.Operation) string {
	if o.Records() == nil || o.Changes {
		return ""
	}
	query := v.req.URL.Query()
	query.Set(formOf, "csv")
	return v.link(v.req.URL.Path) + "?" + query.Encode()
}

// rows are CSV on its way: the answer begins with the first row.
type rows struct {
	v       *visit
	of      operation.Operation
	name    string
	into    *text.CSV
	started bool
}

// add writes records.
func (r *rows) add(records any) error {
	if !r.started {
		r.started = true
		r.v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		r.v.w.Header().Set("Content-Disposition", `attachment; filename="`+r.name+`.csv"`)
		if err := r.into.Row(r.of.Records().Names()...); err != nil {
			return err
		}
	}
	columns := r.of.Records()
	if r.v.zone != nil {
		columns = columns.In(r.v.zone)
	}
	return columns.Each(records, r.into.Row)
}

// sheet answers with what an operation lists, as CSV: the page of a list, all of a stream. One that
// breaks off is cut, so that nobody takes it for the whole.
func (v *visit) sheet(o operation.Operation, in any, values url.Values) {
	r := &rows{v: v, of: o, name: fileName(o, values), into: text.NewCSV(v.w)}
	var err error
	if o.Item() != nil {
		_, err = v.stream(v.req.Context(), o, in, func(item any) error { return r.add(o.Listed(item)) })
	} else {
		var out any
		if out, err = v.do(v.req.Context(), o, in); err == nil {
			err = r.add(o.Listed(out))
		}
	}
	if err == nil { // a stream ends without an error when its reader is gone
		err = errors.Join(v.req.Context().Err(), r.add([]any{}), r.into.Flush())
	}
	switch {
	case err == nil:
	case r.started:
		panic(http.ErrAbortHandler)
	default:
		v.problem(statusFor(err), err)
	}
}

// unsafe is what no name of a file has.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName is the operation's, and what it is about: jobs-report-17.
func fileName(o operation.Operation, values url.Values) string {
	name := strings.ReplaceAll(o.Name, " ", "-")
	for _, p := range arguments(o) {
		for _, text := range values[p.Name] {
			name += "-" + text
		}
	}
	return strings.Trim(unsafe.ReplaceAllString(name[:min(len(name), 100)], "_"), "_.")
}

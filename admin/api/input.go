package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/printer"
)

// maxBody is the most that a request's body may have.
const maxBody = 1 << 20

// reading collects what is wrong with a request while its input is made.
type reading struct {
	op     operation.Operation
	route  route
	in     any
	faults []Fault
}

// inputOf makes an operation's input of a request. The problem lists everything that is
// wrong with it.
func inputOf(o operation.Operation, r route, req *http.Request) (any, *Problem) {
	read := &reading{op: o, route: r, in: o.NewInput()}
	for _, p := range o.Params() {
		if r.in[p.Name] == inPath {
			read.note(inPath, p.Name, setText(p, read.in, req.PathValue(p.Name)))
		}
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the query is malformed: "+err.Error())
	}
	read.takeQuery(query)
	if o.Changes {
		fields, problem := bodyOf(req)
		if problem != nil {
			return nil, problem
		}
		read.takeBody(fields)
	} else if req.ContentLength != 0 {
		return nil, problemf(http.StatusBadRequest, "this takes no body")
	}
	if len(read.faults) > 0 {
		p := problemf(http.StatusUnprocessableEntity, "the request was not understood; nothing was done")
		p.Kind, p.Errors = errkind.Invalid, read.faults
		return nil, p
	}
	return read.in, nil
}

func (r *reading) note(at place, name string, err error) {
	if err != nil {
		r.faults = append(r.faults, Fault{at.location(printer.OneLine(name, 60)), err.Error()})
	}
}

// param finds what stands at a place under a name; what does not is refused by name.
func (r *reading) param(at place, name string) (operation.Param, bool) {
	var names []string
	for _, p := range r.op.Params() {
		switch {
		case r.route.in[p.Name] != at:
		case p.Name == name:
			return p, true
		default:
			names = append(names, p.Name)
		}
	}
	if at == inQuery && r.route.pager() != "" {
		names = append(names, pageToken)
	}
	if len(names) == 0 {
		r.note(at, name, fmt.Errorf("is not known; there is nothing to give in the %s", at))
	} else {
		r.note(at, name, fmt.Errorf("is not known; allowed: %s%s", strings.Join(names, ", "), config.Hint(name, names)))
	}
	return operation.Param{}, false
}

func (r *reading) takeQuery(query url.Values) {
	r.takeToken(query)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p, known := r.param(inQuery, name)
		if !known {
			continue
		}
		if values := query[name]; len(values) > 1 && !p.Repeated {
			r.note(inQuery, name, errTwice)
			continue
		}
		for _, text := range query[name] {
			if err := setText(p, r.in, text); err != nil {
				r.note(inQuery, name, err)
				break
			}
		}
	}
}

func (r *reading) takeBody(fields map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p, known := r.param(inBody, name)
		if !known {
			continue
		}
		err := p.SetJSON(r.in, fields[name])
		if bytes.Contains(fields[name], []byte(`\u0000`)) {
			err = errNUL
		}
		r.note(inBody, name, err)
	}
}

// errTwice is what is given twice and can be there once.
var errTwice = errors.New("is given more than once")

// errNUL is a text that the database does not take.
var errNUL = errors.New("is no text; allowed values: UTF-8 without NUL")

// setText gives a text of the URL to a parameter.
func setText(p operation.Param, in any, text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errNUL
	}
	return p.Set(in, text)
}

// bodyOf reads the fields of a body, each there once. No body is an object without any.
func bodyOf(req *http.Request) (map[string]json.RawMessage, *Problem) {
	if req.ContentLength == 0 && len(req.TransferEncoding) == 0 {
		return nil, nil
	}
	kind, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") || req.Header.Get("Content-Encoding") != "" {
		return nil, problemf(http.StatusUnsupportedMediaType, "allowed Content-Type: application/json, in UTF-8 and not compressed").with("Accept", "application/json")
	}
	body, err := io.ReadAll(req.Body)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, problemf(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is too large; allowed: up to %d bytes", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problemf(http.StatusRequestTimeout, "the body did not come in time")
	case err != nil:
		return nil, problemf(http.StatusBadRequest, "the body ended early")
	}
	fields, err := operation.FieldsOf(body)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the body is no JSON object: "+err.Error())
	}
	return fields, nil
}

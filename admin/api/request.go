package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/errkind"
)

// NewRequest asks for an operation with an input, as inputOf understands it: the client's half
// of the one rule. root is where Prefix begins, without a slash at its end. A parameter of the
// command line alone that was given is an *admin.InvalidError.
func NewRequest(ctx context.Context, root string, o admin.Operation, in any) (*http.Request, error) {
	r := routeOf(o)
	path, query, fields := r.path, url.Values{}, make(map[string]json.RawMessage)
	for _, p := range o.Params() {
		if p.Local {
			if p.Given(in) {
				return nil, &admin.InvalidError{Problems: []admin.Problem{{
					Param: p.Name, Text: "cannot be said to a server, where the token says who acts and no query is taken; leave it out",
				}}}
			}
			continue
		}
		if r.in[p.Name] == inBody {
			raw, err := p.JSON(in, o)
			if err != nil {
				return nil, err
			}
			if raw != nil {
				fields[p.Name] = raw
			}
			continue
		}
		texts, err := p.Texts(in, o)
		switch {
		case err != nil:
			return nil, err
		case r.in[p.Name] == inQuery && len(texts) > 0:
			query[p.Name] = texts
		case r.in[p.Name] == inPath:
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(strings.Join(texts, "")), 1)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var body bytes.Buffer
	if len(fields) > 0 {
		if err := json.NewEncoder(&body).Encode(fields); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, root+Prefix+path, &body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	if len(fields) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// Err is the error that the problem tells about an operation, of the same errkind.Kind and with
// the same text and parameters as where it arose.
func (p *Problem) Err(o admin.Operation) error {
	var err error = &admin.ToldError{Of: p.Kind, Text: o.WithFlags(p.Detail)}
	if len(p.Errors) > 0 {
		bad := new(admin.InvalidError)
		if p.Kind != errkind.Invalid {
			bad.Err = err
		}
		for _, fault := range p.Errors {
			param := fault.Location
			for _, at := range []place{inPath, inQuery, inBody} {
				param = strings.TrimPrefix(param, at.location(""))
			}
			bad.Problems = append(bad.Problems, admin.Problem{Param: param, Text: o.WithFlags(fault.Message)})
		}
		err = bad
	}
	switch p.Kind {
	case errkind.Unavailable, errkind.Unknown:
		err = &admin.UnavailableError{Err: err}
	case errkind.Held:
		err = &admin.HeldError{Err: err}
	case errkind.Failed, errkind.Invalid, errkind.NotFound, errkind.Conflict, errkind.Stale, errkind.Denied, errkind.Forbidden, errkind.Standby, errkind.TooSlow:
	}
	if p.Kind == errkind.Unknown {
		err = &admin.UnknownOutcomeError{Err: err}
	}
	if p.Next != "" {
		err = &admin.AdvisedError{Err: err, Next: p.Next}
	}
	return err
}

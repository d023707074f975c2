package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// pageToken is the parameter that asks for the page after another one. Its values are opaque, as
// AIP-158 has it: a program takes one out of a Link, and what is in it may change.
const pageToken = "page_token"

// errPageToken is a token that no Link of the list had.
var errPageToken = errors.New("is no token of this list; allowed: what the Link of a page before has")

// pager is the name of the parameter that a list's next page is a value of; empty: there are no pages.
func (r route) pager() string {
	if r.of.Item() != nil {
		return ""
	}
	for _, name := range operation.Pagers() {
		if r.in[name] == inQuery {
			return name
		}
	}
	return ""
}

// tokenOf hides how a page begins, and the list that has it.
func tokenOf(o operation.Operation, begins string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(o.Name + "\x00" + begins))
}

// beginOf is how a token's page begins.
func beginOf(o operation.Operation, token string) (string, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	name, begins, whole := strings.Cut(string(text), "\x00")
	if err != nil || !whole || name != o.Name || begins == "" {
		return "", errPageToken
	}
	return begins, nil
}

// takeToken puts how a token's page begins where the operation has it.
func (r *reading) takeToken(query url.Values) {
	tokens, given := query[pageToken]
	pager := r.route.pager()
	if !given || pager == "" {
		return // unknown, where there are no pages
	}
	delete(query, pageToken)
	if len(tokens) > 1 {
		r.note(inQuery, pageToken, errTwice)
		return
	}
	if _, both := query[pager]; both {
		r.note(inQuery, pageToken, errors.New("is not given beside "+pager+": it says how the page begins, too"))
		return
	}
	begins, err := beginOf(r.op, tokens[0])
	if err == nil {
		p, _ := r.param(inQuery, pager)
		if setText(p, r.in, begins) != nil {
			err = errPageToken
		}
	}
	r.note(inQuery, pageToken, err)
}

// nextPage is the Link to the page after a result; empty: there is none.
func (h *Handler) nextPage(r route, req *http.Request, out any) string {
	list, is := out.(interface{ NextPage() string })
	pager := r.pager()
	if !is || list.NextPage() == "" || pager == "" {
		return ""
	}
	next := *req.URL
	query := next.Query()
	query.Del(pager)
	query.Set(pageToken, tokenOf(r.of, list.NextPage()))
	next.RawQuery = query.Encode()
	return "<" + h.public.path + next.RequestURI() + `>; rel="next"`
}

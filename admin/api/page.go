package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// pageToken is the query parameter that selects the next page. Its values are opaque (AIP-158): clients take
// them from a Link header, and their format may change.
const pageToken = "page_token"

// errPageToken rejects a token that is not from a Link of the list.
var errPageToken = errors.New("is not a token of this list; allowed: the token in the Link of the previous page")

// pager returns the name of the operation's paging parameter, or "" if it has no pages.
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

// tokenOf encodes the list and the start of a page as an opaque token.
func tokenOf(o operation.Operation, begins string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(o.Name + "\x00" + begins))
}

// beginOf returns the start of a token's page.
func beginOf(o operation.Operation, token string) (string, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	name, begins, whole := strings.Cut(string(text), "\x00")
	if err != nil || !whole || name != o.Name || begins == "" {
		return "", errPageToken
	}
	return begins, nil
}

// takeToken sets the paging parameter from a page token.
func (r *parsedRequest) takeToken(query url.Values) {
	tokens, given := query[pageToken]
	pager := r.route.pager()
	if !given || pager == "" {
		return // takeQuery rejects it
	}
	delete(query, pageToken)
	if len(tokens) > 1 {
		r.note(inQuery, pageToken, errTwice)
		return
	}
	if _, both := query[pager]; both {
		r.note(inQuery, pageToken, errors.New("is not given beside "+pager+", which also selects a page"))
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

// nextPage returns the Link to the next page of a result, or "" if there is none.
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

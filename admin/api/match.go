package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin"
)

// matchHeader says of which version a thing has to be for an act on it, and tagHeader of which
// version an answer shows it (RFC 9110, 8.8.3 and 13.1.1).
const (
	matchHeader = "If-Match"
	tagHeader   = "ETag"
)

// tagOf is the ETag of a version. It is strong and yet does not change as a job goes on: it is
// of what people decide.
func tagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// tagged sets the ETag of an answer that shows one thing.
func tagged(w http.ResponseWriter, out any) {
	if version, known := admin.VersionOf(out); known {
		w.Header().Set(tagHeader, tagOf(version))
	}
}

// matchOf is what the If-Match of a request says; given is false where it has none. A tag that
// is weak, or none of ours, is of no version.
func matchOf(req *http.Request) (m admin.Precondition, given bool, problem *Problem) {
	values := req.Header.Values(matchHeader)
	if len(values) == 0 {
		return m, false, nil
	}
	malformed := problemf(http.StatusBadRequest, matchHeader+`: is malformed; allowed values: *, or ETags of answers as "17", with commas between`)
	rest := strings.Trim(strings.Join(values, ","), " \t,")
	if rest == "*" {
		return admin.Precondition{Exists: true}, true, nil
	}
	for {
		weak := strings.HasPrefix(rest, "W/")
		rest = strings.TrimPrefix(rest, "W/")
		if !strings.HasPrefix(rest, `"`) {
			return m, true, malformed
		}
		tag, after, closed := strings.Cut(rest[1:], `"`)
		if !closed || strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return m, true, malformed
		}
		if version, err := strconv.ParseInt(tag, 10, 64); err == nil && !weak && tagOf(version) == `"`+tag+`"` {
			m.Versions = append(m.Versions, version)
		}
		after = strings.TrimLeft(after, " \t")
		if after == "" {
			return m, true, nil
		}
		if after[0] != ',' {
			return m, true, malformed
		}
		rest = strings.TrimLeft(after, " \t,")
	}
}

// matched gives an act's input what the If-Match of its request says.
func matched(o admin.Operation, in any, req *http.Request) *Problem {
	if !o.Changes { // nothing can go wrong by a look
		return nil
	}
	m, given, problem := matchOf(req)
	if !given || problem != nil {
		return problem
	}
	if err := admin.SetPrecondition(in, m); err != nil {
		return problemf(http.StatusBadRequest, matchHeader+": "+err.Error())
	}
	return nil
}

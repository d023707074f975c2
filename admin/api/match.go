package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// matchHeader is the version that an act expects, and tagHeader the version that an answer shows
// (RFC 9110, 8.8.3 and 13.1.1).
const (
	matchHeader = "If-Match"
	tagHeader   = "ETag"
)

// tagOf returns the ETag of a version. It is strong, and changes with each act, not with the progress
// of a job.
func tagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// tagged sets the ETag of an answer that shows one object.
func tagged(w http.ResponseWriter, out any) {
	if version, known := operation.VersionOf(out); known {
		w.Header().Set(tagHeader, tagOf(version))
	}
}

// matchOf returns the precondition of a request's If-Match header, nil without one. A weak tag, and a
// tag in another form, matches no version.
func matchOf(req *http.Request) (m *operation.Precondition, problem *Problem) {
	values := req.Header.Values(matchHeader)
	if len(values) == 0 {
		return nil, nil
	}
	malformed := problemf(http.StatusBadRequest,
		matchHeader+`: is malformed; allowed values: *, or ETags of answers as "17", with commas between`)
	rest := strings.Trim(strings.Join(values, ","), " \t,")
	if rest == "*" {
		return &operation.Precondition{Exists: true}, nil
	}
	m = new(operation.Precondition)
	for {
		weak := strings.HasPrefix(rest, "W/")
		rest = strings.TrimPrefix(rest, "W/")
		if !strings.HasPrefix(rest, `"`) {
			return nil, malformed
		}
		tag, after, closed := strings.Cut(rest[1:], `"`)
		if !closed || strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, malformed
		}
		if version, err := strconv.ParseInt(tag, 10, 64); err == nil && !weak && tagOf(version) == `"`+tag+`"` {
			m.Versions = append(m.Versions, version)
		}
		after = strings.TrimLeft(after, " \t")
		if after == "" {
			return m, nil
		}
		if after[0] != ',' {
			return nil, malformed
		}
		rest = strings.TrimLeft(after, " \t,")
	}
}

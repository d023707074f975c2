package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/errkind"
)

// keyHeader names a request that may be repeated, and replayedHeader an answer that is that of
// the first (draft-ietf-httpapi-idempotency-key-header).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

// keyOf is the key of a request; given is false where it has none. It is a string of structured
// fields (RFC 9651), or the same without the quotes.
func keyOf(req *http.Request) (key string, given bool, problem *Problem) {
	values := req.Header.Values(keyHeader)
	if len(values) == 0 {
		return "", false, nil
	}
	malformed := problemf(http.StatusBadRequest, keyHeader+`: is malformed; allowed values: "1 to 255 visible ASCII characters", given once`)
	key = strings.TrimSpace(values[0])
	if strings.HasPrefix(key, `"`) {
		if len(key) < 2 || !strings.HasSuffix(key, `"`) {
			return "", true, malformed
		}
		key = key[1 : len(key)-1]
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\,;`, c) >= 0 {
			return "", true, malformed
		}
	}
	if len(values) > 1 || len(key) == 0 || len(key) > 255 {
		return "", true, malformed
	}
	return key, true, nil
}

// fingerprint has what a request asks for run through it while it is read. A body with a
// password is left out: a fast hash that is kept would have the password guessed by it. The role
// is in it, because an answer has what the role may read.
type fingerprint struct{ hash.Hash }

func fingerprintOf(req *http.Request, o admin.Operation, role admin.Role) fingerprint {
	f := fingerprint{sha256.New()}
	f.Write([]byte(req.Method + " " + req.URL.RequestURI() + " " + strings.Join(req.Header.Values(matchHeader), ",") + " " + role.String() + "\n"))
	if slices.ContainsFunc(o.Params(), func(p admin.Param) bool { return p.Secret }) {
		return f
	}
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(req.Body, f), req.Body}
	return f
}

// begin claims a key, or answers for the request that had it first.
func (h *Handler) begin(ctx context.Context, on *pgxpool.Pool, w http.ResponseWriter, o admin.Operation, r admin.Request, within time.Duration) (mine bool) {
	s, err := r.Begin(ctx, on, within)
	if err != nil {
		h.Log.Warn().Err(err).Msg("cannot keep the key of a request")
		problemOf(route{}, err).write(w)
		return false
	}
	var p *Problem
	switch {
	case s.New:
		return true
	case !s.Same:
		p = problemf(http.StatusUnprocessableEntity, keyHeader+": this key was used for another request")
		p.Kind = errkind.Invalid
	case s.Status == 0 && !s.Over:
		p = problemf(http.StatusConflict, "the first request with this key is still in progress").with("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		p.Kind = errkind.Conflict
	case s.Status == 0:
		p = problemf(http.StatusInternalServerError, "the first request with this key was cut short: it may or may not have taken effect; look before you repeat it with another key")
		p.Kind = errkind.Unknown
	case s.Answer == nil:
		p = problemf(http.StatusConflict, "the first request with this key was done, with status "+strconv.Itoa(s.Status)+"; its answer is not kept: it is long, or has a secret")
		p.Kind = errkind.Conflict
	default:
		kind := "application/json"
		if s.Status >= http.StatusBadRequest {
			kind = "application/problem+json"
		} else if out, err := o.ReadResult(s.Answer, ""); err == nil {
			tagged(w, out)
		}
		w.Header().Set(replayedHeader, "true")
		respond(w, s.Status, kind, json.RawMessage(s.Answer))
		return false
	}
	p.write(w)
	return false
}

// finish keeps what a request was answered, or frees its key if nothing was done. What cannot
// be kept leaves a key whose outcome is not known.
func (h *Handler) finish(ctx context.Context, on *pgxpool.Pool, r admin.Request, o admin.Operation, status int, answer any, p *Problem) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeSlack)
	defer cancel()
	var err error
	if p != nil && p.Result == nil && nothingDone(p.Kind) {
		err = r.GiveBack(ctx, on)
	} else {
		body, broken := json.Marshal(answer)
		if o.Secret && p == nil || broken != nil || len(body) > admin.MaxAnswer {
			body = nil
		}
		err = r.Answer(ctx, on, status, body)
	}
	if err != nil {
		h.Log.Warn().Err(err).Str("detail", o.Name).Msg("cannot keep the answer of a request that has a key")
	}
}

// nothingDone reports whether an act whose error is of a kind has left everything as it was, so
// that it may be asked for again.
func nothingDone(k errkind.Kind) bool {
	switch k {
	case errkind.Invalid, errkind.NotFound, errkind.Conflict, errkind.Stale, errkind.Held, errkind.Denied, errkind.Forbidden, errkind.Standby, errkind.Unavailable:
		return true
	case errkind.Failed, errkind.TooSlow, errkind.Unknown:
	}
	return false
}

package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// keyHeader is the header with the idempotency key, and replayedHeader marks a replayed response
// (draft-ietf-httpapi-idempotency-key-header).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

// keyOf returns the idempotency key of a request, "" without one. It is a string of structured
// fields (RFC 9651), or the same without the quotes.
func keyOf(req *http.Request) (key string, problem *Problem) {
	values := req.Header.Values(keyHeader)
	if len(values) == 0 {
		return "", nil
	}
	malformed := problemf(http.StatusBadRequest, keyHeader+`: is malformed; allowed values: "1 to 255 visible ASCII characters", given once`)
	key = strings.TrimSpace(values[0])
	if strings.HasPrefix(key, `"`) {
		if len(key) < 2 || !strings.HasSuffix(key, `"`) {
			return "", malformed
		}
		key = key[1 : len(key)-1]
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\,;`, c) >= 0 {
			return "", malformed
		}
	}
	if len(values) > 1 || len(key) == 0 || len(key) > 255 {
		return "", malformed
	}
	return key, nil
}

// fingerprint is a hash of an act: of its operation, its parameters, its precondition and the role, because
// an answer contains what the role may read. Passwords are left out, because they could be guessed from a
// fast hash.
func fingerprint(c Call) ([32]byte, error) {
	o, h := c.Operation, sha256.New()
	fmt.Fprintf(h, "%s %s\n", o.Name, c.Caller.Role)
	if c.Match != nil {
		fmt.Fprintf(h, "%t %v\n", c.Match.Exists, c.Match.Versions)
	}
	for _, p := range o.Params() {
		if p.Secret {
			continue
		}
		value, err := p.JSON(c.Input, o)
		if err != nil {
			return [32]byte{}, err
		}
		if value != nil {
			fmt.Fprintf(h, "%s %s\n", p.Name, value)
		}
	}
	return [32]byte(h.Sum(nil)), nil
}

// Replay is the stored answer of an act that is not run again, as HTTP has it.
type Replay struct {
	Status int
	Answer json.RawMessage // of the result, or of a *Problem
}

// write answers with the replay, whose result is out, nil if it is an error.
func (r *Replay) write(w http.ResponseWriter, out any) {
	kind := "application/json"
	if r.Status >= http.StatusBadRequest {
		kind = "application/problem+json"
	} else {
		tagged(w, out)
	}
	w.Header().Set(replayedHeader, "true")
	respond(w, r.Status, kind, r.Answer)
}

// once runs an act, unless its key was used before. The key is stored before the act, in a
// transaction of its own, and the answer after it.
func (h *Handler) once(ctx context.Context, env *operation.Env, c Call) (Outcome, error) {
	sum, err := fingerprint(c)
	if err != nil {
		return Outcome{}, h.conceal(ctx, c, err)
	}
	request := operation.Request{Who: c.Caller.Key(), Key: c.Key, Fingerprint: sum}
	state, err := request.Begin(ctx, env.DB, c.Operation.Limit()+writeSlack)
	if err != nil {
		h.Log.Warn().Err(err).Msg("cannot store the key of a request")
		return Outcome{}, concealed(err)
	}
	if !state.New {
		return replayed(c.Operation, state)
	}
	out, err := h.run(ctx, env, c)
	panicked := errors.Is(err, errPanicked) // then the key stays, with an unknown outcome
	if err = h.conceal(ctx, c, err); !panicked {
		h.store(ctx, env.DB, request, c.Operation, out, err)
	}
	return Outcome{Result: out}, err
}

// replayed returns the stored outcome of the first call with a key, or why there is none.
func replayed(o operation.Operation, s operation.RequestState) (out Outcome, err error) {
	switch {
	case !s.Same:
		return out, refused(http.StatusUnprocessableEntity, db.KindInvalid, keyHeader+": this key was used for another request")
	case s.Status == 0 && !s.Over:
		return out, refused(http.StatusConflict, db.KindConflict, "the first request with this key is still in progress").again(retryAfter)
	case s.Status == 0:
		return out, refused(http.StatusInternalServerError, db.KindUnknown,
			"the first request with this key was cut short: it may or may not have taken effect; look before you repeat it with another key")
	case s.Answer == nil:
		return out, refused(http.StatusConflict, db.KindConflict,
			"the first request with this key was done, with status "+strconv.Itoa(s.Status)+
				"; its answer is not stored, because it is too long or contains a secret")
	}
	out.Replay = &Replay{s.Status, s.Answer}
	if s.Status < http.StatusBadRequest {
		out.Result, err = o.ReadResult(s.Answer, "")
		return out, err
	}
	var stored struct {
		Problem

		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(s.Answer, &stored); err != nil {
		return out, fmt.Errorf("the stored answer of %s: %w", o.Name, err)
	}
	if len(stored.Result) > 0 {
		if out.Result, err = o.ReadResult(stored.Result, ""); err != nil {
			return out, err
		}
	}
	return out, &operation.ToldError{Of: stored.Kind, Text: strings.TrimSuffix(stored.Detail+"; "+stored.Next, "; ")}
}

// store stores the answer of an act, or frees its key if the act did nothing. If neither succeeds,
// the key stays, with an unknown outcome.
func (h *Handler) store(ctx context.Context, on *pgxpool.Pool, r operation.Request, o operation.Operation, out any, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeSlack)
	defer cancel()
	status, answer := http.StatusOK, out
	if err != nil {
		p := problemOf(routeOf(o), err)
		if out == nil && nothingDone(p.Kind) {
			h.logUnstored(o, r.GiveBack(ctx, on))
			return
		}
		p.Result = out
		status, answer = p.Status, p
	}
	body, broken := json.Marshal(answer)
	if o.Secret && err == nil || broken != nil || len(body) > operation.MaxAnswer {
		body = nil
	}
	h.logUnstored(o, r.Answer(ctx, on, status, body))
}

func (h *Handler) logUnstored(o operation.Operation, err error) {
	if err != nil {
		h.Log.Warn().Err(err).Str("detail", o.Name).Msg("cannot store the answer of a request that has a key")
	}
}

// nothingDone reports whether an error of kind k means that the act changed nothing and may be repeated with
// the same key.
func nothingDone(k db.Kind) bool {
	switch k {
	case db.KindInvalid, db.KindNotFound, db.KindConflict, db.KindStale, db.KindHeld, db.KindDenied, db.KindForbidden,
		db.KindStandby, db.KindUnavailable:
		return true
	case db.KindFailed, db.KindTooSlow, db.KindUnknown:
	}
	return false
}

package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
)

// Caller is the authenticated sender of a request, as Handler.Caller returns it.
type Caller struct {
	access.Identity

	request *http.Request // with the credentials, which Stream checks again
}

// Call is one execution of an operation for a caller.
type Call struct {
	Caller    *Caller
	Operation operation.Operation
	// Input is one of Operation.NewInput.
	Input any
	// Match is the precondition of an If-Match header. Nil if there is none; Input may have one
	// all the same (if_version).
	Match *operation.Precondition
	// Key makes an act run once within 24 hours. Empty if the act may run again. Operations that
	// change nothing ignore it.
	Key string
	// Reserved runs a call that only reads on the reserved connections, within stopReadTime: for a page of an
	// operation that stops something and that the caller may run.
	Reserved bool
}

// Outcome is the result of a call.
type Outcome struct {
	// Result has the type of the operation's results. It may be set beside an error, if the
	// operation did a part of its work. Nil if there is none.
	Result any
	// Replay is the stored answer of the first call with the same key. Nil if this call ran the
	// operation.
	Replay *Replay
}

// Do runs an operation for a caller. The HTTP route and the pages both call it, so that every call
// passes the same checks, in this order: read-only mode, role, parameters of the command line,
// precondition, the caller's concurrency limit, idempotency key. The operation runs with the
// caller's name and role, so that its result and error contain only what the role may read.
//
// A call that only reads ends with ctx; an act runs until its deadline even if ctx ends, because
// the client of an act that is half done would not know. An error is a *RefusedError if the
// operation did not run. The text of an internal error is in the log alone.
func (h *Handler) Do(ctx context.Context, c Call) (Outcome, error) {
	if err := h.check(c); err != nil {
		return Outcome{}, err
	}
	reads := c.reads()
	env, leave, err := h.acquire(ctx, c, reads)
	if err != nil {
		return Outcome{}, err
	}
	defer leave()
	if !reads {
		ctx = context.WithoutCancel(ctx)
	}
	within := c.Operation.Limit()
	if reads && c.Reserved {
		within = min(within, stopReadTime)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if c.Key != "" && c.Operation.Changes {
		return h.once(ctx, env, c)
	}
	out, err := h.run(ctx, env, c)
	return Outcome{Result: out}, h.conceal(ctx, c, err)
}

// reads reports whether a call changes nothing. A plan with a key stores its answer.
func (c Call) reads() bool {
	return !c.Operation.Changes || operation.Plans(c.Input) && c.Key == ""
}

// allowed returns the error of an operation that the caller may not run here.
func (h *Handler) allowed(c Call) error {
	if h.ReadOnly && c.Operation.Changes {
		return refused(http.StatusForbidden, db.KindDenied, "this belfry is read-only (api.read_only): nothing is changed through it")
	}
	return c.Operation.Allowed(c.Caller.Role)
}

// check returns the error of a call that must not run, whatever the state of the database is.
func (h *Handler) check(c Call) error {
	if err := h.allowed(c); err != nil {
		return err
	}
	o := c.Operation
	for _, p := range o.Params() {
		if p.Local && p.Given(c.Input) { // such as the actor, which is the caller
			return &operation.InvalidError{Problems: []operation.Problem{{Param: p.Name,
				Text: "is a parameter of the command line; the caller is the actor here"}}}
		}
	}
	if c.Match == nil || !o.Changes { // a read needs no precondition
		return nil
	}
	if err := operation.ApplyPrecondition(c.Input, *c.Match); err != nil {
		return refused(http.StatusBadRequest, db.KindInvalid, matchHeader+": "+err.Error())
	}
	return nil
}

// acquire waits until the caller may run one more operation. It returns the environment of the call,
// and the function that ends it. An act that stops something uses reserved connections, and so do the reads of its
// page, one of an identity at a time.
func (h *Handler) acquire(ctx context.Context, c Call, reads bool) (env *operation.Env, leave func(), err error) {
	own, limit, name := h.reserve(false).Env, h.limiter, c.Caller.Key()
	switch {
	case c.Operation.Stops && !reads: // each act by itself: an abort that waits for a lock does not delay a halt
		own, limit, name = h.reserve(true).Env, h.stopLimiter, c.Operation.Name+" "+name
	case c.Reserved && reads:
		own, limit, name = h.reserve(true).Env, h.stopLimiter, "read "+name
	}
	if leave, err = limit.acquire(ctx, name); err == nil && limit == h.stopLimiter && (reads || !c.Operation.StopsAll) {
		leaveOwn := leave
		var leavePart func()
		if leavePart, err = h.partLimiter.acquire(ctx, ""); err != nil {
			leaveOwn()
			return nil, nil, err
		}
		leave = func() { leavePart(); leaveOwn() }
	}
	own.Actor, own.Role = c.Caller.Name, c.Caller.Role
	return &own, leave, err
}

// errPanicked is the error of an operation that panicked. Its outcome is unknown.
var errPanicked = errors.New("the operation panicked")

// run runs the operation of a call. If it panics, the error is errPanicked.
func (h *Handler) run(ctx context.Context, env *operation.Env, c Call) (out any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			h.logPanic(cause)
			out, err = nil, errPanicked
		}
	}()
	return c.Operation.Run(ctx, env, c.Input)
}

// Stream runs an operation that is a stream. each gets the items, one after the other, and beat is
// called every 15 seconds, both in the goroutine of the caller; beat may be nil. The stream ends
// with the operation, with an error of each or beat, which Stream returns, with ctx, without an
// error, and with a *RefusedError when the server stops, or when the caller's credentials or role
// do not allow the operation any more.
func (h *Handler) Stream(ctx context.Context, c Call, each func(item any) error, beat func() error) (any, error) {
	if err := h.check(c); err != nil {
		return nil, err
	}
	if err := h.streams.enter(c.Caller.Key()); err != nil {
		return nil, err
	}
	defer h.streams.leave(c.Caller.Key())
	own := &streamSlot{limiter: h.limiter, name: c.Caller.Key(), free: c.Operation.Shared}
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	pieces := make(chan piece)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { h.produce(ctx, c, own, pieces) })
	beats := time.NewTimer(h.streams.nextBeat())
	defer beats.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil, nil
		case <-h.streams.stopping:
			return nil, refused(http.StatusServiceUnavailable, db.KindUnavailable, "this belfry stops").again(retryAfter)
		case p := <-pieces:
			if p.end {
				return p.item, p.err
			}
			err = each(p.item)
		case <-beats.C:
			if err = h.stillAllowed(c); err == nil && beat != nil {
				err = beat()
			}
			beats.Reset(h.streams.nextBeat())
		}
		if err != nil {
			return nil, err
		}
	}
}

// stillAllowed checks again the credentials and the role of the caller of an open stream. An error
// of the database is none: the stream continues.
func (h *Handler) stillAllowed(c Call) error {
	who, err := h.authenticated(c.Caller.request, false, true)
	if err == nil && c.Operation.Allowed(who.Role) == nil {
		return nil
	}
	if err != nil && problemOf(route{}, err).Status >= http.StatusInternalServerError {
		return nil
	}
	return refused(http.StatusUnauthorized, db.KindDenied, access.ErrToken.Error())
}

// piece is an item of a stream, or its end.
type piece struct {
	item any
	end  bool
	err  error // of the end
}

// produce runs the operation of a stream until it ends, or ctx does. It releases the caller's slot.
func (h *Handler) produce(ctx context.Context, c Call, own *streamSlot, pieces chan<- piece) {
	send := func(p piece) error {
		select {
		case pieces <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	last := piece{end: true}
	defer own.end()
	defer func() {
		if cause := recover(); cause != nil {
			h.logPanic(cause)
			last.item, last.err = nil, errPanicked
		}
		last.err = h.conceal(ctx, c, last.err)
		_ = send(last)
	}()
	env := h.Env
	env.Actor, env.Role = c.Caller.Name, c.Caller.Role
	each := func(item any) error { return own.sending(ctx, func() error { return send(piece{item: item}) }) }
	last.item, last.err = c.Operation.Stream(ctx, &env, c.Input, each)
}

// RefusedError is a call, or a sign-in, that was refused before it began.
type RefusedError struct {
	Status int // of HTTP
	Of     db.Kind
	Text   string
	// After is the time after which the same call may succeed. Zero if waiting does not help.
	After time.Duration

	challenge string // of WWW-Authenticate; "" if no credentials help
}

func refused(status int, kind db.Kind, text string) *RefusedError {
	return &RefusedError{Status: status, Of: kind, Text: text}
}

func (e *RefusedError) again(after time.Duration) *RefusedError {
	e.After = after
	return e
}

// Error returns the text.
func (e *RefusedError) Error() string { return e.Text }

// Kind returns Of.
func (e *RefusedError) Kind() db.Kind { return e.Of }

// conceal returns the error of an operation as its caller may read it, and logs an internal one.
func (h *Handler) conceal(ctx context.Context, c Call, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // the client is gone
		return err
	}
	if kind := db.KindOf(err); statuses[kind] >= http.StatusInternalServerError {
		h.Log.Warn().Err(err).Str("detail", c.Operation.Name+" for "+c.Caller.Key()).Str("reason",
			string(kind)).Msg("operation of the API did not succeed")
	}
	return concealed(err)
}

// concealed replaces the text of an error whose kind says all that a caller may read.
func concealed(err error) error {
	kind := db.KindOf(err)
	text, next := "", ""
	switch kind {
	case db.KindFailed:
		text = "belfry's log has the error"
	case db.KindUnavailable:
		if !errors.As(err, new(*operation.UnavailableError)) {
			text = "the database does not answer; nothing was done"
		}
	case db.KindTooSlow:
		text = "this took too long and was ended"
	case db.KindStandby:
		text = "the database is a standby and accepts no writes before it is promoted"
	case db.KindUnknown:
		text = "the connection was lost before the database confirmed: this may or may not have taken effect; check before you repeat it"
	case db.KindForbidden:
		text, next = err.Error(),
			"`belfry roles --for …` prints the GRANTs that belfry's role in the database needs; `belfry doctor` names those that it lacks"
		if server := new(pgconn.PgError); errors.As(err, &server) {
			text = server.Message
		}
	case db.KindInvalid, db.KindNotFound, db.KindConflict, db.KindStale, db.KindHeld, db.KindDenied:
	}
	if text == "" || errors.As(err, new(*operation.InvalidError)) {
		return err
	}
	if advised := new(operation.AdvisedError); next == "" && errors.As(err, &advised) {
		next = advised.Next.String()
	}
	err = &operation.ToldError{Of: kind, Text: text}
	if next != "" {
		err = operation.Advise(err, next)
	}
	return err
}

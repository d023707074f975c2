package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// caller returns the caller of a request with a role's token, as a page has it.
func caller(t *testing.T, h *api.Handler, role string) *api.Caller {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	req.Header.Set("Authorization", "Bearer "+role)
	c, err := h.Caller(req, false)
	require.NoError(t, err)
	require.NotNil(t, c)
	return c
}

// named returns an operation of belfry.
func named(t *testing.T, name string) operation.Operation {
	t.Helper()
	all := admin.Operations()
	i := slices.IndexFunc(all, func(o operation.Operation) bool { return o.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// set sets parameters of an input by name.
func set(t *testing.T, o operation.Operation, in any, values map[string]string) any {
	t.Helper()
	for _, p := range o.Params() {
		if text, has := values[p.Name]; has {
			require.NoError(t, p.Set(in, text), p.Name)
		}
	}
	return in
}

func TestDo_RefusesWhatTheCallerMayNot(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	pause := named(t, "lanes pause")
	given := func(values map[string]string) any { return set(t, pause, pause.NewInput(), values) }
	paused := func() int { return b.count(t, `SELECT count(*) FROM belfry.lanes WHERE paused_at IS NOT NULL`) }

	_, err := b.handler.Do(t.Context(), api.Call{Caller: caller(t, b.handler, "author"), Operation: pause, Input: given(map[string]string{"lane": "night"})})
	require.ErrorAs(t, err, new(*operation.DeniedError))
	operator := caller(t, b.handler, "operator")
	_, err = b.handler.Do(t.Context(), api.Call{Caller: operator, Operation: pause, Input: given(map[string]string{"lane": "night", "actor": "mallory"})})
	require.ErrorContains(t, err, "actor: is a parameter of the command line")
	_, err = b.handler.Do(t.Context(), api.Call{Caller: operator, Operation: pause, Input: given(map[string]string{"lane": "night"}), Match: &operation.Precondition{Versions: []int64{7}}})
	require.Equal(t, db.KindStale, db.KindOf(err), "%v", err)
	require.Zero(t, paused())

	readOnly := setup(t, func(c *api.Options) { c.ReadOnly = true })
	_, err = readOnly.handler.Do(t.Context(), api.Call{Caller: caller(t, readOnly.handler, "admin"), Operation: pause, Input: given(map[string]string{"lane": "night"})})
	refused := new(api.RefusedError)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusForbidden, refused.Status)

	out, err := b.handler.Do(t.Context(), api.Call{Caller: operator, Operation: pause, Input: given(map[string]string{"lane": "night", "reason": "bad link"})})
	require.NoError(t, err)
	require.Nil(t, out.Replay)
	require.Equal(t, 1, paused())
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM belfry.events WHERE subject = 'lane' AND actor = 'the-operator' AND reason = 'bad link'`), "the caller is the actor")
}

func TestDo_ResultsContainWhatTheRoleMayRead(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id, err := strconv.ParseInt(b.job(t, "Ten things"), 10, 64)
	require.NoError(t, err)
	b.exec(t, `UPDATE belfry.jobs SET body = 'the secret words'`)
	show := named(t, "jobs show")
	for role, body := range map[string]string{"viewer": operation.Masked, "operator": "the secret words"} {
		out, err := b.handler.Do(t.Context(), api.Call{Caller: caller(t, b.handler, role), Operation: show, Input: set(t, show, show.NewInput(), map[string]string{"id": strconv.FormatInt(id, 10)})})
		require.NoError(t, err)
		report, is := out.Result.(interface{ State() jobs.JobState })
		require.True(t, is)
		require.Equal(t, body, report.State().Body, role)
	}
}

// A key is used once, by whichever of the two the calls come.
func TestDo_RunsAnActOnceForAKey(t *testing.T) {
	t.Parallel()
	b, done := counting(t, nil)
	o := b.handler.Operations[0]
	input := func(values map[string]string) any { return set(t, o, o.NewInput(), values) }
	author := caller(t, b.handler, "author")
	first, err := b.handler.Do(t.Context(), api.Call{Caller: author, Operation: o, Input: input(map[string]string{"pad": "3"}), Key: "k"})
	require.NoError(t, err)
	again, err := b.handler.Do(t.Context(), api.Call{Caller: author, Operation: o, Input: input(map[string]string{"pad": "3"}), Key: "k"})
	require.NoError(t, err)
	require.NotNil(t, again.Replay)
	require.Equal(t, first.Result.(operation.Acted).Result, again.Result.(operation.Acted).Result)
	byHTTP := b.call(t, "author", "POST", "/things/count", `{ "pad" : 3 }`, "Idempotency-Key", "k")
	require.Equal(t, "true", byHTTP.header.Get("Idempotent-Replayed"), byHTTP.text)
	require.EqualValues(t, 1, done.Load())
	promoted := *author
	promoted.Role = operation.Operator
	for _, other := range []api.Call{
		{Caller: &promoted, Operation: o, Input: input(map[string]string{"pad": "3"}), Key: "k"}, // who may read more
		{Caller: author, Operation: o, Input: input(map[string]string{"pad": "4"}), Key: "k"},
		{Caller: author, Operation: b.handler.Operations[1], Input: input(map[string]string{"pad": "3"}), Key: "k"},
	} {
		_, err = b.handler.Do(t.Context(), other)
		require.ErrorContains(t, err, "this key was used for another request")
	}
	for range 2 { // what did a part of its work is not run again either
		out, err := b.handler.Do(t.Context(), api.Call{Caller: author, Operation: o, Input: input(map[string]string{"fail": "half"}), Key: "h"})
		require.Equal(t, db.KindConflict, db.KindOf(err), "%v", err)
		require.NotNil(t, out.Result)
	}
	require.EqualValues(t, 2, done.Load())
}

// The limits of an identity are those of its requests and its pages together.
func TestDo_LimitsACaller(t *testing.T) {
	t.Parallel()
	l := newLong()
	o := l.operation()
	b := setup(t, func(c *api.Options) { c.Operations = append(c.Operations, o) })
	b.handler.SetLimits(1, 20*time.Millisecond)
	operator := caller(t, b.handler, "operator")
	var running sync.WaitGroup
	defer running.Wait()
	defer close(l.end)
	running.Go(func() { b.call(t, "operator", "GET", "/people/count", "") })
	<-l.begun
	_, err := b.handler.Do(t.Context(), api.Call{Caller: operator, Operation: o, Input: o.NewInput()})
	refused := new(api.RefusedError)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusTooManyRequests, refused.Status)
	require.Equal(t, 5*time.Second, refused.After)
	lanes := named(t, "lanes list")
	_, err = b.handler.Do(t.Context(), api.Call{Caller: caller(t, b.handler, "viewer"), Operation: lanes, Input: lanes.NewInput()})
	require.NoError(t, err, "another identity has its own limit")
}

// An internal error, and a panic, are in the log and not in the error of the caller.
func TestDo_ConcealsInternalErrors(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, run := range []func() error{func() error { return errors.New("the inner words") }, func() error { panic("the inner words") }} {
		o := operation.Define(operation.Operation{Name: "people fail", Short: "Fail", Role: operation.Viewer}, func(context.Context, *operation.Env, operation.None) (sum, error) {
			return sum{}, run()
		}, func(*text.Doc, operation.None, sum) {})
		_, err := b.handler.Do(t.Context(), api.Call{Caller: caller(t, b.handler, "viewer"), Operation: o, Input: o.NewInput()})
		require.EqualError(t, err, "belfry's log has the error")
		require.Equal(t, db.KindFailed, db.KindOf(err))
		require.Contains(t, b.log.String(), "the inner words")
	}
}

// An act that panics may have taken effect: its key is not free.
func TestDo_APanicLeavesAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	b, ran := setup(t, nil), 0
	o := operation.Define(operation.Operation{Name: "people fail", Short: "Fail", Role: operation.Viewer, Changes: true}, func(context.Context, *operation.Env, operation.None) (sum, error) {
		ran++
		panic("the inner words")
	}, func(*text.Doc, operation.None, sum) {})
	call := api.Call{Caller: caller(t, b.handler, "viewer"), Operation: o, Input: o.NewInput(), Key: "k"}
	_, err := b.handler.Do(t.Context(), call)
	require.EqualError(t, err, "belfry's log has the error")
	_, err = b.handler.Do(t.Context(), call)
	require.ErrorContains(t, err, "the first request with this key is still in progress")
	b.exec(t, `UPDATE belfry.requests SET ends_at = now() - interval '1 second'`)
	_, err = b.handler.Do(t.Context(), call)
	require.Equal(t, db.KindUnknown, db.KindOf(err), "%v", err)
	require.Equal(t, 1, ran)
}

// An act runs to its end though its client is gone; a read ends with it.
func TestDo_OnlyReadsEndWithTheirClient(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, changes := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		o := operation.Define(operation.Operation{Name: "people wait", Short: "Wait", Role: operation.Viewer, Changes: changes}, func(ctx context.Context, _ *operation.Env, _ operation.None) (sum, error) {
			leave()
			return sum{}, ctx.Err()
		}, func(*text.Doc, operation.None, sum) {})
		_, err := b.handler.Do(ctx, api.Call{Caller: caller(t, b.handler, "viewer"), Operation: o, Input: o.NewInput()})
		if changes {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

// A stream ends with its operation, its reader, its caller's credentials and its server.
func TestDo_StreamsEnd(t *testing.T) {
	t.Parallel()
	o := talking(sayWords)
	s := serveStream(t, o, false, func(h *api.Handler, _ *http.Server) { h.SetStreams(8, 1, time.Millisecond, time.Minute) })
	viewer := caller(t, s.handler, "viewer")
	words := func(o operation.Operation, fail string) api.Call {
		return api.Call{Caller: viewer, Operation: o, Input: &talk{Words: []string{"hi", "ho"}, Fail: fail}}
	}
	var items []any
	each := func(item any) error { items = append(items, item); return nil }
	out, err := s.handler.Stream(t.Context(), words(o, ""), each, nil)
	require.NoError(t, err)
	require.Equal(t, sum{2}, out)
	require.Equal(t, []any{[]string{"hi", "!"}, []string{"ho", "!"}}, items)
	_, err = s.handler.Stream(t.Context(), words(o, "missing"), each, nil)
	require.ErrorIs(t, err, job.ErrNotFound)
	_, err = s.handler.Stream(t.Context(), words(o, "panic"), each, nil)
	require.EqualError(t, err, "belfry's log has the error")
	enough := errors.New("enough")
	_, err = s.handler.Stream(t.Context(), words(o, ""), func(any) error { return enough }, nil)
	require.ErrorIs(t, err, enough)

	endless := forever("hi", make(chan struct{}))
	ctx, leave := context.WithCancel(t.Context())
	_, err = s.handler.Stream(ctx, words(endless, ""), func(any) error {
		_, err := s.handler.Stream(t.Context(), words(o, ""), each, nil)
		require.ErrorContains(t, err, "too many streams are open; allowed: 1 of one identity")
		leave()
		return nil
	}, nil)
	require.NoError(t, err)
	endless = forever("hi", make(chan struct{}))
	_, err = s.handler.Stream(t.Context(), words(endless, ""), func(any) error { s.revoked.Store(true); return nil }, nil)
	require.EqualError(t, err, access.ErrToken.Error())
	s.revoked.Store(false)
	endless = forever("hi", make(chan struct{}))
	_, err = s.handler.Stream(t.Context(), words(endless, ""), func(any) error { s.handler.EndStreams(); return nil }, nil)
	require.EqualError(t, err, "this belfry stops")
	require.Zero(t, s.handler.Streams())
	require.Zero(t, s.handler.LimitedIdentities())
}

// A browser that has not signed in, and its first pages, do not count as guesses of its address.
func TestCaller_WithoutCredentialsIsNoGuess(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ask := func(token string) error {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		c, err := b.handler.Caller(req, false)
		require.Nil(t, c)
		return err
	}
	for range 30 {
		require.NoError(t, ask(""))
	}
	for range 20 {
		require.NoError(t, ask("bad"))
	}
	refused := new(api.RefusedError)
	require.ErrorAs(t, ask("bad"), &refused)
	require.Equal(t, http.StatusTooManyRequests, refused.Status)
}

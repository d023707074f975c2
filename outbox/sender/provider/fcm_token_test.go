package provider

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Invariant 1: once however many want it.
func TestFCM_IsAskedForOnce(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 20 {
		wg.Go(func() {
			if s.Send(t.Context(), []sender.Delivery{fcmDelivery()})[0] != fcmAccepted {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, failed.Load())
	asked, posted := g.counts()
	require.Equal(t, []int{1, 20}, []int{asked, posted})
}

// Others wait for the token that a message requests: it is requested although the message may no longer be sent.
func TestFCM_IsRequestedForALateMessage(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	ctx := sender.WithCheck(t.Context(), func() error { return sender.ErrLate })
	require.Equal(t, "late", s.Send(ctx, []sender.Delivery{fcmDelivery()})[0].Code)
	asked, posted := g.counts()
	require.Equal(t, []int{1, 0}, []int{asked, posted})
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	asked, _ = g.counts()
	require.Equal(t, 1, asked)
}

func TestFCM_IsRefreshedBeforeItExpires(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	g.clock.advance(3599*time.Second - 5*time.Minute - time.Second)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	g.clock.advance(time.Second)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	require.Equal(t, []string{"Bearer token1", "Bearer token1", "Bearer token2"}, g.bearers)
}

// Invariant 2: a token that is good goes on being used while its provider fails, which is
// asked once a second.
func TestFCM_IsUsedToItsEndWhenItsProviderFails(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	g.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, nil)
	g.clock.advance(3599*time.Second - time.Minute)
	for range 3 {
		require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	}
	asked, _ := g.counts()
	require.Equal(t, 2, asked)
	g.clock.advance(time.Second)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	asked, _ = g.counts()
	require.Equal(t, 3, asked)

	g.clock.advance(time.Minute) // and now it has expired
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "oauth_503", Detail: "access token: Service Unavailable"}, send(t, s, fcmDelivery(), long))
	_, posted := g.counts()
	require.Equal(t, 5, posted)

	g.set(nil, nil)
	g.clock.advance(time.Second)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
}

// While nobody can have a token, one request a second is enough, and a Retry-After holds.
func TestFCM_FailuresAreNotHammered(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	g.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
	}, nil)
	s := g.sender(t, g.config(t))
	want := sender.Result{Class: sender.Retryable, Code: "oauth_429", Detail: "access token: Too Many Requests", RetryAfter: 10 * time.Second}
	for range 5 {
		require.Equal(t, want, send(t, s, fcmDelivery(), long))
	}
	g.clock.advance(9 * time.Second)
	require.Equal(t, want, send(t, s, fcmDelivery(), long))
	asked, _ := g.counts()
	require.Equal(t, 1, asked)
	g.clock.advance(time.Second)
	g.set(nil, nil)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
}

// Whatever goes wrong with the token, nothing was sent: retryable.
func TestFCM_Failures(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		timeout time.Duration
		code    string
	}{
		{"refused", answer(400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`), long, "oauth_invalid_grant"},
		{"unauthorized", answer(401, `nope`), long, "oauth_401"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
		}, short, "oauth_timeout"},
		{"garbage", answer(200, `{"access_tok`), long, "oauth_answer"},
		{"no token", answer(200, `{"expires_in":3600}`), long, "oauth_answer"},
		{"no time", answer(200, `{"access_token":"x"}`), long, "oauth_answer"},
		{"a token that would break the header", answer(200, `{"access_token":"x\r\ny","expires_in":3600}`), long, "oauth_answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := fcmStart(t)
			g.set(test.handler, nil)
			got := send(t, g.sender(t, g.config(t)), fcmDelivery(), test.timeout)
			require.Equal(t, sender.Retryable, got.Class)
			require.Equal(t, test.code, got.Code)
			_, posted := g.counts()
			require.Zero(t, posted)
		})
	}
}

// One caller's short time is not held against the next.
func TestFCM_ACallerWithoutTimeSpeaksForItself(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	g.set(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
	}, nil)
	s := g.sender(t, g.config(t))
	require.Equal(t, "oauth_timeout", send(t, s, fcmDelivery(), short).Code)
	g.set(nil, nil)
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
}

// Those who wait while another asks do not wait beyond their own time.
func TestFCM_WaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	asking := make(chan struct{})
	var once sync.Once
	release := make(chan struct{})
	g.set(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asking) })
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `{"access_token":"x","expires_in":3600}`)
	}, nil)
	s := g.sender(t, g.config(t))
	first := make(chan sender.Result, 1)
	go func() { first <- s.Send(t.Context(), []sender.Delivery{fcmDelivery()})[0] }()
	<-asking
	got := send(t, s, fcmDelivery(), 50*time.Millisecond)
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "oauth_timeout", Detail: "no access token in time"}, got)
	close(release)
	require.Equal(t, fcmAccepted, <-first)
	asked, posted := g.counts()
	require.Equal(t, []int{1, 1}, []int{asked, posted})
}

// fcmUnauthorized refuses a token as FCM does.
func fcmUnauthorized(w http.ResponseWriter, r *http.Request) {
	fcmFailure(http.StatusUnauthorized, "Request had invalid authentication credentials.", "UNAUTHENTICATED", "")(w, r)
}

// Invariant 1: a token that was revoked is replaced, once.
func TestFCM_IsReplacedAfter401(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	require.Equal(t, fcmAccepted, send(t, s, fcmDelivery(), long))
	g.clock.advance(2 * time.Minute)
	g.set(nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer token1" {
			fcmUnauthorized(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"name":"projects/belfry-test/messages/1"}`)
	})
	require.Equal(t, sender.Accepted, send(t, s, fcmDelivery(), long).Class)
	require.Equal(t, []string{"Bearer token1", "Bearer token1", "Bearer token2"}, g.bearers)
	require.Equal(t, g.posted[0], g.posted[2], "the same message, the same key")

	// A token just had is not replaced: the next would fare no better.
	g.set(nil, fcmUnauthorized)
	for range 3 {
		require.Equal(t, sender.Result{Class: sender.Retryable, Code: "UNAUTHENTICATED", Detail: "Unauthorized"}, send(t, s, fcmDelivery(), long))
	}
	asked, posted := g.counts()
	require.Equal(t, []int{2, 6}, []int{asked, posted})

	// Later it is, but a message is posted twice at most, whatever the clock does.
	g.clock.advance(2 * time.Minute)
	g.set(nil, func(w http.ResponseWriter, r *http.Request) {
		g.clock.advance(2 * time.Minute)
		fcmUnauthorized(w, r)
	})
	require.Equal(t, sender.Retryable, send(t, s, fcmDelivery(), long).Class)
	asked, posted = g.counts()
	require.Equal(t, []int{3, 8}, []int{asked, posted})
}

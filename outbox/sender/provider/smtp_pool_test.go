package provider

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// A server that accepts fewer connections than there are calls at once delays calls, and fails none. It is not
// asked for one more connection with every call.
func TestSMTP_WaitsForAConnectionOfACrowdedServer(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*smtpServer, *SMTPConfig){
		"refused":      func(*smtpServer, *SMTPConfig) {},
		"dropped":      func(s *smtpServer, _ *SMTPConfig) { s.faults["CROWDED"] = "drop" },
		"EHLO dropped": func(s *smtpServer, _ *SMTPConfig) { s.faults["CROWDED"] = "EHLO" },
		"frees late":   func(s *smtpServer, c *SMTPConfig) { s.most, s.frees, c.MaxIdle = 1, 20*time.Millisecond, 0 },
		"nothing idle": func(_ *smtpServer, c *SMTPConfig) { c.MaxIdle = 0 },
		"few messages": func(_ *smtpServer, c *SMTPConfig) { c.MaxPerConnection = 3 },
		"one":          func(s *smtpServer, _ *SMTPConfig) { s.most = 1 },
		"encrypted":    func(s *smtpServer, c *SMTPConfig) { s.implicit, c.TLS = true, "implicit" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls, messages = 16, 10
			cfg := DefaultSMTP()
			cfg.TLS = "none"
			srv, s := smtpSetup(t, func(s *smtpServer) { s.most = 5; adjust(s, cfg) }, func(c *SMTPConfig) {
				c.TLS, c.MaxIdle, c.MaxPerConnection = cfg.TLS, cfg.MaxIdle, cfg.MaxPerConnection
			})
			var all sync.WaitGroup
			for range calls {
				all.Go(func() {
					for range messages {
						if got := s.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0]; got.Class != sender.Accepted {
							t.Error(got)
						}
					}
				})
			}
			all.Wait()
			require.Eventually(t, func() bool { // closed after their QUIT
				pool := s.(*oneByOne).Closer.(*smtpPool)
				pool.mu.Lock()
				defer pool.mu.Unlock()
				return pool.sessions == len(pool.idle)
			}, long, time.Millisecond)
			require.Equal(t, calls*messages, len(srv.seen().mails)) //nolint:testifylint // Len prints the mails
			require.Less(t, srv.seen().refused, calls*messages/2)
			pool := s.(*oneByOne).Closer.(*smtpPool)
			require.Zero(t, pool.opening+len(pool.waiting))
			if cfg.MaxIdle > 0 && cfg.MaxPerConnection > messages {
				require.Equal(t, srv.most, pool.limit)
			}
			pool.unlimit()
			require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
		})
	}
}

// A call that ends while it waits for a connection has not tried.
func TestSMTP_EndsWhileItWaitsForAConnection(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, func(s *smtpServer) { s.most, s.faults["RCPT"] = 1, "hang" }, func(c *SMTPConfig) { c.TLS = "none" })
	held, cancel := context.WithCancel(t.Context())
	ended := make(chan sender.Result, 1)
	go func() { ended <- s.Send(held, []sender.Delivery{smtpDelivery()})[0] }()
	<-srv.hangs
	ctx, stop := context.WithTimeout(t.Context(), smtpSoon)
	defer stop()
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "timeout", Untried: true,
		Detail: "the server accepts no further connection, and none was free in time"}, s.Send(ctx, []sender.Delivery{smtpDelivery()})[0])
	cancel()
	require.Equal(t, "canceled", (<-ended).Code)
	srv.set(func(s *smtpServer) { clear(s.faults) })
	require.Eventually(t, func() bool { return deliver(t, s, smtpDelivery()).Class == sender.Accepted }, long, 10*time.Millisecond)
}

// I13: as many connections as calls at once, and no more than MaxIdle afterwards.
func TestSMTP_ManyAtOnce(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.MaxIdle, c.TLS = 2, "none" })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if got := s.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0]; got.Class != sender.Accepted {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, srv.seen().mails, 80)
	require.Eventually(t, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.open) <= 2
	}, long, 10*time.Millisecond)
}

// A connection that could not be made use of is closed, and so is one whose message was
// left unfinished.
func TestSMTP_LeavesNoConnectionOpen(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"GREETING", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "DOT"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			srv, s := smtpSetup(t, func(s *smtpServer) { s.faults[command] = "hang" }, func(c *SMTPConfig) { c.Username, c.Password = "relay", "secret" })
			ctx, cancel := context.WithTimeout(t.Context(), smtpSoon)
			defer cancel()
			_ = s.Send(ctx, []sender.Delivery{smtpDelivery()})
			require.Eventually(t, func() bool {
				srv.mu.Lock()
				defer srv.mu.Unlock()
				return srv.connections == 1 && len(srv.open) == 0
			}, long, time.Millisecond)
		})
	}
}

// A server that refuses a message and then its RSET gets no further message on that
// connection.
func TestSMTP_DropsAConnectionThatIsNotReset(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, func(s *smtpServer) {
		s.replies["RCPT"], s.replies["RSET"] = "550 5.1.1 no", "503 5.5.1 bad sequence"
	}, nil)
	require.Equal(t, sender.InvalidAddress, deliver(t, s, smtpDelivery()).Class)
	srv.set(func(s *smtpServer) { clear(s.replies) })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	require.Equal(t, 2, srv.seen().connections)
}

// A call whose idle session was lost uses another idle one if the server refuses a new connection.
func TestSMTP_UsesAnIdleSessionWhenANewOneIsRefused(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.TLS = "none" })
	pool := s.(*oneByOne).Closer.(*smtpPool)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	first, _, err := pool.acquire(ctx, false)
	require.NoError(t, err)
	second, _, err := pool.acquire(ctx, false)
	require.NoError(t, err)
	pool.release(first, true)
	pool.release(second, true)
	srv.set(func(s *smtpServer) { s.most, s.served = 2, 2 })
	third, reused, err := pool.acquire(ctx, true)
	require.NoError(t, err)
	require.True(t, reused)
	require.Equal(t, 1, srv.seen().refused)
	pool.release(third, true)
}

// A server may accept a connection and greet it late, as one without a free process does. A call then takes the session that
// another call gives back, and the late one is used afterwards.
func TestSMTP_TakesTheFirstSessionThatComes(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.TLS = "none" })
	pool := s.(*oneByOne).Closer.(*smtpPool)
	first, _, err := pool.acquire(t.Context(), false)
	require.NoError(t, err)
	greet := make(chan struct{})
	srv.set(func(s *smtpServer) { s.greets = greet })
	came := make(chan *smtpSession, 1)
	go func() {
		second, _, err := pool.acquire(t.Context(), false)
		if err != nil {
			t.Error(err)
		}
		came <- second
	}()
	require.Eventually(t, func() bool { return srv.seen().connections == 2 }, long, time.Millisecond)
	pool.release(first, true)
	require.Equal(t, first, <-came)
	close(greet)
	require.Eventually(t, func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.idle) == 1 && pool.sessions == 2 && pool.opening+len(pool.orphans) == 0
	}, long, time.Millisecond)
	third, reused, err := pool.acquire(t.Context(), false)
	require.NoError(t, err)
	require.True(t, reused)
	require.NotEqual(t, first, third)
	require.Equal(t, 2, srv.seen().connections)
	pool.release(first, true)
	pool.release(third, true)
}

// Nor does each call open another connection then.
func TestSMTP_OpensNoMoreThanCallsWait(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.TLS = "none" })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	srv.set(func(s *smtpServer) { s.greets = make(chan struct{}) })
	const calls, messages = 4, 20
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			for range messages {
				if got := s.Send(t.Context(), []sender.Delivery{smtpDelivery()})[0]; got.Class != sender.Accepted {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, srv.seen().connections, 1+calls)
}

// A connection that is opened for no call any more ends with the pool.
func TestSMTP_CloseEndsWhatIsOpenedForNobody(t *testing.T) {
	t.Parallel()
	srv, s := smtpSetup(t, nil, func(c *SMTPConfig) { c.TLS = "none" })
	pool := s.(*oneByOne).Closer.(*smtpPool)
	first, _, err := pool.acquire(t.Context(), false)
	require.NoError(t, err)
	srv.set(func(s *smtpServer) { s.greets = make(chan struct{}) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if second, _, err := pool.acquire(t.Context(), false); err == nil {
			pool.release(second, true)
		}
	}()
	require.Eventually(t, func() bool { return srv.seen().connections == 2 }, long, time.Millisecond)
	pool.release(first, true)
	<-ended
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.sessions+pool.opening+len(pool.orphans) == 0
	}, long, time.Millisecond)
}

// A call does not wait for the answer to QUIT.
func TestSMTP_QuitDelaysNoCall(t *testing.T) {
	t.Parallel()
	_, s := smtpSetup(t, func(s *smtpServer) { s.faults["QUIT"] = "hang" }, func(c *SMTPConfig) { c.TLS, c.MaxIdle = "none", 0 })
	require.Equal(t, sender.Accepted, deliver(t, s, smtpDelivery()).Class)
	pool := s.(*oneByOne).Closer.(*smtpPool)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	require.Equal(t, 1, pool.sessions, "it waits for a second")
}

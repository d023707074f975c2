package console_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

// I13: two hundred browsers with a page that is open cost the database no more than one: they share
// its looks, and whether their sessions are good is asked for all of them at once.
func TestFault_TwoHundredPagesCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *api.Options) { c.Env.Broadcaster = jobs.NewBroadcaster(250 * time.Millisecond) })
	h.enqueue(t, "Hello")
	for _, sql := range []string{
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now()`,
		`INSERT INTO belfry.users (name, role, created_by, password) SELECT 'u' || g, 'operator', 'x', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY' FROM generate_series(1, 20) g`,
		`INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
			SELECT 'session', sha256(('secret' || g)::bytea), 'u' || (g % 20 + 1), 'operator', 'password', '192.0.2.1', now() + interval '1 hour' FROM generate_series(1, 200) g`,
	} {
		_, err := h.db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer leave()
	var lines atomic.Int64
	showResult := func(session int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/live", nil)
		require.NoError(t, err)
		req.AddCookie(&http.Cookie{Name: "belfry", Value: fmt.Sprintf("secret%d", session)})
		res, err := client.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
		reading.Go(func() {
			defer res.Body.Close() //nolint:errcheck // it was only read
			for text := bufio.NewScanner(res.Body); text.Scan(); {
				lines.Add(1)
			}
		})
	}
	// Twice the 15 s between two looks at who is there.
	cost := func() int64 {
		before := h.db.Pool.Stat().AcquireCount()
		select {
		case <-time.After(30 * time.Second):
		case <-ctx.Done():
		}
		return h.db.Pool.Stat().AcquireCount() - before
	}
	showResult(1)
	one := cost()
	for session := 2; session <= 200; session++ {
		showResult(session)
	}
	all := cost()
	t.Logf("in 30 s one page took %d connections, two hundred %d; %d lines came", one, all, lines.Load())
	require.Greater(t, one, int64(100), "it looks")
	// A look that was late for a busy machine is one less: the half more is for that, where each page's own would be
	// two hundred times as many.
	require.LessOrEqual(t, all, one*3/2)
	require.Greater(t, lines.Load(), int64(200*10), "all of them are live")
}

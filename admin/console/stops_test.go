package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/job"
)

// The pages of stops work while other requests use all other connections: their caller, their status, their form,
// their plan and their act.
func TestStops_OfPagesNeedNoConnectionOfOthers(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *api.Options) { admintest.Reserve(t, c) })
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "x", Lane: "night"})
	require.NoError(t, err)
	var all []*pgxpool.Conn
	for range h.db.Pool.Config().MaxConns {
		conn, err := h.db.Pool.Acquire(t.Context())
		require.NoError(t, err)
		all = append(all, conn)
	}
	release := func() {
		for _, conn := range all {
			conn.Release()
		}
		all = nil
	}
	t.Cleanup(release)
	operator := h.as(t, "operator")
	operator.client.Timeout = time.Minute
	for _, at := range []string{
		"/halt", "/unhalt", "/lanes/night/pause", "/lanes/night/resume", "/senders/fcm/pause", "/senders/fcm/resume",
		fmt.Sprint("/abort?id=", id), fmt.Sprintf("/jobs/%d/stop", id),
	} {
		began := time.Now()
		form := operator.get(t, at)
		require.Equal(t, http.StatusOK, form.status, "%s: %s", at, form.text)
		if at == "/unhalt" {
			require.Contains(t, form.text, "End the halt…", "the status")
		}
		fields := form.hidden()
		fields.Set("reason", "stop")
		if at == fmt.Sprintf("/jobs/%d/stop", id) {
			continue // the act before has stopped it
		}
		to, err := url.Parse(at)
		require.NoError(t, err)
		for name, values := range to.Query() {
			fields[name] = values
		}
		done := operator.post(t, to.Path, fields)
		require.Contains(t, []int{http.StatusOK, http.StatusSeeOther}, done.status, "%s: %s", at, done.text)
		t.Log(at, time.Since(began).Round(time.Millisecond))
	}
	release()
	s, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.Aborted, s.Status)
}

// A caller who may not stop anything reads no page on the reserved connections.
func TestStops_OfPagesAreForOperators(t *testing.T) {
	t.Parallel()
	var general, reserve *pgxpool.Pool
	h := open(t, func(c *api.Options) {
		admintest.Reserve(t, c)
		general, reserve = c.Env.DB, c.Stops.Env.DB
		c.Authenticate, c.Stops.Authenticate = tokens, tokens
	})
	reserved, others := reserve.Stat().AcquireCount(), general.Stat().AcquireCount()
	require.Equal(t, http.StatusForbidden, h.as(t, "viewer").get(t, "/halt").status)
	require.Equal(t, reserved, reserve.Stat().AcquireCount())
	require.Greater(t, general.Stat().AcquireCount(), others)
}

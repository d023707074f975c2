package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// stops are requests that stop something, or let it go on, as an operator sends them; id is a job's.
func stops(id int64) [][2]string {
	return [][2]string{
		{"/halt", `{"reason": "stop"}`},
		{"/unhalt", `{"reason": "again"}`},
		{"/abort", fmt.Sprintf(`{"id": [%d], "reason": "wrong link"}`, id)},
		{"/lanes/night/pause", `{"reason": "stop"}`},
		{"/lanes/night/resume", `{"reason": "again"}`},
		{"/senders/fcm/pause", `{"reason": "stop"}`},
		{"/senders/fcm/resume", `{"reason": "again"}`},
	}
}

// What stops something has connections that no other request takes: it is done where the others
// have none left.
func TestStops_NeedNoConnectionOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { admintest.Reserve(t, c) })
	id := b.waiting(t)
	var all []*pgxpool.Conn
	for range b.db.Pool.Config().MaxConns {
		conn, err := b.db.Pool.Acquire(t.Context())
		require.NoError(t, err)
		all = append(all, conn)
	}
	for i, stop := range stops(id) {
		got := b.call(t, "operator", "POST", stop[0], stop[1], "Idempotency-Key", fmt.Sprint("stop-", i))
		require.Equal(t, http.StatusOK, got.status, "%s: %s", stop[0], got.text)
	}
	require.NotContains(t, b.log.String(), "cannot keep the answer", "the answer has a key")
	for _, conn := range all {
		conn.Release()
	}
	require.Contains(t, b.call(t, "viewer", "GET", fmt.Sprint("/jobs/", id), "").text, `"status":"ABORTED"`)
}

// Every operation that stops something, and no other, is done so.
func TestStops_AreThese(t *testing.T) {
	t.Parallel()
	var names []string
	for _, o := range admin.Operations() {
		if o.Stops {
			names = append(names, o.Name)
			require.True(t, o.Changes, o.Name)
		}
	}
	require.ElementsMatch(t, []string{"abort", "halt", "unhalt", "lanes pause", "lanes resume", "senders pause", "senders resume"}, names)
}

// What changes something is limited for one identity, too; what stops something is not kept by it.
func TestTurns_LimitWhatChangesSomething(t *testing.T) {
	t.Parallel()
	l := newLong()
	act := operation.Define(operation.Operation{Name: "people move", Short: "Move", Role: operation.Viewer, Changes: true}, func(ctx context.Context, _ *operation.Env, _ operation.None) (sum, error) {
		l.begun <- struct{}{}
		select {
		case <-l.end:
		case <-ctx.Done():
		}
		return sum{}, nil
	}, func(*text.Doc, operation.None, sum) {})
	b := setup(t, func(c *api.Options) {
		c.Operations = append(c.Operations, act)
		admintest.Reserve(t, c)
	})
	b.handler.SetLimits(1, 20*time.Millisecond)
	var asking sync.WaitGroup
	asking.Go(func() { b.call(t, "operator", "POST", "/people/move", "") })
	defer asking.Wait()
	defer close(l.end)
	<-l.begun
	require.Equal(t, http.StatusTooManyRequests, b.call(t, "operator", "POST", "/people/move", "").status)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/halt", "").status)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/unhalt", "").status)
}

// An abort that waits for a lock keeps no halt of the same operator's waiting.
func TestStops_OfOneIdentityDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { admintest.Reserve(t, c) })
	id, unlock := b.locked(t)
	var asking sync.WaitGroup
	asking.Go(func() {
		b.ask(t.Context(), "operator", "POST", "/abort", fmt.Sprintf(`{"id": [%d], "reason": "wrong link"}`, id))
	})
	defer asking.Wait()
	defer unlock()
	require.Eventually(t, func() bool { return b.waiters(t) > 0 }, patience, time.Millisecond)
	got := b.call(t, "operator", "POST", "/halt", "")
	require.Equal(t, http.StatusOK, got.status, got.text)
}

// waiting enqueues a job that waits, and returns its id.
func (b *bundle) waiting(t *testing.T) (id int64) {
	t.Helper()
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT belfry.enqueue('push', 'popular_content', 'x', schedule_at => now() + interval '1 hour', lane => 'night')`).Scan(&id))
	return id
}

// locked locks a job that waits. unlock releases it.
func (b *bundle) locked(t *testing.T) (id int64, unlock func()) {
	t.Helper()
	id = b.waiting(t)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	unlock = func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(unlock) // before the database is dropped
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	return id, unlock
}

// waiters returns the number of sessions that wait for a lock.
func (b *bundle) waiters(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
	return n
}

// A request whose idempotency key another transaction has enqueued, and not ended, gives its
// connection back soon, and says what to do.
func TestEnqueue_WaitsForItsKeyTwoSecondsAtMost(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.enqueue('push', 'popular_content', 'x', idempotency_key => 'monday-1')`)
	require.NoError(t, err)
	one := `{"type": ["push"], "category": "popular_content", "title": "x", "everyone": true, "idempotency_key": "monday-1"}`
	for path, body := range map[string]string{"/enqueue": one, "/jobs/enqueue": `{"jobs": [` + one + `]}`} {
		began := time.Now()
		got := b.call(t, "author", "POST", path, body)
		require.Equal(t, http.StatusConflict, got.status, got.text)
		require.Equal(t, db.KindHeld, got.problem(t).Kind)
		require.Contains(t, got.text, "repeat the request with the same key")
		require.Equal(t, "5", got.header.Get("Retry-After"))
		require.Less(t, time.Since(began), 10*time.Second, "it waited as long as for any lock")
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/enqueue", one).status)
}

// locales are so many variants.
func locales(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"ko-%c%c%c": {"body": ""}`, 'a'+i/676, 'a'+i/26%26, 'a'+i%26)
	}
	return "{" + b.String()[1:] + "}"
}

func TestEnqueue_TakesTwoHundredLocales(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('seven', 'ios')`)
	for path, rest := range map[string]string{"/enqueue": `"type": ["push"], "category": "popular_content", "title": "x", "everyone": true`, "/send": `"external_id": "seven", "title": "x"`} {
		require.Equal(t, http.StatusOK, b.call(t, "author", "POST", path, `{`+rest+`, "variants": `+locales(200)+`}`).status)
		got := b.call(t, "author", "POST", path, `{`+rest+`, "variants": `+locales(5400)+`}`)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, got.text)
		require.Equal(t, []api.Fault{{Location: "body.variants", Message: "has 5400 locales; allowed values: up to 200"}}, got.problem(t).Errors)
		got = b.call(t, "author", "POST", path, `{`+rest+`, "variants": {"en": {"body": "x"}, "ko-KR": {"body": "x"}, "ko_kr": {"body": "y"}}}`)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, got.text)
		require.Contains(t, got.text, "is the same locale as ko_kr")
	}
}

// While one caller asks for everything that costs much, again and again, a stop is done at once.
func TestLong_StopsAreDoneWhateverElseIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.Reused(t, 6), func(c *api.Options) { admintest.Reserve(t, c) })
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location) SELECT i, 'ios', point(127 + i % 77 / 100.0, 37 + i % 100 / 100.0) FROM generate_series(1, 200000) i`)
	blocker, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `SELECT belfry.enqueue('push', 'popular_content', 'x', idempotency_key => 'monday-1')`)
	require.NoError(t, err)
	job := `"type": ["push"], "category": "popular_content", "title": "x", "near": "37.5,127.3", "radius": "100km"`
	expensive := [][3]string{
		{"POST", "/enqueue", `{` + job + `, "variants": ` + locales(5400) + `}`},
		{"POST", "/enqueue", `{` + job + `, "variants": ` + locales(200) + `}`},
		{"POST", "/enqueue", `{` + job + `, "idempotency_key": "monday-1"}`},
		{"POST", "/enqueue", `{` + job + `, "preview": true}`},
		{"POST", "/send", `{"external_id": "5", "title": "x", "variants": ` + locales(5400) + `}`},
		{"GET", "/channels/count?near=37.5,127.3&radius=100km", ""},
		{"GET", "/jobs?limit=200", ""},
		{"GET", "/jobs/watch?follow=true", ""},
	}
	ctx, end := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	for i := range 24 {
		for _, token := range []string{"author-1", "author-2"} {
			one := expensive[i%len(expensive)]
			loops.Go(func() {
				for ctx.Err() == nil {
					b.ask(ctx, token, one[0], one[1], one[2])
				}
			})
		}
	}
	defer loops.Wait()
	defer end()
	for range 5 {
		for _, stop := range stops(b.waiting(t)) {
			began := time.Now()
			got := b.call(t, "operator", "POST", stop[0], stop[1])
			require.Equal(t, http.StatusOK, got.status, "%s: %s", stop[0], got.text)
			t.Log(stop[0], time.Since(began).Round(time.Millisecond))
			require.Less(t, time.Since(began), patience, stop[0])
		}
	}
	end()
	loops.Wait()
	require.NoError(t, blocker.Rollback(context.WithoutCancel(t.Context())))
}

// ask sends a request and throws its answer away.
func (b *bundle) ask(ctx context.Context, token, method, path, body string) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if res, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// Aborts of several operators that wait for locks leave a connection to a halt.
func TestStops_OfPartsLeaveAConnectionToAHalt(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { admintest.Reserve(t, c) })
	id, unlock := b.locked(t)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer unlock()
	for i := range 4 {
		asking.Go(func() {
			b.ask(t.Context(), fmt.Sprint("operator-", i), "POST", "/abort", fmt.Sprintf(`{"id": [%d], "reason": "wrong link"}`, id))
		})
	}
	require.Eventually(t, func() bool { return b.waiters(t) >= 2 }, patience, time.Millisecond)
	require.Never(t, func() bool { return b.waiters(t) > 2 }, time.Second, 20*time.Millisecond, "the third connection is left")
	got := b.call(t, "operator", "POST", "/halt", "")
	require.Equal(t, http.StatusOK, got.status, got.text)
}

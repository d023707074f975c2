package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/outbox"
)

// cached starts a Redis and returns it with an abort cache in it.
func cached(t *testing.T) (*dbtest.Redis, *abortcache.Cache) {
	t.Helper()
	redis := dbtest.StartRedis(t)
	c := abortcache.DefaultConfig()
	c.URL = redis.URL
	c.Timeout = 10 * time.Second // it is there, however busy the machine is
	cache, err := abortcache.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	return redis, cache
}

// I6 when the database does not answer an UPDATE: the flag stops the run before its
// next chunk, and the abort is recorded as the operator's as soon as the row is free.
func TestAbortCache_StopsTheRunWhileTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	_, cache := cached(t)
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointCommitted, 2)
	s := b.start(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who), job.WithFailpoint(g.at), job.WithAbortCache(cache)))
	g.await(t)
	// Somebody sits on the row: no UPDATE of it gets through.
	lock, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	act := job.Act{Actor: "ann", Reason: "database on its knees"}
	aborted := make(chan error, 1)
	go func() {
		_, err := b.jobs.WithAbortCache(cache).Abort(t.Context(), job.One(id), act)
		aborted <- err
	}()
	require.Eventually(t, func() bool { // the flag is written first
		flag, err := cache.Get(t.Context(), id)
		return err == nil && flag != nil && *flag == act
	}, patience, 5*time.Millisecond)
	g.release(nil)
	b.eventually(t, `SELECT count(*) >= 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	require.Equal(t, "2000", b.state(t, id).Cursor, "no further chunk")
	require.NoError(t, lock.Rollback(t.Context()))
	require.NoError(t, <-aborted)
	require.Equal(t, job.Aborted, s.wait(t).Jobs[0].Status)
	require.Equal(t, "2000", b.state(t, id).Cursor)
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Len(t, events, 3)
	require.Equal(t, []string{job.EventAborted, "ann", act.Reason}, []string{events[2].Kind, events[2].Actor, events[2].Reason})
	require.Eventually(t, func() bool {
		flag, err := cache.Get(t.Context(), id)
		return err == nil && flag == nil
	}, patience, 5*time.Millisecond, "the flag is gone with the abort")

	_, err = b.jobs.WithAbortCache(cache).Resume(t.Context(), job.One(id), act)
	require.NoError(t, err)
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r2"), outbox.Types(b.who), job.WithAbortCache(cache)))
	b.requireDone(t, id, everyone(500))
}

// The run itself records an abort of which the database never heard, and letting the
// job go on takes the flag away.
func TestAbortCache_RunRecordsTheAbort(t *testing.T) {
	t.Parallel()
	_, cache := cached(t)
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.NoError(t, cache.Set(t.Context(), id, job.Act{Actor: "ben", Reason: "stop"}))
	out := b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who), job.WithAbortCache(cache)))
	require.Equal(t, job.Aborted, out.Jobs[0].Status)
	require.Zero(t, b.state(t, id).Chunks)
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Equal(t, "ben", events[len(events)-1].Actor)

	require.NoError(t, cache.Set(t.Context(), id, job.Act{Actor: "ben"})) // left behind by somebody
	_, err = b.jobs.WithAbortCache(cache).Resume(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who), job.WithAbortCache(cache)))
	b.requireDone(t, id, everyone(500))
}

// A cache that is down stops nobody and nothing: aborts and walks go through the
// database; only letting a job go on needs its word, or the flag might strike again.
func TestAbortCache_DownCacheStopsNothing(t *testing.T) {
	t.Parallel()
	redis, cache := cached(t)
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.NoError(t, redis.Stop())
	jobs := b.jobs.WithAbortCache(cache)
	_, err := jobs.Abort(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	_, err = jobs.Resume(t.Context(), job.One(id), job.Act{})
	require.ErrorContains(t, err, "its flag in the abort cache cannot be removed")
	require.Equal(t, job.Aborted, b.state(t, id).Status)
	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who), job.WithAbortCache(cache)))
	b.requireDone(t, id, everyone(500))
}

// What an operator reads when only the flag got through.
func TestAbortCache_FlaggedErrorSaysWhatHolds(t *testing.T) {
	t.Parallel()
	err := error(&job.FlaggedError{JobIDs: []int64{7}, Err: job.ErrUnreachable})
	require.EqualError(t, err, "job 7 is flagged in the abort cache and stops before its next chunk; the database has not recorded the abort: database unreachable")
	require.ErrorIs(t, err, job.ErrUnreachable)
	err = &job.FlaggedError{JobIDs: []int64{7, 8}, Err: job.ErrUnreachable}
	require.EqualError(t, err, "jobs 7, 8 are flagged in the abort cache and stop before their next chunk; the database has not recorded the abort: database unreachable")
}

// I6 for a group while the database answers no UPDATE: every member is flagged.
func TestAbortCache_FlagsEveryMemberOfAGroup(t *testing.T) {
	t.Parallel()
	_, cache := cached(t)
	b := setup(t, 5)
	ids, err := b.jobs.EnqueueGroup(t.Context(), []string{"inbox", "push"}, job.Spec{
		Category: "popular_content", Title: "both", Audience: channels.Everyone(), RequestedBy: "ann",
	})
	require.NoError(t, err)
	first, err := b.jobs.Get(t.Context(), ids[0])
	require.NoError(t, err)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, ids[1])
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	store := b.jobs.WithAbortCache(cache)
	aborted := make(chan error, 1)
	go func() {
		_, err := store.Abort(ctx, job.Selection{Group: first.GroupID}, job.Act{Actor: "ann"})
		aborted <- err
	}()
	b.blocked(t)
	cancel()
	var flagged *job.FlaggedError
	require.ErrorAs(t, <-aborted, &flagged)
	require.Equal(t, ids, flagged.JobIDs)
	for _, id := range ids {
		flag, err := cache.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "ann", flag.Actor)
	}
	require.NoError(t, tx.Rollback(t.Context()))

	_, err = store.Abort(t.Context(), job.Selection{Group: first.GroupID}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	for _, id := range ids {
		flag, err := cache.Get(t.Context(), id)
		require.NoError(t, err)
		require.Nil(t, flag, "the database has recorded it")
	}
}

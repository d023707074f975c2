package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// I14 and the timeline: a full life, with who and why for each step.
func TestEvents_TellAFullLife(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.register(t)
	id := b.enqueue(t, job.Spec{RequestedBy: "campaign service"})
	// node-1 begins; ann aborts; ben resumes.
	g := b.gate(job.PointWritten, 2)
	s := b.start(t, b.runner(t, "node-1", job.WithFailpoint(g.at)))
	g.await(t)
	_, err := b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann", Reason: "typo"})
	require.NoError(t, err)
	g.release(nil)
	s.wait(t)
	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ben", Reason: "typo fixed"})
	require.NoError(t, err)
	// node-2 dies; node-3 takes over and is stopped; node-4 fails; carl retries.
	b.crash(t, "node-2", job.PointMoved, 1)
	b.age(t, id)
	g = b.gate(job.PointCommitted, 1)
	s = b.start(t, b.runner(t, "node-3", job.WithFailpoint(g.at)))
	g.await(t)
	s.stop()
	g.release(nil)
	s.wait(t)
	g = b.gate(job.PointBegun, 1)
	s = b.start(t, b.runner(t, "node-4", job.WithFailpoint(g.at)))
	g.await(t)
	g.release(fmt.Errorf("disk on fire"))
	s.wait(t)
	_, err = b.jobs.Retry(t.Context(), job.One(id), job.Act{Actor: "carl", Reason: "new disk"})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "node-5"))
	b.requireDone(t, id, everyone(500))

	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	var told []string
	for i, e := range events {
		reason, _, _ := strings.Cut(e.Reason, "; last heartbeat ")
		told = append(told, strings.TrimSuffix(e.Kind+" by "+e.Actor+": "+reason, ": "))
		if i > 0 {
			require.False(t, e.At.Before(events[i-1].At))
		}
	}
	require.Equal(t, []string{
		"enqueued by campaign service",
		"claimed by node-1",
		"aborted by ann: typo",
		"resume_requested by ben: typo fixed",
		"claimed by node-2",
		"resumed by node-3: the run of node-2 ended without a word",
		"interrupted by node-3",
		"claimed by node-4",
		"failed by node-4: disk on fire",
		"retry_requested by carl: new disk",
		"claimed by node-5",
		"finished by node-5",
	}, told)
	require.JSONEq(t, fmt.Sprintf(`{"before": {"fence": 2, "status": "RUNNING"}, "after": {"fence": 3, "status": "RUNNING"},
		"cursor": "1000", "rows_written": 100, "chunks": 1, "skipped": 0, "session_user": %q}`, one[string](t, b, `SELECT session_user`)),
		string(events[5].Detail), "what it was and what it became")
	later, err := b.jobs.Events(t.Context(), id, events[9].ID, 1)
	require.NoError(t, err)
	require.Equal(t, events[10:11], later)
}

// An act by plain SQL is recorded under the session's user.
func TestEvents_PlainSQLIsRecordedAsTheSessionsUser(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	b.abort(t, id)
	b.exec(t, `SELECT belfry.resume($1, reason => 'by function')`, id)
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	user := one[string](t, b, `SELECT session_user`)
	require.Len(t, events, 3)
	require.Equal(t, []string{user, "aborted", ""}, []string{events[1].Actor, events[1].Kind, events[1].Reason})
	require.Equal(t, []string{user, "resume_requested", "by function"}, []string{events[2].Actor, events[2].Kind, events[2].Reason})
}

package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// A more urgent job of the same lane takes over at a chunk boundary; the first goes
// on from its cursor afterwards, and that is no attempt.
func TestPreemption_MoreUrgentJobTakesOverAtAChunkBoundary(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	slow := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointWritten, 3)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	soon := time.Now().Add(time.Hour)
	b.enqueue(t, job.Spec{Priority: 9, ScheduleAt: &soon})
	b.enqueue(t, job.Spec{Priority: 9, Lane: "other"})
	urgent := b.enqueue(t, job.Spec{Priority: 5})
	same := b.enqueue(t, job.Spec{})
	g.release(nil)
	out := s.wait(t)
	var order []int64
	for _, j := range out.Jobs {
		order = append(order, j.ID)
	}
	require.Equal(t, []int64{slow, urgent + -1, urgent, slow, same}, order)
	require.Equal(t, job.Pending, out.Jobs[0].Status)
	require.Equal(t, "3000", out.Jobs[0].Cursor, "the chunk in progress was finished")
	b.requireDone(t, slow, everyone(500))
	b.requireDone(t, urgent, everyone(500))
	require.Equal(t, []string{"enqueued", "claimed", "preempted", "claimed", "finished"}, b.kinds(t, slow))
	events, err := b.jobs.Events(t.Context(), slow, 0, 0)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("job %d of lane default is more urgent", urgent), events[2].Reason)
	require.Equal(t, 1, b.get(t, slow).Attempts)
}

// A job that no runner here can run preempts nobody.
func TestPreemption_OnlyByWhatThisRunnerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('foreign')`)
	id := b.enqueue(t, job.Spec{})
	b.enqueue(t, job.Spec{Type: "foreign", Priority: 5})
	past := time.Now().Add(-time.Minute)
	older := past.Add(-time.Minute)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, priority, schedule_at, expires_at) VALUES ('inbox', 'operator_notice', 'late', 7, $1, $2)`, older, past)
	b.runDue(t, b.runner(t, "r"))
	require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
}

// A paused lane claims nothing, and its running job goes back after its chunk; other
// lanes go on. Opened, it goes on from the cursor.
func TestLanes_PauseStopsTheQueueItself(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	running, waiting := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
	other := b.enqueue(t, job.Spec{Lane: "other"})
	g := b.gate(job.PointWritten, 2)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	l, err := b.jobs.PauseLane(t.Context(), "default", job.Act{Actor: "ann", Reason: "database move"})
	require.NoError(t, err)
	require.Equal(t, "ann", l.PausedBy)
	require.Equal(t, running, *l.Running)
	g.release(nil)
	s.wait(t)
	require.Equal(t, job.Pending, b.state(t, running).Status)
	require.Equal(t, "2000", b.state(t, running).Cursor)
	require.Equal(t, job.Pending, b.state(t, waiting).Status)
	b.requireDone(t, other, everyone(500))
	require.Equal(t, []string{"enqueued", "claimed", "lane_paused"}, b.kinds(t, running))
	require.Empty(t, b.runDue(t, b.runner(t, "r2")).Jobs)

	_, err = b.jobs.PauseLane(t.Context(), "default", job.Act{Actor: "ben"}) // twice is once
	require.NoError(t, err)
	lanes, err := b.jobs.Lanes(t.Context())
	require.NoError(t, err)
	require.Len(t, lanes, 1)
	require.Equal(t, "ann", lanes[0].PausedBy)
	require.Equal(t, int64(2), lanes[0].Due)

	_, err = b.jobs.ResumeLane(t.Context(), "default", job.Act{Actor: "ann", Reason: "moved"})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r2"))
	b.requireDone(t, running, everyone(500))
	b.requireDone(t, waiting, everyone(500))
	events, err := b.jobs.ControlEvents(t.Context(), job.SubjectLane, "default", 0, 0)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, []string{"resumed", "ann", "moved"}, []string{events[0].Kind, events[0].Actor, events[0].Reason})
	require.Equal(t, []string{"paused", "ann", "database move"}, []string{events[1].Kind, events[1].Actor, events[1].Reason})
	_, err = b.jobs.PauseLane(t.Context(), "No Lane", job.Act{})
	require.ErrorContains(t, err, "belfry.lanes.name: 'No Lane' is not a lane name; allowed values: ")
}

// A dead run's job of a paused lane goes back to PENDING rather than staying
// RUNNING on nobody.
func TestLanes_DeadRunOfAPausedLaneIsHandedBack(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.False(t, b.crash(t, "dead", job.PointCommitted, 2))
	_, err := b.jobs.PauseLane(t.Context(), "default", job.Act{})
	require.NoError(t, err)
	b.age(t, id)
	b.runDue(t, b.runner(t, "heir"))
	require.Equal(t, []string{"enqueued", "claimed", "resumed", "lane_paused"}, b.kinds(t, id))
	require.Equal(t, "2000", b.state(t, id).Cursor)
}

// The late-start guard: what did not start in time is EXPIRED; what did start is
// not, however often it is interrupted.
func TestExpiry_OnlyOfWhatNeverStarted(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	enqueue := func(expires string) (id int64) {
		return one[int64](t, b, `INSERT INTO belfry.jobs (type, category, title, schedule_at, expires_at)
			VALUES ('inbox', 'operator_notice', 'x', now() - interval '2 hours', now() + $1::interval) RETURNING id`, expires)
	}
	late, early := enqueue("-1 second"), enqueue("1 hour")
	started := enqueue("1 hour")
	b.exec(t, `UPDATE belfry.jobs SET priority = 10 WHERE id = $1`, started)
	require.False(t, b.crash(t, "dead", job.PointCommitted, 2))
	b.age(t, started)
	b.exec(t, `UPDATE belfry.jobs SET expires_at = now() - interval '1 second' WHERE id = $1`, started)
	again := enqueue("-1 second")
	out := b.runDue(t, b.runner(t, "r"))
	require.Len(t, out.Jobs, 2)
	require.Equal(t, []int64{again}, out.Expired, "the dead run had seen the other")
	b.requireDone(t, early, everyone(500))
	b.requireDone(t, started, everyone(500))
	j := b.get(t, late)
	require.Equal(t, job.Expired, j.Status)
	require.NotNil(t, j.FinishedAt)
	require.Zero(t, j.Fence)
	events, err := b.jobs.Events(t.Context(), late, 0, 0)
	require.NoError(t, err)
	require.Equal(t, job.EventExpired, events[1].Kind)
	require.Contains(t, events[1].Reason, "did not start before ")

	_, err = b.jobs.Retry(t.Context(), job.One(late), job.Act{})
	require.ErrorContains(t, err, "belfry.jobs.expires_at: job 1 expired at ")
	_, err = b.jobs.Set(t.Context(), late, job.Changes{"expires_at": nil}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	_, err = b.jobs.Retry(t.Context(), job.One(late), job.Act{Actor: "ann"})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, late, everyone(500))
}

// Many jobs that expired delay neither a claim nor a chunk by more than one step of their expiry: a job that was due
// waited until all had ended. Between the steps a claim and the check for a more urgent job step over the rest.
func TestLong_ExpiryDelaysAClaimAndAChunkByOneStep(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	overdue := func(n int) {
		t.Helper()
		dbtest.Past(t, b.db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, priority, schedule_at, expires_at)
			SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'late', '{}', 9, now() - interval '2 hours', now() - interval '1 hour' FROM generate_series(1, $1)`, n)
	}
	expired := func() int {
		t.Helper()
		return one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE status = 'EXPIRED'`)
	}
	overdue(7100)
	id := b.enqueue(t, job.Spec{})
	first, second, last := b.gate(job.PointBegun, 1), b.gate(job.PointBegun, 2), b.gate(job.PointWritten, 5)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(both(both(first.at, second.at), last.at))))
	first.await(t)
	require.Equal(t, 2000, expired(), "one step of the claim and one of the run")
	first.release(nil)
	second.await(t)
	require.Equal(t, 3000, expired())
	second.release(nil)
	last.await(t)
	require.Equal(t, 6000, expired())
	last.release(nil)
	require.Len(t, s.wait(t).Expired, 7100, "the next claim ends the others")
	b.requireDone(t, id, everyone(500))

	// Without a job that is due, a poll ends all.
	overdue(2100)
	require.Len(t, b.runDue(t, b.runner(t, "r")).Expired, 2100)
}

// A job that loses every run it gets is FAILED after max_takeovers of them, and a
// page full of such jobs hides nobody.
func TestTakeover_HopelessJobFailsAndHidesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{Priority: 5})
	c := config("r")
	c.MaxTakeovers = 3
	for i := range 4 {
		require.False(t, b.crash(t, fmt.Sprintf("dying-%d", i), job.PointBegun, 1))
		require.Equal(t, i, b.get(t, id).Takeovers)
		b.age(t, id)
	}
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, priority) SELECT 'inbox', 'operator_notice', 'x', 'lane-' || g, 9 FROM generate_series(1, 150) g`)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'gone', heartbeat_at = now() - interval '1 day', takeovers = 3 WHERE lane <> 'default'`)
	next := b.enqueue(t, job.Spec{})
	out := b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
	require.Len(t, out.GivenUp, 151)
	b.requireDone(t, next, everyone(300))
	j := b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Equal(t, "gave up: 4 runs in a row were lost without a committed chunk, the last on dying-3", j.LastError)
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Equal(t, "r", events[len(events)-1].Actor)
	require.Equal(t, 150, one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE lane <> 'default' AND status = 'FAILED'`))

	_, err = b.jobs.Retry(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	require.Zero(t, b.get(t, id).Takeovers)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(300))
}

// Progress, one chunk of it, makes the take-overs count from zero again.
func TestTakeover_CommittedChunkForgivesLostRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	id := b.enqueue(t, job.Spec{})
	for i := range 8 {
		require.False(t, b.crash(t, fmt.Sprintf("dying-%d", i), job.PointCommitted, 1))
		require.Zero(t, b.get(t, id).Takeovers)
		b.age(t, id)
	}
	c := config("r")
	c.MaxTakeovers = 1
	b.runDue(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who)))
	b.requireDone(t, id, everyone(1000))
}

// The run's server connection is recorded; when it is gone, any runner takes over
// without waiting for the heartbeat.
func TestTakeover_WhenTheServerConnectionIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointBegun, 3)
	s := b.start(t, b.runner(t, "zombie", job.WithFailpoint(g.at)))
	g.await(t)
	j := b.get(t, id)
	require.NotNil(t, j.BackendPID)
	require.NotNil(t, j.BackendStart)
	require.Empty(t, b.runDue(t, b.runner(t, "heir")).Jobs, "its connection lives")
	require.True(t, one[bool](t, b, `SELECT pg_terminate_backend($1, 5000)`, *j.BackendPID))
	b.runDue(t, b.runner(t, "heir"))
	b.requireDone(t, id, everyone(500))
	g.release(nil)
	s.end(t)
	b.requireDone(t, id, everyone(500))
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Equal(t, job.EventResumed, events[2].Kind)
	require.Contains(t, events[2].Reason, "the run of zombie lost its server connection; last heartbeat ")
	require.Nil(t, b.get(t, id).BackendPID)
}

// A run that loses its connection goes on under another one, and says so in the row.
func TestTakeover_RunRecordsItsNewConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	g, later := b.gate(job.PointBegun, 2), b.gate(job.PointBegun, 4)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(both(g.at, later.at))))
	g.await(t)
	first := *b.get(t, id).BackendPID
	require.True(t, one[bool](t, b, `SELECT pg_terminate_backend($1, 5000)`, first))
	g.release(nil)
	later.await(t)
	second := b.get(t, id)
	require.NotNil(t, second.BackendPID)
	require.NotEqual(t, first, *second.BackendPID)
	require.True(t, one[bool](t, b, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2)`, *second.BackendPID, *second.BackendStart))
	later.release(nil)
	s.wait(t)
	b.requireDone(t, id, everyone(500))
	require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
}

// A connection that breaks between two chunks, under something that a run does without,
// leaves no run that lives and looks dead.
func TestTakeover_RunRecordsTheConnectionAfterOneThatBrokeBetweenChunks(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	first, between, later := b.gate(job.PointBegun, 1), b.gate(job.PointCommitted, 2), b.gate(job.PointBegun, 3)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(both(both(first.at, between.at), later.at))))
	first.await(t)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at, expires_at)
		VALUES ('inbox', 'operator_notice', 'late', now() - interval '2 hours', now() - interval '1 hour')`)
	first.release(nil)
	between.await(t) // the second chunk has seen that a job is overdue
	broken := *b.get(t, id).BackendPID
	require.True(t, one[bool](t, b, `SELECT pg_terminate_backend($1, 5000)`, broken))
	between.release(nil)
	later.await(t)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE status = 'EXPIRED'`), "the connection broke under that")
	j := b.get(t, id)
	require.NotEqual(t, broken, *j.BackendPID)
	require.True(t, one[bool](t, b, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2)`, *j.BackendPID, *j.BackendStart))
	later.release(nil)
	require.Len(t, s.wait(t).Expired, 1)
	b.requireDone(t, id, everyone(500))
	require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
}

// Settings change live: the next chunk has them, and the row's own override the
// runner's.
func TestSettings_ChangeARunningJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointCommitted, 2)
	var sizes []int64
	r := b.runner(t, "r", job.WithFailpoint(g.at), job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			sizes = append(sizes, p.Rows)
		}
	}))
	s := b.start(t, r)
	g.await(t)
	j, err := b.jobs.Set(t.Context(), id, job.Changes{"max_chunk_rows": 50, "priority": 3}, job.Act{Actor: "ann", Reason: "calm"})
	require.NoError(t, err)
	require.Equal(t, 50, *j.MaxChunkRows)
	g.release(nil)
	s.wait(t)
	require.Equal(t, []int64{100, 100, 50, 50}, sizes[:4])
	b.requireDone(t, id, everyone(1000))
	events, err := b.jobs.Events(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{job.EventChanged, "ann", "calm"}, []string{events[2].Kind, events[2].Actor, events[2].Reason})
	require.JSONEq(t, `{"before": {"priority": 0, "max_chunk_rows": null}, "after": {"priority": 3, "max_chunk_rows": 50}}`,
		one[string](t, b, `SELECT jsonb_build_object('before', detail -> 'before', 'after', detail -> 'after')::text FROM belfry.job_events WHERE id = $1`, events[2].ID))

	for _, c := range []struct {
		changes job.Changes
		want    string
	}{
		{job.Changes{"colour": "red"}, "belfry.jobs.colour: cannot be set; allowed keys: category, title, "},
		{job.Changes{"duty_cycle": 2}, "belfry.jobs.duty_cycle: 2 is not allowed; allowed values: "},
		{job.Changes{"max_rows_per_second": -1}, "belfry.jobs.max_rows_per_second: -1 is not allowed"},
		{job.Changes{"title": "new"}, "belfry.jobs.title: job 1 is PROCESSED; allowed changes: none"},
		{job.Changes{}, "nothing is to be changed"},
	} {
		_, err := b.jobs.Set(t.Context(), id, c.changes, job.Act{})
		require.ErrorContains(t, err, c.want)
		require.ErrorAs(t, err, new(*job.InvalidError))
	}
}

// A reload of the runner's configuration takes effect with the next chunk; a bad one
// changes nothing.
func TestSettings_ReloadOfTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	b.enqueue(t, job.Spec{})
	g := b.gate(job.PointCommitted, 2)
	var sizes []int64
	r := b.runner(t, "r", job.WithFailpoint(g.at), job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			sizes = append(sizes, p.Rows)
		}
	}))
	s := b.start(t, r)
	g.await(t)
	c := config("r")
	c.Chunk.MaxRows = 0
	_, err := r.Reload(c)
	require.ErrorContains(t, err, "runner.chunk.max_rows")
	c.Chunk = governor.ChunkConfig{InitialRows: 40, MinRows: 40, MaxRows: 40, Target: c.Chunk.Target}
	c.PollInterval *= 2
	restart, err := r.Reload(c)
	require.NoError(t, err)
	require.Equal(t, []string{"runner.poll_interval"}, restart)
	g.release(nil)
	s.wait(t)
	require.Equal(t, []int64{100, 100, 40, 40}, sizes[:4])
}

// The rate limit holds over the whole run, the row says why while it waits, and an
// abort is noticed in the middle of a pause.
func TestThrottle_RowSaysWhyAndAnAbortEndsThePause(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	id := b.enqueue(t, job.Spec{})
	b.exec(t, `UPDATE belfry.jobs SET max_rows_per_second = 10 WHERE id = $1`, id)
	s := b.start(t, b.runner(t, "r"))
	b.eventually(t, `SELECT coalesce(throttle = 'max_rows_per_second' AND throttled_ms > 0, false) FROM belfry.jobs WHERE id = $1`, id)
	before := b.state(t, id)
	require.NotZero(t, before.Written)
	b.abort(t, id)
	out := s.wait(t)
	require.Equal(t, job.Aborted, out.Jobs[0].Status)
	require.Empty(t, out.Jobs[0].Throttle)
	require.Equal(t, before.Written, b.state(t, id).Written)
	require.Contains(t, b.kinds(t, id), job.EventThrottled)
}

// A run that is held back renews its heartbeat in the middle of the pause.
func TestThrottle_PauseKeepsTheHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	b.exec(t, `UPDATE belfry.jobs SET max_rows_per_second = 1 WHERE id = $1`, id)
	s := b.start(t, b.runner(t, "r"))
	const paused = `SELECT chunks = 1 AND throttled_ms > $2 FROM belfry.jobs WHERE id = $1`
	b.eventually(t, paused, id, 0)
	told, beat := one[int64](t, b, `SELECT throttled_ms FROM belfry.jobs WHERE id = $1`, id), one[time.Time](t, b, `SELECT heartbeat_at FROM belfry.jobs WHERE id = $1`, id)
	b.eventually(t, paused, id, told) // the pause after 100 rows takes 100 seconds
	require.True(t, one[bool](t, b, `SELECT heartbeat_at > $2 FROM belfry.jobs WHERE id = $1`, id, beat))
	b.exec(t, `UPDATE belfry.jobs SET max_rows_per_second = 0 WHERE id = $1`, id)
	s.wait(t)
	b.requireDone(t, id, everyone(300))
	require.Contains(t, b.kinds(t, id), job.EventReleased)
}

// resume --edit: what is still to come follows the correction; what was written
// keeps what it said.
func TestEdit_CorrectsWhatIsStillToCome(t *testing.T) {
	t.Parallel()
	b := setup(t, 600)
	id := b.enqueue(t, job.Spec{Title: "tpyo", Body: "one"})
	stopped := func(nth int) {
		g := b.gate(job.PointCommitted, nth)
		s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
		g.await(t)
		_, err := b.jobs.Set(t.Context(), id, job.Changes{"title": "other"}, job.Act{})
		require.ErrorContains(t, err, "belfry.jobs.title: job 1 is RUNNING; allowed changes: none")
		b.abort(t, id)
		g.release(nil)
		s.wait(t)
	}
	stopped(2)
	j, err := b.jobs.ResumeEdited(t.Context(), job.One(id), job.Changes{"title": "typo", "audience": channels.OnPlatforms("ios")}, job.Act{Actor: "ann", Reason: "typo"})
	require.NoError(t, err)
	require.Equal(t, job.Pending, j[0].Status)
	require.Nil(t, j[0].ChannelsTotal)
	stopped(1)
	_, err = b.jobs.Set(t.Context(), id, job.Changes{"title": "third", "body": "two"}, job.Act{Actor: "ben"})
	require.NoError(t, err)
	_, err = b.jobs.ResumeEdited(t.Context(), job.One(id), job.Changes{"title": "fourth"}, job.Act{Actor: "ben"})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))

	var want []int64
	for _, c := range everyone(600) {
		if c <= 2000 || c/step%3 != 0 {
			want = append(want, c)
		}
	}
	b.requireDone(t, id, want)
	require.NotNil(t, b.get(t, id).ChannelsTotal)
	cursors := one[[]string](t, b, `SELECT array_agg("cursor" || ' ' || title ORDER BY revision) FROM belfry.job_revisions WHERE job_id = $1`, id)
	require.Equal(t, []string{"2000 tpyo", "3000 typo", "3000 third"}, cursors)
	revisions, err := b.jobs.Revisions(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "typo", "ben"}, []string{revisions[0].EditedBy, revisions[0].Reason, revisions[1].EditedBy})
	for channel, content := range map[int64]string{10: "tpyo one", 2000: "tpyo one", 2010: "typo one", 3000: "typo one", 3010: "fourth two", 6000: "fourth two"} {
		require.Equal(t, content, one[string](t, b, `SELECT title || ' ' || body FROM belfry.job_content($1, $2)`, id, channel), "%d", channel)
	}
	require.Equal(t, []string{"enqueued", "claimed", "aborted", "changed", "resume_requested", "claimed", "aborted", "changed", "changed", "resume_requested", "claimed", "finished"}, b.kinds(t, id))
	_, err = b.jobs.ResumeEdited(t.Context(), job.One(id), job.Changes{"title": "x"}, job.Act{})
	require.ErrorAs(t, err, new(*job.WrongStatusError))
}

// A heartbeat that no run has written, far in the future, kept a job RUNNING for as long, and its lane closed.
func TestRunner_TakesOverAJobWithAHeartbeatOfTheFuture(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	require.False(t, b.crash(t, "dying", job.PointBegun, 1))
	b.exec(t, `UPDATE belfry.jobs SET heartbeat_at = now() + interval '1 hour', backend_pid = NULL, backend_start = NULL WHERE id = $1`, id)
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who)))
	b.requireDone(t, id, everyone(300))
}

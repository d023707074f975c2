package job_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// I1–I7 under random schedules: enqueue, run, interrupt, crash, lose connections,
// abort, resume, retry, and channels that come, go and change in between and in
// mid-run, against a model in memory. After every step rows and cursor agree with
// the model; at the end every job is brought to completion and has exactly the rows
// the model expects. rapid prints the seed of a failure and shrinks it.
func TestModel_AnyScheduleGivesExactlyTheExpectedRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('vip')`)
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, b)
		t.Repeat(map[string]func(*rapid.T){
			"":               m.check,
			"enqueue":        m.enqueue,
			"run to the end": m.runAll,
			"run and stop":   m.runPart,
			"run and stop 2": m.runPart, // twice as likely
			"stale":          m.stale,
			"abort":          m.abort,
			"resume":         m.resume,
			"retry":          m.retry,
			"approve":        m.approve,
			"edit":           m.edit,
			"channels":       m.changeChannels,
		})
		m.drain(t)
	})
}

// modelChannel is a channel as the model knows it.
type modelChannel struct {
	platform    string
	active, vip bool
}

// modelJob is a job as the model knows it.
type modelJob struct {
	id       int64
	audience channels.Audience
	lane     string
	status   job.Status
	dead     bool // stale, or its connection is gone: to be taken over at once
	walked   bool // ABORTED when its walk was complete
	needs    bool // approval by a second person
	approved bool
	fence    int64
	frozen   bool
	bound    int64
	cursor   int64
	rows     []int64 // channels with a row, in id order
}

func (j *modelJob) matches(id int64, c modelChannel) bool {
	switch j.audience.Kind {
	case channels.KindEveryone:
		return c.active
	case channels.KindPlatforms:
		return c.active && slices.Contains(j.audience.Platforms, c.platform)
	case channels.KindChannels:
		return c.active && slices.Contains(j.audience.IDs, id)
	case channels.KindSegment:
		return c.active && c.vip
	case channels.KindRadius: // its candidates are found when the walk opens: not modelled
	}
	panic("not in the model: " + j.audience.Kind)
}

// model is the expected state of the database.
type model struct {
	b        *bundle
	channels map[int64]modelChannel
	jobs     []*modelJob
	runners  int
	edits    int
}

func newModel(t *rapid.T, b *bundle) *model {
	m := &model{b: b, channels: map[int64]modelChannel{}}
	b.exec(t, `TRUNCATE belfry.jobs, belfry.job_events, belfry.channels, belfry.segment_members, belfry.notifications, belfry.message_rows, belfry.job_claims CASCADE`)
	for range rapid.IntRange(0, 25).Draw(t, "channels") {
		require.NoError(t, m.apply(t.Context(), drawChange(t, "insert")))
	}
	return m
}

func (m *model) enqueue(t *rapid.T) {
	if len(m.jobs) == 4 {
		t.Skip("enough jobs")
	}
	j := &modelJob{status: job.Pending, audience: rapid.SampledFrom([]channels.Audience{
		channels.Everyone(), channels.OnPlatforms("ios"), channels.InSegment("vip"), channels.WithIDs(3, 8, 21, 34, 55),
	}).Draw(t, "audience")}
	j.lane = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lane")
	kind := rapid.SampledFrom([]string{outbox.TypeInbox, outbox.TypePush}).Draw(t, "type")
	j.needs = rapid.Bool().Draw(t, "needs approval")
	j.id = m.b.enqueue(t, job.Spec{Type: kind, Audience: j.audience, Lane: j.lane, Title: "model", NeedsApproval: j.needs})
	m.jobs = append(m.jobs, j)
}

// change is one change of the channels.
type change struct {
	kind     string
	id       int64
	platform string
	vip      bool
}

func drawChange(t *rapid.T, kinds ...string) change {
	return change{
		kind:     rapid.SampledFrom(kinds).Draw(t, "change"),
		id:       rapid.Int64Range(1, 60).Draw(t, "channel"),
		platform: rapid.SampledFrom([]string{"ios", "android"}).Draw(t, "platform"),
		vip:      rapid.Bool().Draw(t, "vip"),
	}
}

// apply makes the change in the model and in the database. The model has to be
// up to date with what the walk has read, see fold.
func (m *model) apply(ctx context.Context, c change) error {
	was, exists := m.channels[c.id]
	var err error
	exec := func(sql string, args ...any) {
		if err == nil {
			_, err = m.b.db.Pool.Exec(ctx, sql, args...)
		}
	}
	switch {
	case c.kind == "delete" && exists:
		exec(`DELETE FROM belfry.channels WHERE id = $1`, c.id)
		delete(m.channels, c.id)
	case c.kind == "toggle" && exists:
		was.active, was.platform = !was.active, c.platform
		exec(`UPDATE belfry.channels SET active = $2, platform = $3 WHERE id = $1`, c.id, was.active, was.platform)
		m.channels[c.id] = was
	case c.kind == "insert" && !exists:
		exec(`INSERT INTO belfry.channels (id, external_id, platform) VALUES ($1, 'u-' || $1::bigint, $2)`, c.id, c.platform)
		exec(`DELETE FROM belfry.segment_members WHERE channel_id = $1`, c.id)
		if c.vip {
			exec(`INSERT INTO belfry.segment_members VALUES ('vip', $1)`, c.id)
		}
		m.channels[c.id] = modelChannel{platform: c.platform, active: true, vip: c.vip}
	}
	return err
}

func (m *model) changeChannels(t *rapid.T) {
	require.NoError(t, m.apply(t.Context(), drawChange(t, "insert", "delete", "toggle")))
}

// fold brings the model up to the cursors in the database: the channels that
// match now, up to the cursor, have been given their rows.
func (m *model) fold(ctx context.Context) error {
	type committed struct {
		ID, Cursor, Fence int64
		Bound             *int64
		Status            job.Status
	}
	rows, err := m.b.db.Pool.Query(ctx, `SELECT id, coalesce(nullif("cursor", ''), '0')::bigint AS "cursor", fence,
		CASE bound WHEN '' THEN 0 ELSE bound::bigint END AS bound, status FROM belfry.jobs ORDER BY id`)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[committed])
	if err != nil {
		return err
	}
	if len(list) != len(m.jobs) {
		return fmt.Errorf("%d jobs, want %d", len(list), len(m.jobs))
	}
	for i, c := range list {
		j := m.jobs[i]
		switch {
		case c.ID != j.id:
			return fmt.Errorf("job %d, want %d", c.ID, j.id)
		case c.Cursor < j.cursor:
			return fmt.Errorf("I3: cursor of job %d moved back from %d to %d", j.id, j.cursor, c.Cursor)
		case c.Fence < j.fence:
			return fmt.Errorf("I5: fence of job %d fell from %d to %d", j.id, j.fence, c.Fence)
		}
		if c.Bound != nil && !j.frozen {
			j.frozen = true
			for id := range m.channels {
				j.bound = max(j.bound, id)
			}
		}
		if c.Bound != nil && *c.Bound != j.bound {
			return fmt.Errorf("I1: bound of job %d is %d, want %d", j.id, *c.Bound, j.bound)
		}
		for _, id := range slices.Sorted(maps.Keys(m.channels)) {
			if !j.matches(id, m.channels[id]) || id <= j.cursor || id > j.bound {
				continue
			}
			switch {
			case id <= c.Cursor:
				j.rows = append(j.rows, id)
			case c.Status == job.Processed && j.status != job.Processed:
				return fmt.Errorf("I1: job %d is done at %d and has not read channel %d", j.id, c.Cursor, id)
			}
		}
		j.dead = j.dead && c.Status == job.Running && c.Fence == j.fence
		j.cursor, j.fence, j.status = c.Cursor, c.Fence, c.Status
	}
	return nil
}

// check compares the whole database with the model (I2, I3, I4).
func (m *model) check(t *rapid.T) {
	require.NoError(t, m.fold(t.Context()))
	busy := map[string]int64{}
	for _, j := range m.jobs {
		s := m.b.state(t, j.id)
		require.Equal(t, append([]int64{}, j.rows...), s.Rows, "rows of job %d, cursor %d", j.id, j.cursor)
		require.EqualValues(t, len(j.rows), s.Written)
		require.Equal(t, m.waits(j), m.b.awaits(t, j.id), "job %d", j.id)
		if j.status == job.Running {
			require.True(t, !j.needs || j.approved, "job %d runs and nobody has approved it", j.id)
			require.Zero(t, busy[j.lane], "I4: jobs %d and %d both run", busy[j.lane], j.id)
			busy[j.lane] = j.id
		}
	}
}

// walkConfig has chunks of few keys and is patient with faults.
func (m *model) walkConfig(rows int) job.Config {
	m.runners++
	c := small(fmt.Sprintf("r%d", m.runners), rows)
	c.Retry.Max = time.Millisecond
	return c
}

// runAll runs without any fault. Every job that waits, or whose run is stale, is
// then done, unless its lane is held by a dead run that nobody knows to be dead.
func (m *model) runAll(t *rapid.T) {
	held := map[string]bool{}
	for _, j := range m.jobs {
		held[j.lane] = held[j.lane] || j.status == job.Running && !j.dead
	}
	rows := rapid.IntRange(1, 7).Draw(t, "chunk rows")
	m.b.runDue(t, m.b.runnerWith(t, m.b.db.Pool, m.walkConfig(rows), outbox.Types(m.b.who)))
	was := make([]job.Status, len(m.jobs))
	for i, j := range m.jobs {
		was[i] = j.status
	}
	require.NoError(t, m.fold(t.Context()))
	for i, j := range m.jobs {
		want := was[i]
		if !held[j.lane] && !want.Terminal() && !m.waits(j) {
			want = job.Processed
		}
		require.Equal(t, want, j.status, "job %d", j.id)
	}
}

// What ends or troubles a run in runPart.
const (
	faultStop      = "soft stop"
	faultHardStop  = "hard stop"
	faultCrash     = "crash" // its connection goes with it
	faultHang      = "hang"  // its connection stays, and nothing tells that it is dead
	faultAbort     = "abort"
	faultPermanent = "permanent error"
	faultPassing   = "passing error"
	faultBackend   = "backend terminated"
)

// runPart runs until one fault happens, at a random point of a random chunk. The
// channels change between the chunks before and after.
func (m *model) runPart(t *rapid.T) {
	f := faultyRun{
		m:     m,
		ready: make(chan struct{}),
		fault: rapid.SampledFrom([]string{faultStop, faultHardStop, faultCrash, faultHang, faultAbort, faultPermanent, faultPassing, faultBackend}).Draw(t, "fault"),
		point: rapid.SampledFrom([]string{job.PointBegun, job.PointWritten, job.PointMoved, job.PointCommitLost, job.PointCommitted}).Draw(t, "point"),
		nth:   rapid.IntRange(1, 6).Draw(t, "nth"),
	}
	if f.fault == faultAbort && f.point == job.PointMoved {
		f.point = job.PointWritten // the abort would wait for the chunk that waits for it
	}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		f.changes = append(f.changes, drawChange(t, "insert", "delete", "toggle"))
	}
	rows := rapid.IntRange(1, 7).Draw(t, "chunk rows")
	pool, vanishes := m.b.db.Pool, f.fault == faultCrash || f.fault == faultHang
	if vanishes {
		pool = m.b.process(t)
	}
	r := m.b.runnerWith(t, pool, m.walkConfig(rows), outbox.Types(m.b.who),
		job.WithObserver(func(p job.Progress) { f.running = p.Job.ID }), job.WithFailpoint(f.at))
	f.run = m.b.start(t, r)
	close(f.ready)
	f.run.end(t)
	require.NoError(t, f.err)
	if !vanishes || f.nth > 0 {
		require.True(t, f.run.whole)
		require.NoError(t, f.run.err)
	}
	switch f.fault {
	case faultCrash:
		pool.Close()
	case faultHang:
		t.Cleanup(pool.Close)
	}
	require.NoError(t, m.fold(t.Context()))
	if f.nth > 0 {
		return // the run was over before
	}
	for _, j := range m.jobs {
		if j.id != f.struck {
			continue
		}
		switch f.fault {
		case faultCrash:
			require.Equal(t, job.Running, j.status)
			m.b.eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity a JOIN belfry.jobs j ON j.backend_pid = a.pid WHERE j.id = $1)`, j.id)
			j.dead = true
		case faultHang:
			require.Equal(t, job.Running, j.status)
		case faultAbort:
			require.Equal(t, job.Aborted, j.status)
		}
	}
}

// faultyRun is the failpoint of one runPart. It runs in the run's goroutine, while
// the test waits.
type faultyRun struct {
	m       *model
	run     *started
	ready   chan struct{} // closed when run is set
	fault   string
	point   string
	nth     int // arrivals at the point until the fault; 0: it has happened
	changes []change
	running int64 // the job
	struck  int64 // the job that met the fault
	err     error
}

func (f *faultyRun) at(ctx context.Context, point string) error {
	<-f.ready
	ctx = context.WithoutCancel(ctx) // the model keeps up with a run that is being stopped
	if point == job.PointCommitted && len(f.changes) > 0 {
		f.err = errors.Join(f.err, f.m.fold(ctx), f.m.apply(ctx, f.changes[0]))
		f.changes = f.changes[1:]
	}
	if point != f.point || f.nth == 0 {
		return nil
	}
	if f.nth--; f.nth > 0 {
		return nil
	}
	f.struck = f.running
	switch f.fault {
	case faultStop:
		f.run.stop()
	case faultHardStop:
		f.run.runner.StopNow(errors.New("hard stop"))
	case faultCrash, faultHang:
		runtime.Goexit()
	case faultAbort:
		tag, err := f.m.b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1 AND status = 'RUNNING'`, f.running)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("the running job is not RUNNING")
		}
		f.err = errors.Join(f.err, err)
	case faultPermanent:
		return errors.New("permanent")
	case faultPassing:
		return context.DeadlineExceeded
	case faultBackend:
		_, err := f.m.b.db.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'belfry job%'`)
		f.err = errors.Join(f.err, err)
	}
	return nil
}

// stale makes every run without a runner look dead.
func (m *model) stale(t *rapid.T) {
	for _, j := range m.jobs {
		if j.status == job.Running {
			m.b.age(t, j.id)
			j.dead = true
		}
	}
}

func (m *model) abort(t *rapid.T) {
	m.act(t, m.b.jobs.Abort, func(j *modelJob) job.Status {
		switch {
		case j.status == job.Pending, j.status == job.Running:
			return job.Aborted
		case (j.status == job.Processed || j.status == job.Failed) && one[int](t, m.b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1`, j.id) > 0:
			j.walked = j.status == job.Processed // nobody sends here: all are left
			return job.Aborted
		}
		return ""
	})
}

func (m *model) resume(t *rapid.T) {
	m.act(t, m.b.jobs.Resume, func(j *modelJob) job.Status {
		switch {
		case j.status != job.Aborted:
			return ""
		case j.walked:
			j.walked = false
			return job.Processed
		}
		return job.Pending
	})
}

func (m *model) retry(t *rapid.T) {
	m.act(t, m.b.jobs.Retry, func(j *modelJob) job.Status {
		if j.status == job.Failed {
			return job.Pending
		}
		return ""
	})
}

// waits reports whether nobody may claim the job before it is approved.
func (m *model) waits(j *modelJob) bool {
	return j.needs && !j.approved && j.status != job.Aborted && j.status != job.Expired
}

// approve is refused unless the job waits for it.
func (m *model) approve(t *rapid.T) {
	if len(m.jobs) == 0 {
		t.Skip("no jobs")
	}
	j := rapid.SampledFrom(m.jobs).Draw(t, "job")
	_, err := m.b.jobs.Approve(t.Context(), j.id, 1000, job.Act{Actor: "second"})
	if !m.waits(j) {
		require.ErrorAs(t, err, new(*job.NotAwaitingError))
		return
	}
	require.NoError(t, err)
	j.approved = true
}

// edit changes what a job says, which voids its approval.
func (m *model) edit(t *rapid.T) {
	if len(m.jobs) == 0 {
		t.Skip("no jobs")
	}
	j := rapid.SampledFrom(m.jobs).Draw(t, "job")
	m.edits++
	_, err := m.b.jobs.Set(t.Context(), j.id, job.Changes{"title": fmt.Sprintf("edit %d", m.edits)}, job.Act{Actor: "model"})
	if j.status == job.Running || j.status == job.Processed {
		require.ErrorAs(t, err, new(*job.InvalidError))
		return
	}
	require.NoError(t, err)
	j.approved = false
}

// act does something to one job, which leads from some statuses to another, and is refused
// in the others (I7).
func (m *model) act(t *rapid.T, do func(context.Context, job.Selection, job.Act) ([]job.Job, error), to func(*modelJob) job.Status) {
	if len(m.jobs) == 0 {
		t.Skip("no jobs")
	}
	j := rapid.SampledFrom(m.jobs).Draw(t, "job")
	changed, err := do(t.Context(), job.One(j.id), job.Act{Actor: "model"})
	if next := to(j); next != "" {
		require.NoError(t, err)
		j.status = next
		require.Equal(t, j.status, changed[0].Status)
	} else {
		var wrong *job.WrongStatusError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, j.status, wrong.Status)
	}
}

// drain brings every job to completion and compares the exact sets.
func (m *model) drain(t *rapid.T) {
	m.stale(t)
	for _, j := range m.jobs {
		act := job.Act{Actor: "model", Reason: "drain"}
		var err error
		switch j.status {
		case job.Aborted:
			if _, err = m.b.jobs.Resume(t.Context(), job.One(j.id), act); j.walked {
				j.status, j.walked = job.Processed, false
			}
		case job.Failed:
			_, err = m.b.jobs.Retry(t.Context(), job.One(j.id), act)
		case job.Pending, job.Running, job.Processed, job.Expired:
		}
		require.NoError(t, err)
	}
	require.NoError(t, m.fold(t.Context()))
	for _, j := range m.jobs {
		if m.waits(j) {
			_, err := m.b.jobs.Approve(t.Context(), j.id, 1000, job.Act{Actor: "second"})
			require.NoError(t, err)
			j.approved = true
		}
	}
	m.runAll(t)
	m.check(t)
	for _, j := range m.jobs {
		require.Equal(t, job.Processed, j.status)
	}
}

// A run that hangs holds its lane for as long as its connection is open, whatever
// other runners do to theirs. The model failed once because its runs shared a pool:
// one that was stopped hard closed the connection that the row of another named.
func TestModel_AHangingRunsConnectionIsNobodyElsesToClose(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.False(t, b.crash(t, "hangs", job.PointCommitted, 2))
	for _, conn := range b.db.Pool.AcquireAllIdle(t.Context()) {
		require.NoError(t, conn.Conn().Close(t.Context()))
		conn.Release()
	}
	out := b.runDue(t, b.runner(t, "next"))
	require.Empty(t, out.Jobs)
	require.Len(t, out.Held, 1)
	require.Equal(t, id, out.Held[0].ID)
}

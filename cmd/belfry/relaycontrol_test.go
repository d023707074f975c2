package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/job"
)

// handedSQL keeps a record of every hand-over, by the transaction that it was committed in.
// The look at a message comes after that COMMIT, and the call after the look.
const handedSQL = `
CREATE TABLE public.handed (
	xid xid8 NOT NULL DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp(), job_ids bigint[] NOT NULL, channel_ids bigint[] NOT NULL
);
CREATE FUNCTION public.note_handover() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	INSERT INTO public.handed (job_ids, channel_ids) VALUES (NEW.job_ids, NEW.channel_ids);
	RETURN NULL;
END $$;
CREATE TRIGGER zz_note AFTER INSERT ON belfry.handovers FOR EACH ROW EXECUTE FUNCTION public.note_handover();`

// chaosJob is a job as the test controls it. Its title says its revision.
type chaosJob struct {
	id       int64
	lane     string
	revision int
}

func (j *chaosJob) title() string { return fmt.Sprintf("Hello, revision %d", j.revision) }

var revisionText = regexp.MustCompile(`revision ([0-9]+)`)

// revisionOf is the revision whose text a call had.
func revisionOf(t *testing.T, call fake.Call) int {
	t.Helper()
	found := revisionText.FindStringSubmatch(call.Title + " " + call.Body)
	if found == nil {
		require.Equal(t, "Hello", call.Title+call.Body)
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// hold is a time in which a job was held: from the acknowledgement of the act that held it
// until right before the act that let it go on. Whatever was handed over by a transaction
// that snapshot does not see was looked at after the acknowledgement.
type hold struct {
	what     string
	job      int64
	from, to time.Time // in the clock of the providers' record
	snapshot string    // taken after the acknowledgement
	revision int       // that the job had from its end on
}

// held has something done to a job that holds it, things happen in between, and has it go
// on. Two relays of three are stopped before the act, with what they have in flight, and go
// on after it; the first edit's, and some others', after the job has gone on.
func (c *relayChaos) held(what string, j *chaosJob, act, goOn func()) {
	c.Helper()
	c.done[what]++
	stopped := c.random.Perm(len(c.relays))[:2]
	through := what == "edit" && c.done[what] == 1 || c.random.IntN(4) == 0
	for _, place := range stopped {
		c.signal(place, syscall.SIGSTOP)
	}
	goes := func() {
		for _, place := range stopped {
			c.signal(place, syscall.SIGCONT)
		}
	}
	act()
	h := hold{what: what, job: j.id, from: time.Now()}
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT pg_current_snapshot()::text").Scan(&h.snapshot))
	switch {
	case through: // not so long that another relay takes what it has in flight
	case c.random.IntN(3) == 0:
		goes()
		c.kill()
	default:
		goes()
		c.rest(400 * time.Millisecond)
	}
	h.to = time.Now()
	goOn()
	goes()
	h.revision = j.revision
	c.holds = append(c.holds, h)
}

// undelivered is a job that has messages left, nil: none has.
func (c *relayChaos) undelivered() *chaosJob {
	c.Helper()
	for _, i := range c.random.Perm(len(c.jobs)) {
		var waiting int64
		require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT waiting FROM belfry.job_progress WHERE job_id = $1", c.jobs[i].id).Scan(&waiting))
		if waiting > 0 {
			return c.jobs[i]
		}
	}
	return nil
}

// belfry runs a command that has to succeed.
func (c *relayChaos) belfry(args ...string) {
	c.Helper()
	r := command(c.T, []string{"BELFRY_DATABASE_URL=" + c.db.DSN}, args...)
	require.Equal(c, codeDone, r.code, "%v: %s", args, r.stderr)
}

// halt aborts a job by one of the ways there are. Its last message may be faster.
func (c *relayChaos) halt(j *chaosJob) {
	c.Helper()
	switch c.random.IntN(3) {
	case 0:
		r := command(c.T, []string{"BELFRY_DATABASE_URL=" + c.db.DSN}, "abort", strconv.FormatInt(j.id, 10), "--reason", "chaos")
		require.Contains(c, []code{codeDone, codeFailure}, r.code, r.stderr)
	case 1:
		c.exec("SELECT belfry.abort($1, 'chaos')", j.id)
	default:
		c.exec("UPDATE belfry.jobs SET abort_requested = true WHERE id = $1", j.id)
	}
}

func (c *relayChaos) status(j *chaosJob) (s job.Status) {
	c.Helper()
	require.NoError(c, c.db.Pool.QueryRow(c.Context(), "SELECT status FROM belfry.jobs WHERE id = $1", j.id).Scan(&s))
	return s
}

// abort holds a job in mid-delivery and has it go on as it was.
func (c *relayChaos) abort() {
	c.Helper()
	j := c.undelivered()
	if j == nil {
		return
	}
	c.held("abort", j, func() { c.halt(j) }, func() {
		if c.status(j) != job.Aborted {
			return // its last message was faster
		}
		if c.random.IntN(2) == 0 {
			c.belfry("resume", strconv.FormatInt(j.id, 10))
		} else {
			c.exec("SELECT belfry.resume($1, 'chaos')", j.id)
		}
		require.Equal(c, job.Processed, c.status(j))
	})
}

// edit holds a job in mid-delivery and has it go on with another text.
func (c *relayChaos) edit() {
	c.Helper()
	j := c.undelivered()
	if j == nil {
		return
	}
	c.held("edit", j, func() { c.halt(j) }, func() {
		if c.status(j) != job.Aborted {
			return
		}
		j.revision++
		if c.random.IntN(2) == 0 {
			c.belfry("resume", strconv.FormatInt(j.id, 10), "--edit", "--title", j.title())
		} else {
			c.exec("SELECT belfry.resume_edited($1, jsonb_build_object('title', $2::text), 'chaos')", j.id, j.title())
		}
		require.Equal(c, job.Processed, c.status(j))
	})
}

// pauseLane holds the lane of a job.
func (c *relayChaos) pauseLane() {
	c.Helper()
	j := c.undelivered()
	if j == nil {
		return
	}
	act, goOn := func() { c.belfry("lanes", "pause", j.lane) }, func() { c.exec("SELECT belfry.resume_lane($1)", j.lane) }
	if c.random.IntN(2) == 0 {
		act, goOn = func() { c.exec("SELECT belfry.pause_lane($1)", j.lane) }, func() { c.belfry("lanes", "resume", j.lane) }
	}
	c.held("pause", j, act, goOn)
}

// handover is one hand-over of a message.
type handover struct {
	xid uint64    // that it was committed in
	at  time.Time // in the database's clock, which is the machine's
}

// newest is the newest one that came before a call; nil: none did.
func newest(list []handover, call fake.Call) *handover {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].at.Before(call.At) {
			return &list[i]
		}
	}
	return nil
}

// sees tells whether what a transaction committed is seen by a snapshot, which is
// xmin:xmax:those between them that were in progress.
func sees(t *testing.T, snapshot string, xid uint64) bool {
	t.Helper()
	parts := strings.Split(snapshot, ":")
	require.Len(t, parts, 3)
	low, err := strconv.ParseUint(parts[0], 10, 64)
	require.NoError(t, err)
	high, err := strconv.ParseUint(parts[1], 10, 64)
	require.NoError(t, err)
	return xid < low || xid < high && !slices.Contains(strings.Split(parts[2], ","), strconv.FormatUint(xid, 10))
}

// told is the calls and the hand-overs of one message, in order.
type told struct {
	job, channel int64
	calls        []fake.Call
	handed       []handover
	lost         bool // its relay lost it to another one: both may have handed it over
}

// judgeHolds is I6 in mid-delivery, and that nobody gets a text that was corrected before:
// a call that a provider got while a job was held belongs to a hand-over which was committed
// before the act that held it was acknowledged, and one whose hand-over was committed later
// has at least the text of that hold's end. A message that its relay lost to another one may
// have been handed over by both: of such it is enough that it was handed over often enough.
func (c *relayChaos) judgeHolds(calls map[string][]fake.Call) {
	c.Helper()
	late := 0
	for _, m := range c.told(calls) {
		for _, h := range c.holds {
			if h.job == m.job {
				late += m.judge(c.T, h)
			}
		}
	}
	c.Logf("%d holds; %d calls arrived in them, all handed over before", len(c.holds), late)
}

// judge returns how many calls arrived in a hold as they may.
func (m *told) judge(t *testing.T, h hold) (late int) {
	t.Helper()
	before := 0 // hand-overs that the hold came too late for
	for _, o := range m.handed {
		if sees(t, h.snapshot, o.xid) {
			before++
		}
	}
	for n, call := range m.calls {
		during := call.At.After(h.from) && call.At.Before(h.to)
		if during && n < before {
			late++
		}
		if m.lost {
			require.False(t, during && n >= before, "I6: message %d/%d was called for the %d. time during the %s, and handed over %d times before", m.job, m.channel, n+1, h.what, before)
			continue
		}
		o := newest(m.handed, call)
		require.NotNil(t, o, "message %d/%d was called without a hand-over", m.job, m.channel)
		if sees(t, h.snapshot, o.xid) {
			continue
		}
		require.False(t, during, "I6: message %d/%d was called %s after the %s was acknowledged, and handed over %s after it", m.job, m.channel, call.At.Sub(h.from), h.what, o.at.Sub(h.from))
		require.GreaterOrEqual(t, revisionOf(t, call), h.revision, "message %d/%d was handed over after the %s that led to revision %d, with the text of %d",
			m.job, m.channel, h.what, h.revision, revisionOf(t, call))
	}
	return late
}

// told gathers what there is of each message.
func (c *relayChaos) told(calls map[string][]fake.Call) map[[2]int64]*told {
	c.Helper()
	keyOf, all := c.keys(), make(map[[2]int64]*told)
	rows, err := c.db.Pool.Query(c.Context(), `SELECT u.job_id, u.channel_id, o.xid::text::bigint, o.at
		  FROM public.handed o CROSS JOIN unnest(o.job_ids, o.channel_ids) u(job_id, channel_id) ORDER BY o.at`)
	require.NoError(c, err)
	var key [2]int64
	var o handover
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &o.xid, &o.at}, func() error {
		m := all[key]
		if m == nil {
			m = &told{job: key[0], channel: key[1]}
			for _, medium := range []string{"push", "sms"} { // the route's order
				m.calls = append(m.calls, calls[keyOf(key[0], key[1], medium)]...)
			}
			slices.SortStableFunc(m.calls, func(a, b fake.Call) int { return a.At.Compare(b.At) })
			all[key] = m
		}
		m.handed = append(m.handed, o)
		return nil
	})
	require.NoError(c, err)
	rows, err = c.db.Pool.Query(c.Context(), "SELECT DISTINCT job_id, channel_id FROM belfry.attempts WHERE outcome = 'crashed'")
	require.NoError(c, err)
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1]}, func() error {
		require.NotNil(c, all[key], "message %v crashed and was never handed over", key)
		all[key].lost = true
		return nil
	})
	require.NoError(c, err)
	return all
}

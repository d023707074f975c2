package demo

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
)

// tries is how often an act that has to hit a job in its middle is played.
const tries = 3

const (
	seed          = 1
	newcomerSeed  = 2
	questionCity  = "Seoul"
	questionM     = 30_000
	progressEvery = 2 * time.Second
)

// makeChannels is the first act.
func (s *stage) makeChannels(ctx context.Context) error {
	s.screen.act("Channels",
		`A channel is one recipient; each user has one. These are made up, at real cities in
proportion to their population. One in a hundred is inactive and must get nothing.`)
	began := time.Now()
	shown := began
	err := s.generate(ctx, s.Channels, seed, func(made int64) {
		if now := time.Now(); now.Sub(shown) >= progressEvery {
			shown = now
			s.screen.say("%s of %s channels", grouped(made), grouped(s.Channels))
		}
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.report.GenerateMS = inMillis(took)
	wait, cancel := s.deadline(ctx)
	defer cancel()
	var total, active, locales int64
	if err := s.pool.QueryRow(wait, queries.SQL("ChannelsSummary")).Scan(&total, &active, &locales); err != nil {
		return fmt.Errorf("count the channels: %w", err)
	}
	s.report.Channels = total
	s.screen.say("%s channels in %s, of %s locales, %s of them active", grouped(total), millis(inMillis(took)), grouped(locales), grouped(active))
	return nil
}

func (s *stage) generate(ctx context.Context, n int64, seed uint64, progress func(int64)) error {
	store, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return err
	}
	_, err = cities.Generate(ctx, store, s.pool, n, cities.Options{Seed: seed, Timeout: 2 * s.patience(), Progress: progress})
	return err
}

// killRunner is the second act. It returns the runner that took over and the job
// that this one runs next.
func (s *stage) killRunner(ctx context.Context) (heir *runner, push int64, err error) {
	s.screen.act("kill -9: a runner dies in mid-job, another finishes the job exactly",
		`A job is a row, and an INSERT in your own transaction enqueues it. This one is for
everyone, twice: a notification in the inbox, and a message to push.`)
	wait, cancel := s.deadline(ctx)
	defer cancel()
	s.report.Kill = &KillReport{StaleAfterMS: inMillis(staleAfter)}
	for try := range tries {
		ids, err := s.enqueue(wait, queries.SQL("EnqueuePopular"))
		if err != nil {
			return nil, 0, err
		}
		if len(ids) != 2 {
			return nil, 0, fmt.Errorf("enqueue: %d jobs instead of 2", len(ids))
		}
		settings := smallChunks(s.chunkRows(try))
		hit, err := s.killOnce(ctx, wait, ids[0], try)
		if err != nil {
			return nil, 0, err
		}
		if hit {
			heir, err := s.takeOver(ctx, wait, settings, ids[0])
			return heir, ids[1], err
		}
		s.screen.say("job %d was done before the kill; once more, with smaller chunks", ids[0])
		heir, err := s.successor(ctx, settings)
		if err != nil {
			return nil, 0, err
		}
		if err := heir.wantSuccess(wait); err != nil { // it finishes what was left
			return nil, 0, err
		}
	}
	return nil, 0, fmt.Errorf("kill -9 hit no job in its middle in %d tries", tries)
}

// successor starts a runner that takes what is left of a dead one.
func (s *stage) successor(ctx context.Context, settings map[string]string) (*runner, error) {
	return s.start(ctx, settings, "run", "--quiet", "--wait", (2 * s.patience()).String())
}

// killOnce runs the job with one runner, kills it after a quarter of the channels,
// and reports whether that was in the middle of the job.
func (s *stage) killOnce(ctx, wait context.Context, id int64, try int) (hit bool, err error) {
	rows := s.chunkRows(try)
	victim, err := s.start(ctx, smallChunks(rows), "run", "--quiet")
	if err != nil {
		return false, err
	}
	if _, err := s.until(wait, victim, id, "has begun", func(l look) bool { return l.Chunks > 0 }); err != nil {
		return false, err
	}
	s.screen.say("%s (`belfry run`) took job %d; nobody else can: one job at a time in a lane, by a unique index", victim.name, id)
	s.screen.say("chunks are kept to %s channels here, so that the job has a middle to be hit in", grouped(rows))
	_, err = s.until(wait, victim, id, "is a quarter done", func(l look) bool {
		return l.ChannelsRead >= s.hitAt || l.Status == processed
	})
	if err != nil {
		return false, err
	}
	k := s.report.Kill
	killed, err := victim.kill(wait)
	if err != nil {
		return false, err
	}
	if err := s.untilSettled(wait, id); err != nil {
		return false, err
	}
	l, err := s.look(wait, id)
	if err != nil {
		return false, err
	}
	k.Job, k.Tries, k.Killed = id, try+1, victim.name
	k.ChannelsRead, k.Chunks = l.ChannelsRead, l.Chunks
	k.InMiddle = killed && l.Status == running && l.Runner == victim.name && l.inMiddle()
	return k.InMiddle, nil
}

// takeOver shows what the dead runner left, and then starts another one, which goes
// on. A runner that waited would have the job before anybody could look. It returns
// as soon as the job is done: the next one is to be hit in its middle.
func (s *stage) takeOver(ctx, wait context.Context, settings map[string]string, id int64) (*runner, error) {
	k := s.report.Kill
	s.screen.say("%s: %s, with %s of %s channels read in %s chunks", s.screen.paint(red, "kill -9"), k.Killed,
		grouped(k.ChannelsRead), grouped(s.Channels), grouped(k.Chunks))
	v, err := verify(wait, s.pool, id, true)
	if err != nil {
		return nil, err
	}
	k.Exact, k.RowsAbove = v.exact(), v.Unexpected
	s.screen.say("up to the cursor: %s", v)
	if k.Exact {
		s.screen.say("a chunk's rows and the cursor commit together: the chunk in flight left nothing behind")
	}
	k.Newcomers = max(s.Channels/100, 1)
	if err := s.generate(wait, k.Newcomers, newcomerSeed, nil); err != nil {
		return nil, err
	}
	s.report.Channels += k.Newcomers
	s.screen.say("meanwhile %s new users sign up: above the bound that job %d froze when it began, so it will not reach them; later jobs will", grouped(k.Newcomers), id)
	k.startedAt = time.Now()
	heir, err := s.successor(ctx, settings)
	if err != nil {
		return nil, err
	}
	k.TookOver = heir.name
	s.screen.say("the server has closed the dead runner's connection, whose process id stands in the job's row: %s, started now, sees that and takes the job over at once, with a higher fencing token (a runner that only hangs is taken over when its heartbeat is stale)", heir.name)
	c, err := heir.firstChunk(wait, id)
	if err != nil {
		return nil, err
	}
	k.TakeOverMS = inMillis(c.at.Sub(k.startedAt))
	s.screen.say("%s took over: its first chunk, number %s, was committed %s after its start", heir.name, grouped(c.Number), millis(k.TakeOverMS))
	l, err := s.until(wait, heir, id, "is finished", func(l look) bool { return l.Status == processed })
	if err != nil {
		return nil, err
	}
	s.screen.say("job %d is %s: %s rows in %s chunks", id, l.Status, grouped(l.RowsWritten), grouped(l.Chunks))
	return heir, nil
}

// abortJob is the third act: r runs the job, or will in a moment.
func (s *stage) abortJob(ctx context.Context, r *runner, id int64) error {
	s.screen.act("Abort: an UPDATE stops a job in mid-job",
		fmt.Sprintf(`%s goes on with job %d, the push half. You find a mistake in the text: it has to stop now,
not after the next million rows. When the UPDATE returns, no further row is committed.`, r.name, id))
	wait, cancel := s.deadline(ctx)
	defer cancel()
	s.report.Abort = &AbortReport{}
	for try := range tries {
		if try > 0 {
			s.screen.say("job %d was done before the abort; once more, with smaller chunks", id)
			ids, err := s.enqueue(wait, queries.SQL("EnqueuePush"))
			if err != nil {
				return err
			}
			id = ids[0]
			if r, err = s.start(ctx, smallChunks(s.chunkRows(try)), "run", "--quiet"); err != nil {
				return err
			}
		}
		hit, err := s.abortOnce(wait, r, id, try)
		if err != nil {
			return err
		}
		if hit {
			return s.resume(ctx, wait, id)
		}
	}
	return fmt.Errorf("the abort hit no job in its middle in %d tries", tries)
}

// abortOnce aborts the job after a quarter of the channels and watches whether
// anything comes after, until the runner is gone.
func (s *stage) abortOnce(wait context.Context, r *runner, id int64, try int) (hit bool, err error) {
	statement := render("Abort", map[string]string{"id": strconv.FormatInt(id, 10)})
	l, err := s.until(wait, r, id, "is a quarter done", func(l look) bool {
		return l.ChannelsRead >= s.hitAt || l.Status == processed
	})
	if err != nil {
		return false, err
	}
	a := AbortReport{Job: id, Tries: try + 1}
	var status string
	var at *string
	sent := time.Now()
	if err := s.pool.QueryRow(wait, statement).Scan(&status, &at, &a.ChunksBefore, &a.RowsReturned); err != nil {
		return false, fmt.Errorf("abort job %d: %w", id, err)
	}
	a.LatencyMS = inMillis(time.Since(sent))
	seen, err := verify(wait, s.pool, id, true)
	if err != nil {
		return false, err
	}
	if a.RunnerExit, err = r.exit(wait); err != nil {
		return false, err
	}
	a.RunnerStoppedMS = inMillis(r.at.Sub(sent))
	if err := s.untilSettled(wait, id); err != nil {
		return false, err
	}
	after, err := verify(wait, s.pool, id, true)
	if err != nil {
		return false, err
	}
	if at != nil {
		a.CursorReturned = *at
	}
	a.InMiddle = status == aborted && a.ChunksBefore > 0 && a.CursorReturned != "" && a.CursorReturned != l.Bound
	a.CursorAfter, a.RowsSeen, a.RowsAfter = after.Cursor, seen.Rows, after.Rows
	a.Exact = seen.exact() && after.exact()
	a.Still = seen.Cursor == a.CursorReturned && after.Cursor == a.CursorReturned &&
		seen.Rows == a.RowsReturned && after.Rows == a.RowsReturned
	s.report.Abort = &a
	if !a.InMiddle {
		return false, nil
	}
	s.showAbort(r, statement, after)
	if a.RunnerExit != exitAborted {
		return false, r.complaint(fmt.Sprintf("ended with exit status %d instead of %d (aborted)", a.RunnerExit, exitAborted))
	}
	return true, nil
}

func (s *stage) showAbort(r *runner, statement string, after verdict) {
	a := s.report.Abort
	s.screen.sql(statement)
	s.screen.say("returned after %s: %s rows, cursor %s", millis(a.LatencyMS), grouped(a.RowsReturned), a.CursorReturned)
	s.screen.say("%s noticed and ended with exit status %d after %s", r.name, a.RunnerExit, millis(a.RunnerStoppedMS))
	s.screen.say("now that it is gone: %s rows, cursor %s", grouped(a.RowsAfter), a.CursorAfter)
	if a.Still {
		s.screen.say("nothing came after the UPDATE had returned")
	}
	s.screen.say("up to the cursor: %s", after)
}

// resume has the aborted job finished from its cursor.
func (s *stage) resume(ctx, wait context.Context, id int64) error {
	statement := render("Resume", map[string]string{"id": strconv.FormatInt(id, 10)})
	s.screen.say("the text was right after all: the job goes on from its cursor")
	s.screen.sql(statement)
	var status string
	if err := s.pool.QueryRow(wait, statement).Scan(&status); err != nil {
		return fmt.Errorf("resume job %d: %w", id, err)
	}
	r, err := s.start(ctx, nil, "run", "--quiet")
	if err != nil {
		return err
	}
	if err := r.wantSuccess(wait); err != nil {
		return err
	}
	c, err := r.firstChunk(wait, id)
	if err != nil {
		return err
	}
	s.report.Abort.ResumedAtChunk = c.Number
	l, err := s.look(wait, id)
	if err != nil {
		return err
	}
	s.screen.say("%s went on with chunk %s; job %d is %s: %s rows in %s chunks", r.name, grouped(c.Number), id, l.Status, grouped(l.RowsWritten), grouped(l.Chunks))
	return nil
}

// reachAudiences is the fourth act.
func (s *stage) reachAudiences(ctx context.Context) error {
	s.screen.act("Audiences: near a place, and on some platforms",
		`An audience is a typed value, checked at the INSERT. A radius is great-circle metres, and
costs in proportion to its matches.`)
	wait, cancel := s.deadline(ctx)
	defer cancel()
	city, err := cities.Find(questionCity, "")
	if err != nil {
		return err
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	ids, err := s.enqueue(wait, render("EnqueueAudiences", map[string]string{
		"question": literal("Dentist in " + city.Name + "?"),
		"latitude": number(city.Latitude), "longitude": number(city.Longitude), "radius": number(questionM),
	}))
	if err != nil {
		return err
	}
	r, err := s.start(ctx, nil, "run", "--quiet")
	if err != nil {
		return err
	}
	if err := r.wantSuccess(wait); err != nil {
		return err
	}
	for _, id := range ids {
		l, err := s.look(wait, id)
		if err != nil {
			return err
		}
		s.screen.say("job %d is %s: %s rows, %s channels looked at", id, l.Status, grouped(l.RowsWritten), grouped(l.ChannelsRead))
	}
	return nil
}

// waitForSchedule is the fifth act.
func (s *stage) waitForSchedule(ctx context.Context) error {
	s.screen.act("Schedule: a job for later",
		`schedule_at is judged by the database's clock. A daemon waits for it, and stops softly on
SIGTERM.`)
	wait, cancel := s.deadline(ctx)
	defer cancel()
	ids, err := s.enqueue(wait, queries.SQL("EnqueueScheduled"))
	if err != nil {
		return err
	}
	id := ids[0]
	r, err := s.start(ctx, nil, "daemon")
	if err != nil {
		return err
	}
	s.screen.say("%s (`belfry daemon`) waits", r.name)
	l, err := s.until(wait, r, id, "is finished", func(l look) bool { return l.Status == processed })
	if err != nil {
		return err
	}
	if l.StartedAt == nil {
		return fmt.Errorf("job %d is %s and was never started", id, l.Status)
	}
	s.report.Schedule = &ScheduleReport{Job: id, LateMS: inMillis(l.StartedAt.Sub(l.ScheduleAt))}
	s.screen.say("job %d started %s after its time and is %s: %s rows", id, millis(s.report.Schedule.LateMS), l.Status, grouped(l.RowsWritten))
	return s.stopSoftly(wait, r)
}

// stopSoftly sends SIGTERM and wants a good end.
func (s *stage) stopSoftly(wait context.Context, r *runner) error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", r.name, err)
	}
	return r.wantSuccess(wait)
}

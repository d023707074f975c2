package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
)

const (
	seed         = 1
	newcomerSeed = 2
	questionCity = "Seoul"
	questionM    = 30_000
)

// makeChannels is the first act.
func (s *stage) makeChannels(ctx context.Context) error {
	s.screen.act("Channels: one for each user, at real cities, one in a hundred inactive")
	began := time.Now()
	if err := s.generate(ctx, s.Channels, seed); err != nil {
		return err
	}
	s.report.GenerateMS = inMillis(time.Since(began))
	s.screen.say("%s channels in %s", grouped(s.Channels), millis(s.report.GenerateMS))
	return nil
}

func (s *stage) generate(ctx context.Context, n int64, seed uint64) error {
	store, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return err
	}
	s.report.Channels += n
	_, err = cities.Generate(ctx, store, s.pool, n, cities.Options{Seed: seed, Timeout: 2 * s.patience()})
	return err
}

// killRunner is the second act. It returns the runner that took over and the job
// that this one runs next.
func (s *stage) killRunner(ctx context.Context) (heir *runner, push int64, err error) {
	s.screen.act("Crash: a runner is killed in mid-job, another finishes the job exactly")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	ids, err := s.enqueue(wait, render(queries.enqueuePopular, map[string]string{"rate": s.rate()}))
	if err != nil {
		return nil, 0, err
	}
	k := &KillReport{Job: ids[0], StaleAfterMS: inMillis(staleAfter)}
	s.report.Kill = k
	victim, err := s.start(ctx, "run", "--quiet")
	if err != nil {
		return nil, 0, err
	}
	if _, err := s.untilQuarter(wait, victim, k.Job); err != nil {
		return nil, 0, err
	}
	killed, err := victim.kill(wait)
	if err != nil {
		return nil, 0, err
	}
	if err := s.untilSettled(wait, k.Job); err != nil {
		return nil, 0, err
	}
	left, err := s.look(wait, k.Job)
	if err != nil {
		return nil, 0, err
	}
	k.Killed, k.ChannelsRead, k.Chunks = victim.name, left.ChannelsRead, left.Chunks
	k.InMiddle = killed && left.Status == running && left.Runner == victim.name && left.inMiddle()
	if !k.InMiddle {
		return nil, 0, fmt.Errorf("kill -9 did not hit job %d in its middle: it is %s", k.Job, left.Status)
	}
	v, err := verify(wait, s.pool, k.Job, true)
	if err != nil {
		return nil, 0, err
	}
	k.Exact, k.RowsAbove = v.exact(), v.Unexpected
	s.screen.say("%s: %s in chunk %s of job %d; up to the cursor there are %s", s.screen.paint(red, "kill -9"), victim.name, grouped(k.Chunks+1), k.Job, v)
	heir, err = s.takeOver(ctx, wait, left)
	return heir, ids[1], err
}

// untilQuarter waits until a job is far enough to be hit, or done already.
func (s *stage) untilQuarter(ctx context.Context, r *runner, id int64) (look, error) {
	return s.until(ctx, r, id, "is a quarter done", func(l look) bool {
		return l.Chunks > 0 && l.ChannelsRead >= s.hitAt || l.Status == processed
	})
}

// takeOver has another runner go on with the job of a dead one, and returns when the job
// is done: the next one is to be hit in its middle.
func (s *stage) takeOver(ctx, wait context.Context, left look) (*runner, error) {
	k := s.report.Kill
	k.Newcomers = max(s.Channels/100, 1)
	if err := s.generate(wait, k.Newcomers, newcomerSeed); err != nil {
		return nil, err
	}
	s.screen.say("%s users sign up meanwhile: above the bound that job %d froze, so only later jobs reach them", grouped(k.Newcomers), k.Job)
	began := time.Now()
	heir, err := s.start(ctx, "run", "--quiet", "--wait", (2 * s.patience()).String())
	if err != nil {
		return nil, err
	}
	k.TookOver = heir.name
	_, err = s.until(wait, heir, k.Job, "goes on", func(l look) bool { return l.Fence > left.Fence && l.Chunks > left.Chunks })
	if err != nil {
		return nil, err
	}
	k.TakeOverMS = inMillis(time.Since(began))
	if err := s.unlimit(wait, k.Job); err != nil {
		return nil, err
	}
	l, err := s.untilFinished(wait, heir, k.Job)
	if err != nil {
		return nil, err
	}
	s.screen.say("%s took over %s after its start; job %d is %s: %s rows", heir.name, millis(k.TakeOverMS), k.Job, l.Status, grouped(l.RowsWritten))
	return heir, nil
}

// unlimit lets a job go as fast as it can.
func (s *stage) unlimit(ctx context.Context, id int64) error {
	if _, err := s.pool.Exec(ctx, queries.unlimit, pgx.StrictNamedArgs{"id": id}); err != nil {
		return fmt.Errorf("lift the limit of job %d: %w", id, err)
	}
	return nil
}

// abortJob is the third act: r runs the job, or will in a moment.
func (s *stage) abortJob(ctx context.Context, r *runner, id int64) error {
	s.screen.act("Abort: when the UPDATE returns, no further row is committed")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.abort(wait, r, id); err != nil {
		return err
	}
	return s.resume(ctx, wait, id)
}

// abort stops the job after a quarter of the channels, and watches whether anything comes
// after, until the runner is gone.
func (s *stage) abort(wait context.Context, r *runner, id int64) error {
	a := &AbortReport{Job: id}
	s.report.Abort = a
	l, err := s.untilQuarter(wait, r, id)
	if err != nil {
		return err
	}
	statement := render(queries.abort, map[string]string{"id": strconv.FormatInt(id, 10)})
	s.screen.sql(statement)
	var status string
	var at *string
	sent := time.Now()
	if err := s.pool.QueryRow(wait, statement).Scan(&status, &at, &a.ChunksBefore, &a.RowsReturned); err != nil {
		return fmt.Errorf("abort job %d: %w", id, err)
	}
	a.LatencyMS = inMillis(time.Since(sent))
	seen, err := verify(wait, s.pool, id, true)
	if err != nil {
		return err
	}
	complaint := r.wantExit(wait, exitAborted)
	if err := s.untilSettled(wait, id); err != nil {
		return errors.Join(complaint, err)
	}
	a.RunnerStoppedMS, a.RunnerExit = inMillis(r.at.Sub(sent)), r.cmd.ProcessState.ExitCode()
	after, err := verify(wait, s.pool, id, true)
	if err != nil {
		return err
	}
	if at != nil {
		a.CursorReturned = *at
	}
	a.InMiddle = status == aborted && a.ChunksBefore > 0 && a.CursorReturned != "" && a.CursorReturned != l.Bound
	a.CursorAfter, a.RowsSeen, a.RowsAfter = after.Cursor, seen.Rows, after.Rows
	a.Exact = seen.exact() && after.exact()
	a.Still = seen.Cursor == a.CursorReturned && after.Cursor == a.CursorReturned &&
		seen.Rows == a.RowsReturned && after.Rows == a.RowsReturned
	if !a.InMiddle {
		return fmt.Errorf("the abort did not hit job %d in its middle", id)
	}
	if complaint != nil {
		return complaint
	}
	s.screen.say("it returned after %s with %s rows; %s ended %s after it was sent; now there are %s rows", millis(a.LatencyMS), grouped(a.RowsReturned), r.name, millis(a.RunnerStoppedMS), grouped(a.RowsAfter))
	return nil
}

// resume has the aborted job finished from its cursor.
func (s *stage) resume(ctx, wait context.Context, id int64) error {
	statement := render(queries.resume, map[string]string{"id": strconv.FormatInt(id, 10)})
	s.screen.sql(statement)
	if _, err := s.pool.Exec(wait, statement); err != nil {
		return fmt.Errorf("resume job %d: %w", id, err)
	}
	if err := s.unlimit(wait, id); err != nil {
		return err
	}
	r, err := s.start(ctx, "run", "--quiet")
	if err != nil {
		return err
	}
	if err := r.wantExit(wait, 0); err != nil {
		return err
	}
	l, err := s.look(wait, id)
	if err != nil {
		return err
	}
	s.report.Abort.ReadAgain = l.ChannelsRead - s.report.Channels
	s.screen.say("job %d went on from its cursor and is %s: %s rows, %s channels read twice", id, l.Status, grouped(l.RowsWritten), grouped(s.report.Abort.ReadAgain))
	return nil
}

// runOthers is the fourth act: audiences, and a job that waits for its time.
func (s *stage) runOthers(ctx context.Context) error {
	s.screen.act("Audiences and times: near a place, on some platforms, in three seconds")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	city, err := cities.Find(questionCity, "")
	if err != nil {
		return err
	}
	ids, err := s.enqueue(wait, render(queries.enqueueOthers, map[string]string{
		"question": "'Dentist in " + city.Name + "?'", "radius": strconv.Itoa(questionM),
		"latitude": fmt.Sprint(city.Latitude), "longitude": fmt.Sprint(city.Longitude),
	}))
	if err != nil {
		return err
	}
	r, err := s.start(ctx, "daemon")
	if err != nil {
		return err
	}
	for i, id := range ids {
		l, err := s.untilFinished(wait, r, id)
		if err != nil {
			return err
		}
		late := ""
		if i == len(ids)-1 && l.StartedAt != nil {
			s.report.Schedule = &ScheduleReport{Job: id, LateMS: inMillis(l.StartedAt.Sub(l.ScheduleAt))}
			late = ", begun " + millis(s.report.Schedule.LateMS) + " after its time"
		}
		s.screen.say("job %d is %s: %s rows%s", id, l.Status, grouped(l.RowsWritten), late)
	}
	return r.stop(wait)
}

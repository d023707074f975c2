package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
)

// enqueueJob is the first act: channels, and one job for all of them.
func (s *stage) enqueueJob(ctx context.Context) error {
	s.screen.act("A job: one INSERT, for every channel")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	began := time.Now()
	if err := s.generate(wait); err != nil {
		return err
	}
	s.report.GenerateMS = inMillis(time.Since(began))
	s.screen.bullet("%s channels generated in %s, one in a hundred of them inactive", grouped(s.Channels), millis(s.report.GenerateMS))
	return s.enqueue(wait, s.rate())
}

func (s *stage) generate(ctx context.Context) error {
	store, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return err
	}
	s.report.Channels = s.Channels
	_, err = cities.Generate(ctx, store, s.pool, s.Channels, cities.Options{Seed: 1, Timeout: 2 * s.patience()})
	return err
}

// enqueue writes the job, with a limit of rows per second.
func (s *stage) enqueue(ctx context.Context, rate string) error {
	statement := render(queries.enqueue, map[string]string{"rate": rate})
	s.screen.sql(statement)
	if err := s.pool.QueryRow(ctx, statement).Scan(&s.job); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return nil
}

// killRunner is the second act: a runner is killed during the job, and the next runner
// continues.
func (s *stage) killRunner(ctx context.Context) error {
	s.screen.act("Crash: a runner is killed during the job, another continues from the cursor")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	k := &killReport{}
	s.report.Kill = k
	victim, err := s.start(ctx, "run", "--quiet")
	if err != nil {
		return err
	}
	if _, err := s.untilRead(wait, victim, s.hitAt); err != nil {
		return err
	}
	killed, err := victim.kill(wait)
	if err != nil {
		return err
	}
	left, err := s.settled(wait)
	if err != nil {
		return err
	}
	k.ChannelsRead, k.Chunks = left.ChannelsRead, left.Chunks
	if k.InMiddle = killed && left.Status == running && left.inMiddle(); !k.InMiddle {
		return fmt.Errorf("kill -9 did not hit the job in its middle: it is %s", left.Status)
	}
	v, err := verify(wait, s.pool, s.job, true)
	if err != nil {
		return err
	}
	k.Exact = v.exact()
	s.screen.bullet("%s: %s in chunk %s; up to the cursor there are %s", s.screen.paint(red, "kill -9"), victim.name, grouped(k.Chunks+1), v)
	began := time.Now()
	if s.heir, err = s.start(ctx, "run", "--quiet", "--wait", (2 * s.patience()).String()); err != nil {
		return err
	}
	if _, err = s.until(wait, s.heir, "continues", func(l snapshot) bool {
		return l.Fence > left.Fence &&
			l.Chunks > left.Chunks
	}); err != nil {
		return err
	}
	k.TakeOverMS = inMillis(time.Since(began))
	s.screen.bullet("%s took over %s after its start", s.heir.name, millis(k.TakeOverMS))
	return nil
}

// abortJob is the third act: an UPDATE stops the job, and after belfry.resume a runner finishes it.
func (s *stage) abortJob(ctx context.Context) error {
	s.screen.act("Abort: when the UPDATE returns, no further row is committed")
	wait, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.abort(wait); err != nil {
		return err
	}
	return s.resume(ctx, wait)
}

// abort stops the job during its walk, and checks for later rows until the runner has ended.
func (s *stage) abort(wait context.Context) error {
	a := &abortReport{}
	s.report.Abort = a
	l, err := s.untilRead(wait, s.heir, 2*s.hitAt)
	if err != nil {
		return err
	}
	statement := render(queries.abort, map[string]string{"id": strconv.FormatInt(s.job, 10)})
	s.screen.sql(statement)
	var status string
	var cursor *string
	sent := time.Now()
	if err := s.pool.QueryRow(wait, statement).Scan(&status, &cursor, &a.Rows); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	a.LatencyMS = inMillis(time.Since(sent))
	seen, err := verify(wait, s.pool, s.job, true)
	if err != nil {
		return err
	}
	complaint := s.heir.wantExit(wait, exitAborted)
	if _, err := s.settled(wait); err != nil {
		return errors.Join(complaint, err)
	}
	a.RunnerStoppedMS = inMillis(s.heir.at.Sub(sent))
	after, err := verify(wait, s.pool, s.job, true)
	if err != nil {
		return err
	}
	a.RowsAfter, a.Exact = after.Rows, seen.exact() && after.exact()
	if a.InMiddle = status == aborted && cursor != nil && *cursor != l.Bound; !a.InMiddle {
		return errors.New("the abort did not hit the job in its middle")
	}
	a.Still = seen.Cursor == *cursor && after.Cursor == *cursor && seen.Rows == a.Rows && after.Rows == a.Rows
	s.screen.bullet("it returned after %s with %s rows; %s ended %s after it was sent; now there are %s rows",
		millis(a.LatencyMS), grouped(a.Rows), s.heir.name, millis(a.RunnerStoppedMS), grouped(a.RowsAfter))
	return complaint
}

// resume finishes the aborted job from its cursor, without a limit.
func (s *stage) resume(ctx, wait context.Context) error {
	statement := render(queries.resume, map[string]string{"id": strconv.FormatInt(s.job, 10)})
	s.screen.sql(statement)
	if _, err := s.pool.Exec(wait, statement); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if _, err := s.pool.Exec(wait, queries.unlimit); err != nil {
		return fmt.Errorf("lift the limit: %w", err)
	}
	r, err := s.start(ctx, "run", "--quiet")
	if err != nil {
		return err
	}
	if err := r.wantExit(wait, 0); err != nil {
		return err
	}
	l, err := s.snapshot(wait)
	if err != nil {
		return err
	}
	s.report.Abort.ReadAgain = l.ChannelsRead - s.report.Channels
	s.screen.bullet("the job continued from its cursor and is %s: %s rows, %s channels read twice", l.Status, grouped(l.RowsWritten),
		grouped(s.report.Abort.ReadAgain))
	return nil
}

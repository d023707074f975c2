package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Run runs the demo, and returns when its runners have ended. The report is valid also with an
// error. An error means that the demo could not continue; a report that is not OK means that a
// guarantee was violated. Cancelling ctx kills the runners and ends the demo, which is not an error
// while its console is open.
func Run(ctx context.Context, config Config) (report Report, err error) {
	if err := config.Validate(); err != nil {
		return report, fmt.Errorf("demo: %w", err)
	}
	began := time.Now()
	s := newStage(config, &report)
	err = report.blame(s.open(ctx))
	if err == nil {
		err = s.perform(ctx)
	}
	if err == nil && report.OK && config.Listen != "" {
		err = report.blame(s.serve(ctx))
	} else if ctx.Err() != nil {
		err = context.Cause(ctx) // errors after it are consequences
	}
	err = errors.Join(err, report.blame(s.close(ctx)))
	report.ElapsedMS = inMillis(time.Since(began))
	return report, err
}

func newStage(config Config, report *Report) *stage {
	*report = Report{Problems: []string{}, Jobs: []jobReport{}, Database: databaseReport{Name: config.Database}}
	return &stage{
		Config: config, hitAt: config.Channels / 4, report: report,
		screen: &screen{w: config.Screen, color: config.Color},
	}
}

// perform runs the acts and verifies their results, also after an act that failed.
func (s *stage) perform(ctx context.Context) error {
	err := s.report.blame(s.play(ctx))
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, s.report.blame(s.prove(ctx)))
}

// play runs the acts.
func (s *stage) play(ctx context.Context) error {
	title := fmt.Sprintf("belfry demo: %s channels, PostgreSQL %s, database %s", grouped(s.Channels), s.report.Database.Version, s.Database)
	s.screen.line(s.screen.paint(bold, strings.Join(wrap(title, screenWidth), "\n")))
	for _, act := range []func(context.Context) error{s.enqueueJob, s.killRunner, s.abortJob, s.deliverMessages} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prove verifies the job, and shows the table and the result.
func (s *stage) prove(ctx context.Context) error {
	wait, cancel := s.deadline(ctx)
	defer cancel()
	s.screen.act("The check, by SQL that shares only the tables with belfry's code")
	if s.job != 0 {
		j, err := verify(wait, s.pool, s.job, false)
		if err != nil {
			return err
		}
		s.report.Jobs = []jobReport{j}
	}
	s.report.judge()
	s.screen.line("")
	s.screen.line(s.report.Table())
	if s.report.OK {
		s.screen.line(s.screen.paint(green, "OK") + ": the job is PROCESSED, no row missing or duplicate, none after the abort")
		return nil
	}
	s.screen.line(s.screen.paint(red, "NOT OK") + ":")
	for _, problem := range s.report.Problems {
		s.screen.bullet("%s", problem)
	}
	return nil
}

// deadline limits the waits of one act.
func (s *stage) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := 2 * s.patience()
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
}

package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// campaigns is the number of jobs of the history besides the demo's own (ServeCampaign).
const campaigns = 5

// makeHistory fills the hour before the console opens. A daemon runs and delivers campaigns, one of which is
// aborted and corrected, and ends; then all jobs are moved into the past, an hour in all. So their results,
// failures and events are real, and their times are not. The samples are made again from the messages and
// the attempts.
func (s *stage) makeHistory(ctx context.Context) error {
	wait, cancel := s.deadline(ctx)
	defer cancel()
	daemon, err := s.start(ctx, "daemon")
	if err != nil {
		return err
	}
	for n := range campaigns {
		var id int64
		var wrong bool
		err := scan(wait, s.pool, queries.serveCampaign, pgx.StrictNamedArgs{"n": n, "channels": s.Channels}, &id, &wrong)
		if err == nil && wrong {
			err = s.correct(wait, id, abortAfter/4, correctAfter/6)
		}
		if err != nil {
			return err
		}
		err = s.await(wait, daemon, "all messages are delivered", func(ctx context.Context) (done bool, err error) {
			err = scan(ctx, s.pool, queries.allDelivered, nil, &done)
			return done, err
		})
		if err != nil {
			return err
		}
	}
	if err := daemon.stop(wait); err != nil {
		return err
	}
	if _, err := s.pool.Exec(wait, queries.serveHistory); err != nil {
		return fmt.Errorf("move the jobs into the past: %w", err)
	}
	s.screen.bullet("%d more jobs, one of them stopped and corrected; their times were moved, to fill the last hour", campaigns)
	return nil
}

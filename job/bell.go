package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Run is the daemon: RunDue at every ring of the bell until ctx is cancelled (a
// soft stop, see RunDue) or StopNow. The bell rings every PollInterval, when a look
// every WatchInterval finds a run that lost its connection, and, when Config.Listen
// is set, when the database says that a job is due. While the
// database does not answer, Run warns and tries again at the next ring. It returns
// nil after a stop, and only after everything it started has ended.
func (r *Runner) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ring, watch := make(chan struct{}, 1), make(chan struct{}, 1)
	ticks, err := r.tick(ctx, ring, watch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.Shutdown()) }()
	if r.config.Listen {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.listen(ctx, ring)
		}()
		defer func() { cancel(); <-ended }()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.stopped:
			return nil
		case <-watch:
			if gone, err := r.orphaned(ctx); err != nil || !gone {
				continue // the poll says what is wrong
			}
		case <-ring:
		}
		if _, err := r.RunDue(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn().Err(err).Msg("run of due jobs failed; will try again")
		}
	}
}

// rung asks for a look at the jobs; asking twice before the look is asking once.
func rung(ring chan<- struct{}) {
	select {
	case ring <- struct{}{}:
	default:
	}
}

// tick rings every PollInterval, at once for the first time, and watch every
// WatchInterval.
func (r *Runner) tick(ctx context.Context, ring, watch chan<- struct{}) (gocron.Scheduler, error) {
	ticks, err := gocron.NewScheduler()
	if err != nil {
		return nil, fmt.Errorf("start ticks: %w", err)
	}
	for _, tick := range []struct {
		every time.Duration
		ring  chan<- struct{}
	}{{r.config.PollInterval, ring}, {r.config.WatchInterval, watch}} {
		_, err = ticks.NewJob(gocron.DurationJob(tick.every), gocron.NewTask(func() { rung(tick.ring) }),
			gocron.WithContext(ctx), gocron.WithStartAt(gocron.WithStartImmediately()))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start ticks: %w", err), ticks.Shutdown())
		}
	}
	ticks.Start()
	return ticks, nil
}

// listen rings when the database notifies, and after every reconnect, because
// what was notified meanwhile is lost.
func (r *Runner) listen(ctx context.Context, ring chan<- struct{}) {
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, ring)
		if ctx.Err() != nil {
			return
		}
		r.log.Warn().Err(err).Msg("not listening for hints; polling goes on")
		timer := time.NewTimer(max(r.config.PollInterval, time.Second))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (r *Runner) listenOnce(ctx context.Context, ring chan<- struct{}) error {
	config := r.pool.Config().ConnConfig
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { rung(ring) }
	start, cancel := context.WithTimeout(ctx, r.config.StatementTimeout)
	defer cancel()
	if prepare := r.pool.Config().BeforeConnect; prepare != nil { // a rotating password, say
		if err := prepare(start, config); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(start, config)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = conn.Close(end) // nothing is lost with it
	}()
	if _, err := conn.Exec(start, queries.SQL("BellListen")); err != nil {
		return err
	}
	rung(ring)
	for {
		// A silent half-open connection costs only the hint: polling finds the job.
		if err := conn.PgConn().WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

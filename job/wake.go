package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// restAtMost is how long a daemon that listens asks the database nothing while nothing runs
// or is due. Hints end the rest; what committed without one waits for its end.
const restAtMost = 5 * time.Second

// channel is notified by the database when a job is due, now or later, or runs.
const channel = "belfry_jobs"

// Run is the daemon: RunDue at once, and whenever there is something to do, until ctx is
// cancelled (a soft stop, see RunDue) or StopNow. While any job is RUNNING or due it does
// so every PollInterval, and when a look every WatchInterval finds a run that lost its
// connection. While none is, it asks only whether that has changed: when the database says
// so, if Config.Listen is set, when a job falls due that is known, and from time to time.
// While the database does not answer, Run tries again, and its Outage says so. It returns nil after a
// stop, and only after everything it started has ended.
func (r *Runner) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hint, poll, watch := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	var ears *lifecycle.Listener
	if r.config.Listen {
		ears = lifecycle.NewListener(r.pool, channel, r.config.StatementTimeout, func() { ask(hint); r.hint() }, r.outage, r.log)
		var listening sync.WaitGroup
		listening.Go(func() { ears.Run(ctx) })
		defer func() { cancel(); listening.Wait() }()
	}
	r.ears.Store(ears)
	ticks, err := r.tick(ctx, poll, watch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.Shutdown()) }()
	resting, until := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.stop.Done():
			return nil
		case <-watch:
			if resting {
				continue // there was no run whose end could be missed
			}
			if gone, err := r.lostConnection(ctx); err != nil || !gone {
				continue // the poll logs the error
			}
		case <-poll:
			if resting && time.Now().Before(until) && r.Listening() {
				continue
			}
			if resting {
				if until, resting = r.idle(ctx); resting {
					continue
				}
			}
		case <-hint:
		}
		began := time.Now()
		_, seen, err := r.runDue(ctx)
		if ctx.Err() == nil && !r.outage.Observe(began, err) {
			r.log.Warn().Err(err).Msg("run of due jobs failed; will try again")
		}
		until, resting = seen.rest(time.Now())
		resting = resting && err == nil
	}
}

// Listening reports whether Run receives the database's notifications.
func (r *Runner) Listening() bool { return r.ears.Load().Listening() }

// idle looks whether nothing runs or is due, with one statement and no transaction: a
// daemon does little else all night. A database that does not answer is not idle.
func (r *Runner) idle(ctx context.Context) (until time.Time, idle bool) {
	ctx, cancel := context.WithTimeout(ctx, r.config.StatementTimeout)
	defer cancel()
	seen, err := r.readSnapshot(ctx, r.pool)
	if err != nil {
		return time.Time{}, false
	}
	return seen.rest(time.Now())
}

// rest reports whether no job runs or is due, and the time until which a listening daemon may rely on it.
func (l snapshot) rest(now time.Time) (until time.Time, idle bool) {
	if l.running || l.seconds != nil && *l.seconds <= 0 && l.halt.At == nil { // a due job has no seconds left
		return time.Time{}, false
	}
	rest := restAtMost.Seconds()
	if l.seconds != nil && *l.seconds > 0 {
		rest = min(rest, *l.seconds)
	}
	return now.Add(time.Duration(rest * float64(time.Second))), true
}

// ask requests a poll. Requests before the poll are merged.
func ask(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tick asks for a poll every PollInterval, at once for the first time, and for a watch
// every WatchInterval.
func (r *Runner) tick(ctx context.Context, poll, watch chan<- struct{}) (gocron.Scheduler, error) {
	ticks, err := gocron.NewScheduler()
	if err != nil {
		return nil, fmt.Errorf("start ticks: %w", err)
	}
	for _, tick := range []struct {
		every time.Duration
		asked chan<- struct{}
	}{{r.config.PollInterval, poll}, {r.config.WatchInterval, watch}} {
		_, err = ticks.NewJob(gocron.DurationJob(tick.every), gocron.NewTask(func() { ask(tick.asked) }),
			gocron.WithContext(ctx), gocron.WithStartAt(gocron.WithStartImmediately()))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start ticks: %w", err), ticks.Shutdown())
		}
	}
	ticks.Start()
	return ticks, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// unsentShown is of how many jobs it is said why their messages wait.
const unsentShown = 10

// unsentMessages is the JSON of what is not sent of one job, and why.
type unsentMessages struct {
	JobID    int64  `json:"job_id"`
	Messages int64  `json:"messages"`
	Why      string `json:"why"`
	Remedy   string `json:"remedy"` // "": nothing is to be done
}

// oneRun is one `belfry run`.
type oneRun struct {
	*app

	settings settings.Settings
	db       *database
	runner   *job.Runner
	quiet    bool
	show     *progress

	fired    schedule.Fired
	problems []string // of schedules
	outcome  job.Outcome
	expired  []job.Job
	givenUp  []job.Job    // FAILED without a run of this one's
	paused   []job.Lane   // lanes with due jobs that nobody may run
	lost     []string     // whose messages find no address
	sent     *relay.Stats // nil: nothing was to be delivered
	copied   error        // the database is not adopted, so that nothing was delivered
	halted   error        // everything is
	slow     error        // the database was too slow, so that nothing was delivered
	unsent   []unsentMessages
}

// runReport is the JSON of `belfry run`.
type runReport struct {
	At          time.Time        `json:"at"`      // when the run ended
	Jobs        []job.Job        `json:"jobs"`    // as they were when their run ended
	Held        []job.Job        `json:"held"`    // RUNNING under other runners
	Expired     []job.Job        `json:"expired"` // did not start in time
	Fired       []occurrence     `json:"fired"`   // schedules
	Problems    []string         `json:"problems"`
	Delivery    *relay.Stats     `json:"delivery"` // null without --deliver
	Unsent      []unsentMessages `json:"unsent"`   // jobs whose messages wait, the ten most urgent
	Halt        job.Halt         `json:"halt"`     // everything is, where halted_at is set
	Interrupted bool             `json:"interrupted"`
}

// occurrence is the JSON of one firing.
type occurrence struct {
	Schedule string    `json:"schedule"`
	At       time.Time `json:"at"`
	Jobs     []int64   `json:"jobs"`
}

func (r *oneRun) report() runReport {
	fired := make([]occurrence, 0, len(r.fired.Occurrences))
	for _, o := range r.fired.Occurrences {
		fired = append(fired, occurrence{o.Schedule, o.At, emptyList(o.Jobs)})
	}
	return runReport{
		r.now().UTC(), emptyList(append(r.outcome.Jobs, r.givenUp...)), emptyList(r.outcome.Held), emptyList(r.expired), fired, emptyList(r.problems), r.sent, emptyList(r.unsent), r.outcome.Halt, r.outcome.Interrupted,
	}
}

// do fires what is due, runs what is due, and looks at what could not be run.
func (r *oneRun) do(ctx context.Context, wait time.Duration) error {
	if err := r.fire(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if err := r.runDue(ctx, wait); err != nil {
		return err
	}
	r.halted = r.outcome.Halt.Err()
	if r.outcome.Interrupted {
		return nil
	}
	store := job.NewStore(r.db.Pool)
	var err error
	if r.expired, err = jobsOf(ctx, store, r.outcome.Expired); err != nil {
		return err
	}
	if r.givenUp, err = jobsOf(ctx, store, r.outcome.GivenUp); err != nil {
		return err
	}
	if r.lost, err = withoutAddress(ctx, r.db, r.settings, r.outcome.Jobs); err != nil {
		return err
	}
	lanes, err := store.Lanes(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		serves := len(r.settings.Runner.Lanes) == 0 || slices.Contains(r.settings.Runner.Lanes, l.Name)
		if serves && l.PausedAt != nil && l.Due > 0 {
			r.paused = append(r.paused, l)
		}
	}
	return nil
}

// deliver sends what is due, once.
func (r *oneRun) deliver(ctx context.Context, logger zerolog.Logger) (err error) {
	if ctx.Err() != nil {
		r.outcome.Interrupted = true
		return nil
	}
	if !r.quiet && r.show.width != nil && r.settings.QuietLog() { // the lines of a terminal count them
		logger = logger.Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, message string) {
			if message == relay.DeadLetter {
				e.Discard()
			}
		}))
	}
	collect(gcRelay)
	c, err := node.NewDrain(r.settings, r.db.Pool, nil, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	defer r.stopHard(c.StopNow)()
	end := func() {}
	if !r.quiet {
		end = r.follow(ctx, r.db, r.show, nil, c.Stats)
	}
	stats, err := c.Drain(ctx)
	end()
	r.sent = &stats
	if ctx.Err() != nil {
		r.outcome.Interrupted = true
		return nil
	}
	if errors.Is(err, outbox.ErrNotAdopted) { // what was run is told all the same
		r.copied, err = err, nil
	}
	if errors.Is(err, job.ErrHalted) {
		r.halted, err = err, nil
	}
	if errors.Is(err, relay.ErrSlowStart) {
		r.slow, err = err, nil
	}
	return err
}

// look finds out what is not sent, and why. That it cannot be told is no failure of the run.
func (r *oneRun) look(ctx context.Context) {
	if r.slow != nil {
		return // it would be as slow
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementDeadline)
	defer cancel()
	c, err := admin.CarriersOf(ctx, r.env(r.settings, r.db))
	var list []delivery.Unsent
	if err == nil {
		list, err = delivery.UnsentJobs(ctx, r.db.Pool, nil, unsentShown)
	}
	if err != nil {
		r.remark("what is not sent cannot be told: %s", err)
		return
	}
	for _, u := range list {
		still := c.Standstill(u, r.now())
		r.unsent = append(r.unsent, unsentMessages{u.JobID, u.Waiting, still.Why, still.Remedy})
	}
}

// jobsOf reads jobs that may have been pruned meanwhile.
func jobsOf(ctx context.Context, store *job.Store, ids []int64) (list []job.Job, err error) {
	for _, id := range ids {
		j, err := store.Get(ctx, id)
		if errors.Is(err, job.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, j)
	}
	return list, nil
}

// fire brings the configuration's schedules into the database and fires what is due.
// The error is the database's.
func (r *oneRun) fire(ctx context.Context) error {
	_, err := node.SyncSchedules(ctx, r.db.Pool, r.settings.Schedules, r.runner.Name())
	for _, one := range config.Flatten(err) {
		if node.Unreachable(one) {
			return one
		}
		r.problems = append(r.problems, one.Error())
	}
	firer := schedule.NewFirer(r.db.Pool, schedule.WithName(r.runner.Name())) // what it would log is said here
	r.fired, err = firer.FireDue(ctx)
	for _, f := range r.fired.Failed {
		r.problems = append(r.problems, fmt.Sprintf("schedule %s: %s", f.Schedule, f.Err))
	}
	if !r.quiet {
		for _, o := range r.fired.Occurrences {
			r.remark("schedule %s fired for %s: %s", o.Schedule, r.page().Clock(o.At), admin.JobList(o.Jobs))
		}
	}
	return err
}

// runDue runs what is due. While other runners hold the lanes and nothing could
// be run, it looks again every watch or poll interval until wait is over.
func (r *oneRun) runDue(ctx context.Context, wait time.Duration) (err error) {
	patience := time.NewTimer(wait)
	defer patience.Stop()
	look := time.NewTicker(min(r.settings.Runner.PollInterval, r.settings.Runner.WatchInterval))
	defer look.Stop()
	for {
		r.outcome, err = r.runner.RunDue(ctx)
		if err != nil || r.outcome.Interrupted || len(r.outcome.Jobs) > 0 || len(r.outcome.Held) == 0 || wait == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			r.outcome.Interrupted = true
			return nil
		}
	}
}

// judge decides the exit code and says why.
func (r *oneRun) judge() error {
	if !r.quiet {
		r.remarkOnOthers()
	}
	var failed, aborted []string
	for _, j := range append(slices.Clone(r.outcome.Jobs), r.givenUp...) {
		switch j.Status {
		case job.Failed:
			failed = append(failed, fmt.Sprintf("job %d FAILED: %s", j.ID, printer.OneLine(j.LastError, 500)))
		case job.Aborted:
			aborted = append(aborted, fmt.Sprintf("job %d was ABORTED", j.ID))
		case job.Expired, job.Pending, job.Running, job.Processed:
		}
	}
	if r.sent != nil {
		for _, id := range r.sent.Aborted {
			aborted = append(aborted, fmt.Sprintf("job %d was ABORTED, a sender failed too many of its messages in a row: `belfry jobs show %[1]d`", id))
		}
	}
	failed = append(failed, r.problems...)
	switch {
	case len(failed) > 0:
		return &exitError{codeFailure, errors.New(strings.Join(append(failed, aborted...), "\n  "))}
	case r.outcome.Interrupted:
		return &exitError{codeFailure, fmt.Errorf("%w; run again to go on", errInterrupted)}
	case len(aborted) > 0:
		return &exitError{codeAborted, errors.New(strings.Join(aborted, "\n  "))}
	case r.halted != nil:
		return &exitError{codeHeld, fmt.Errorf("%w\n  `belfry unhalt` ends it", r.halted)}
	case r.copied != nil:
		return &exitError{codeConfiguration, fmt.Errorf("%w\n  `belfry adopt` shows what would leave, and lets it", r.copied)}
	case r.slow != nil:
		return &exitError{codeUnavailable, fmt.Errorf("nothing was delivered: %w; run again, or raise delivery.statement_timeout", r.slow)}
	case len(r.outcome.Jobs) == 0 && len(r.outcome.Held) > 0:
		return &exitError{codeHeld, errors.New(heldBy(r.outcome.Held, r.settings.Runner.StaleAfter, r.db))}
	case len(r.outcome.Jobs) == 0 && !r.quiet && r.show.width != nil && r.sent == nil: // cron mails what is printed
		r.remark("nothing is due")
	}
	return nil
}

// remarkOnOthers says what was not run, and was not held by another runner either.
func (r *oneRun) remarkOnOthers() {
	for _, j := range r.expired {
		r.remark("job %d (%s) EXPIRED: it did not start before %s%s", j.ID, j.Type, r.page().ClockOr(j.ExpiresAt, "its time"), admin.NextStep(j))
	}
	for _, line := range r.lost {
		r.remark("%s", line)
	}
	if r.sent != nil && r.copied == nil { // of a copy follows what is not sent
		r.remark("%s", delivered(*r.sent))
	}
	told := "" // the remedy
	for _, u := range r.unsent {
		text := fmt.Sprintf("%s of job %d not sent: %s", printer.Counted(u.Messages, "message"), u.JobID, u.Why)
		if u.Remedy != "" && u.Remedy != told { // once is enough
			text += "\n  -> " + u.Remedy
		}
		told = u.Remedy
		r.remark("%s", text)
	}
	for _, l := range r.paused {
		reason := ""
		if l.PauseReason != "" {
			reason = ": " + printer.OneLine(l.PauseReason, 200)
		}
		r.remark("lane %s is paused by %s%s; %s due, `belfry lanes resume %s` opens it", l.Name, l.PausedBy, reason, printer.CountedTo(l.Due, job.LaneCounts, "job"), l.Name)
	}
}

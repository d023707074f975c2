package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/schedules"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/samples"
)

// unsentShown is the number of jobs whose waiting messages are explained.
const unsentShown = 10

// unsentMessages is the JSON of the waiting messages of one job, and of the reason.
type unsentMessages struct {
	JobID    int64     `json:"job_id"`
	Messages int64     `json:"messages"`
	Why      text.Line `json:"why"`
	Remedy   text.Line `json:"remedy"` // may be empty
}

// oneRun is the state of one `belfry run`.
type oneRun struct {
	*runOptions

	settings settings.Settings
	db       *database
	runner   *job.Runner
	show     *progress
	samples  *samples.Recorder

	fired    schedule.Fired
	problems []string // of schedules
	outcome  job.Outcome
	expired  []job.Job
	givenUp  []job.Job    // FAILED without a run by this process
	paused   []job.Lane   // lanes with due jobs
	lost     []string     // remarks about messages without an address
	sent     *relay.Stats // nil without --deliver
	copied   error        // the database is not adopted, so that no message was sent
	halted   error        // belfry is halted
	slow     error        // the database was too slow, so that no message was sent
	unsent   []unsentMessages
}

// runReport is the JSON of `belfry run`.
type runReport struct {
	At          time.Time        `json:"at"`      // when the run ended
	Jobs        []job.Job        `json:"jobs"`    // at the end of their run
	Held        []job.Job        `json:"held"`    // RUNNING under other runners
	Expired     []job.Job        `json:"expired"` // did not start in time
	Fired       []occurrence     `json:"fired"`   // schedules
	Problems    []string         `json:"problems"`
	Delivery    *relay.Stats     `json:"delivery"` // null without --deliver
	Unsent      []unsentMessages `json:"unsent"`   // jobs whose messages wait, the ten most urgent
	Halt        job.Halt         `json:"halt"`     // belfry is halted if halted_at is set
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
		r.now().UTC(), emptyList(append(r.outcome.Jobs, r.givenUp...)), emptyList(r.outcome.Held), emptyList(r.expired), fired,
		emptyList(r.problems), r.sent, emptyList(r.unsent), r.outcome.Halt, r.outcome.Interrupted,
	}
}

// walk fires the due schedules, runs the due jobs, and finds the jobs that could not run.
func (r *oneRun) walk(ctx context.Context, wait time.Duration) error {
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
	if r.expired, err = store.Summaries(ctx, r.outcome.Expired); err != nil {
		return err
	}
	if r.givenUp, err = store.Summaries(ctx, r.outcome.GivenUp); err != nil {
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

// drain sends the due messages once.
func (r *oneRun) drain(ctx context.Context, logger zerolog.Logger) (err error) {
	if ctx.Err() != nil {
		r.outcome.Interrupted = true
		return nil
	}
	if !r.quiet && r.show.OnTerminal() && r.settings.QuietLog() { // the live line counts them
		logger = logger.Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, message string) {
			if message == relay.DeadLetter {
				e.Discard()
			}
		}))
	}
	collect(gcRelay)
	parts, err := r.settings.Open(false, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	c, err := node.NewRelay(node.Options{Config: r.settings.Node(), Pool: r.db.Pool, Log: logger, Senders: parts.Senders, Samples: r.samples})
	if err != nil {
		return err
	}
	defer r.onHardStop(c.StopNow)()
	end := func() {}
	if !r.quiet {
		end = follow(ctx, r.db, r.show, nil, c.Stats)
	}
	stats, err := c.Drain(ctx)
	end()
	r.sent = &stats
	if ctx.Err() != nil {
		r.outcome.Interrupted = true
		return nil
	}
	if errors.Is(err, outbox.ErrNotAdopted) { // the jobs that ran are reported all the same
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

// findUnsent finds the jobs with waiting messages, and the reasons. Its error is only a remark.
func (r *oneRun) findUnsent(ctx context.Context) {
	if r.slow != nil {
		return // the query would be as slow
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementDeadline)
	defer cancel()
	var c delivery.Carriers
	var list []delivery.Unsent
	env, err := r.env(r.settings, r.db, job.NewStore(r.db.Pool))
	if err == nil {
		c, err = delivery.CarriersOf(ctx, env)
	}
	if err == nil {
		list, err = delivery.UnsentJobs(ctx, r.db.Pool, nil, unsentShown)
	}
	if err != nil {
		r.remark("cannot find out which messages wait: %s", err)
		return
	}
	for _, u := range list {
		still := c.Standstill(u, r.now())
		r.unsent = append(r.unsent, unsentMessages{u.JobID, u.Waiting, still.Why, still.Remedy})
	}
}

// fire stores the configured schedules in the database and fires the due ones. It returns only errors of
// the database; problems of schedules are in r.problems.
func (r *oneRun) fire(ctx context.Context) error {
	_, err := node.SyncSchedules(ctx, r.db.Pool, r.settings.Schedules, r.runner.Name())
	for _, one := range keys.Flatten(err) {
		if node.Unreachable(one) {
			return one
		}
		r.problems = append(r.problems, one.Error())
	}
	firer := schedule.NewFirer(r.db.Pool, schedule.WithName(r.runner.Name())) // its problems are reported here
	if r.fired, err = firer.FireDue(ctx); err != nil && !node.Unreachable(err) {
		r.problems, err = append(r.problems, err.Error()), nil
	}
	for _, f := range r.fired.Failed {
		r.problems = append(r.problems, fmt.Sprintf("schedule %s: %s", f.Schedule, f.Err))
	}
	if !r.quiet {
		for _, o := range r.fired.Occurrences {
			r.remark("schedule %s fired for %s: %s", o.Schedule, o.At, schedules.JobList(o.Jobs))
		}
	}
	return err
}

// runDue runs the due jobs. While other runners hold all lanes it tries again at the watch or poll
// interval, until wait is over.
func (r *oneRun) runDue(ctx context.Context, wait time.Duration) (err error) {
	patience := time.NewTimer(wait)
	defer patience.Stop()
	again := time.NewTicker(min(r.settings.Runner.PollInterval, r.settings.Runner.WatchInterval))
	defer again.Stop()
	for {
		r.outcome, err = r.runner.RunDue(ctx)
		if err != nil || r.outcome.Interrupted || len(r.outcome.Jobs) > 0 || len(r.outcome.Held) == 0 || wait == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			r.outcome.Interrupted = true
			return nil
		}
	}
}

// judge returns the error of the run, which decides the exit code.
func (r *oneRun) judge() error {
	if !r.quiet {
		r.remarkOnOthers()
	}
	var failed, aborted []string
	for _, j := range append(slices.Clone(r.outcome.Jobs), r.givenUp...) {
		switch j.Status {
		case job.Failed:
			failed = append(failed, fmt.Sprintf("job %d FAILED: %s", j.ID, text.OneLine(j.LastError, 500)))
		case job.Aborted:
			aborted = append(aborted, fmt.Sprintf("job %d was ABORTED", j.ID))
		case job.Expired, job.Pending, job.Running, job.Processed:
		}
	}
	if r.sent != nil {
		for _, id := range r.sent.Aborted {
			aborted = append(aborted, fmt.Sprintf(
				"job %d was ABORTED, a sender failed too many of its messages in a row: `belfry jobs show %[1]d`", id))
		}
	}
	failed = append(failed, r.problems...)
	switch {
	case len(failed) > 0:
		return &exitError{codeFailure, errors.New(strings.Join(append(failed, aborted...), "\n  "))}
	case r.outcome.Interrupted:
		return &exitError{codeFailure, fmt.Errorf("%w; run again to resume", errInterrupted)}
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
	case len(r.outcome.Jobs) == 0 && !r.quiet && r.show.OnTerminal() && r.sent == nil: // cron mails the output
		r.remark("nothing is due")
	}
	return nil
}

// remarkOnOthers writes remarks about jobs and messages that wait for a reason other than a held lane.
func (r *oneRun) remarkOnOthers() {
	for _, j := range r.expired {
		r.remark("job %d (%s) EXPIRED: it did not start before %s%s", j.ID, j.Type, text.Or(j.ExpiresAt, "its time"), jobs.NextStep(j))
	}
	for _, line := range r.lost {
		r.remark("%s", line)
	}
	if r.sent != nil && r.copied == nil { // an error follows about a copy
		r.remark("%s", delivered(*r.sent))
	}
	shown := "" // the last remedy
	for _, u := range r.unsent {
		r.remark("%s of job %d not sent: %s", text.Counted(u.Messages, "message"), u.JobID, u.Why)
		if remedy := u.Remedy.String(); remedy != "" && remedy != shown {
			r.remark("  -> %s", u.Remedy)
		}
		shown = u.Remedy.String()
	}
	for _, l := range r.paused {
		reason := ""
		if l.PauseReason != "" {
			reason = ": " + text.OneLine(l.PauseReason, 200)
		}
		r.remark("lane %s is paused by %s%s; %s due; %s", l.Name, l.PausedBy, reason, text.CountedTo(l.Due, job.LaneCounts, "job"),
			text.Command("lanes resume", l.Name).To("resume the lane"))
	}
}

package samples

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	// deadline bounds one statement, and so the delay of a stop by it.
	deadline = 3 * time.Second
	// mostWaiting is the maximum number of minutes that wait for the database. The oldest is dropped.
	mostWaiting = 10
)

// Recorder counts the events of one process and stores them once a minute. It is safe for concurrent use.
type Recorder struct {
	add    func(context.Context, []*minute) (clock time.Time, unknown bool, err error)
	log    zerolog.Logger
	outage *job.Outage
	every  time.Duration // a minute

	mu      sync.Mutex
	present *minute

	// These belong to the goroutine of Start.
	waiting []*minute
	ahead   time.Duration // the database's clock is ahead of the process's by it
	failing bool
	dropped int // minutes that were not stored since the last success
}

// New returns a Recorder over pool, which the caller closes. It stores nothing before Start.
func New(pool *pgxpool.Pool, outage *job.Outage, log zerolog.Logger) *Recorder {
	r := &Recorder{outage: outage, log: log, every: time.Minute, present: newMinute(time.Now())}
	r.add = func(ctx context.Context, minutes []*minute) (time.Time, bool, error) { return add(ctx, pool, minutes) }
	return r
}

// Walk returns an observer for one runner (job.WithObserver).
func (r *Recorder) Walk() func(job.Progress) {
	var id, fence, rows int64 // of the present run, and the rows that are counted or older than it
	return func(p job.Progress) {
		if p.Event == job.EventClaimed || p.Event == job.EventResumed {
			id, fence, rows = p.Job.ID, p.Job.Fence, p.Job.RowsWritten
			return
		}
		if p.Job.ID != id || p.Job.Fence != fence {
			return // the rows of another run
		}
		// Rows that a crash of the server took back, and that are written again, were counted.
		more := max(0, p.Job.RowsWritten-rows)
		rows += more
		if more == 0 && p.Elapsed == 0 {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.present.of(Job, strconv.FormatInt(id, 10)).rows += more
		lane := r.present.of(Lane, p.Job.Lane)
		lane.rows += more
		if p.Elapsed > 0 {
			lane.observe(p.Elapsed)
		}
	}
}

// observe counts a duration.
func (f *figures) observe(took time.Duration) {
	if f.took == nil {
		f.took = new(durations)
	}
	f.took.add(took)
}

// Relay returns an observer for a relay with senders of these media by name.
func (r *Recorder) Relay(media map[string]string) outbox.Observer { return relayed{r, media} }

// relayed observes a relay.
type relayed struct {
	*Recorder

	media map[string]string
}

// sender returns the figures of a sender. The caller holds the lock.
func (r relayed) sender(name string) *figures {
	f := r.present.of(Sender, name)
	f.medium = r.media[name]
	return f
}

// Called implements outbox.Observer.
func (r relayed) Called(name string, _ []sender.Result, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sender(name).observe(took)
}

// Recorded implements outbox.Observer.
func (r relayed) Recorded(o outbox.Recording, n int) {
	var sent, failed, dead, deferred int64
	switch o.Recorded {
	case outbox.RecordedSent, outbox.RecordedUnconfirmed:
		sent = int64(n)
	case outbox.RecordedRetried, outbox.RecordedFailedOver:
		failed = int64(n)
	case outbox.RecordedDead:
		failed, dead = int64(n), int64(n)
	case outbox.RecordedDeferred:
		deferred = int64(n)
	case outbox.RecordedAwaiting, outbox.RecordedReturned, outbox.RecordedRefused, outbox.RecordedCancelled, outbox.RecordedLost:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.media[o.Sender]; known {
		f := r.sender(o.Sender)
		f.sent, f.failed, f.deferred = f.sent+sent, f.failed+failed, f.deferred+deferred
	}
	if o.JobID > 0 && sent+dead+deferred > 0 {
		f := r.present.of(Job, strconv.FormatInt(o.JobID, 10))
		f.sent, f.failed, f.deferred = f.sent+sent, f.failed+dead, f.deferred+deferred
	}
}

// Rebuilt implements outbox.Observer.
func (relayed) Rebuilt(outbox.Queue) {}

// Beat implements outbox.Observer.
func (r relayed) Beat(senders []outbox.SenderWork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range senders {
		if s.Waiting > 0 {
			f := r.sender(s.Name)
			f.depth = max(f.depth, int64(s.Waiting))
		}
	}
}

// Start stores each minute until stop is called. Call stop after the end of the runner and the relay: it
// stores the remaining figures, and waits for that for three seconds at most.
func (r *Recorder) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (r *Recorder) run(ctx context.Context) {
	for lifecycle.Pause(ctx, r.untilNext(time.Now())) == nil {
		r.turn(time.Now())
		// Not all processes at once.
		if lifecycle.Pause(ctx, time.Duration(rand.Float64()*float64(r.every)/12)) != nil { //nolint:gosec // no secret
			break
		}
		r.store()
	}
	r.turn(time.Now())
	r.store()
}

// untilNext returns the time until the next minute of the database begins.
func (r *Recorder) untilNext(now time.Time) time.Duration {
	now = now.Add(r.ahead)
	return r.every - now.Sub(now.Truncate(r.every))
}

// turn ends the present minute.
func (r *Recorder) turn(now time.Time) {
	r.mu.Lock()
	m := r.present
	r.present = newMinute(now)
	r.mu.Unlock()
	if len(m.kinds) == 0 {
		return
	}
	m.ended = now
	m.bound()
	if len(r.waiting) == mostWaiting {
		r.waiting = r.waiting[1:]
		r.dropped++
	}
	r.waiting = append(r.waiting, m)
}

// store stores the ended minutes. After an error they wait for the next minute, unless they may be stored.
func (r *Recorder) store() {
	if len(r.waiting) == 0 {
		return
	}
	began := time.Now()
	clock, unknown, err := r.add(context.Background(), r.waiting)
	if !r.outage.Observe(began, err) && err != nil && !r.failing {
		r.log.Warn().Err(err).Msg("samples are not stored")
	}
	if r.failing = err != nil; !r.failing {
		r.ahead = time.Until(clock)
		if r.dropped > 0 {
			r.log.Warn().Int("minutes", r.dropped).Msg("samples were dropped")
		}
		r.waiting, r.dropped = nil, 0
	}
	if unknown && r.failing {
		r.dropped += len(r.waiting)
		r.waiting = nil
	}
}

// add adds minutes to belfry.samples and returns the database's clock. unknown reports that the minutes may
// be stored in spite of the error.
func add(ctx context.Context, pool *pgxpool.Pool, minutes []*minute) (clock time.Time, unknown bool, err error) {
	var kinds, names, media []string
	var ages []float64
	var rows, sent, failed, deferred, depths, p95 []int64
	now := time.Now()
	for _, m := range minutes {
		for kind, subjects := range m.kinds {
			for name, f := range subjects {
				kinds, names, media = append(kinds, string(kind)), append(names, name), append(media, f.medium)
				ages = append(ages, m.age(now).Seconds())
				rows, sent, failed = append(rows, f.rows), append(sent, f.sent), append(failed, f.failed)
				deferred, depths, p95 = append(deferred, f.deferred), append(depths, f.depth), append(p95, f.took.p95())
			}
		}
	}
	err = db.InTx(ctx, pool, db.Options{Limit: deadline}, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, queries.samplesAdd, pgx.StrictNamedArgs{
			"kinds": kinds, "names": names, "ages": ages, "media": media, "rows_written": rows, "sent": sent,
			"failed": failed, "deferred": deferred, "queue_depths": depths, "p95_ms": p95,
		}).Scan(&clock)
		unknown = err == nil // the COMMIT follows
		return err
	})
	return clock, unknown, job.TranslateError(err, job.ErrLocked, "")
}

package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/limit"
)

const (
	// Connections is the number of pool connections that a Relay keeps busy: one for claims, the
	// connections that compose, hand over and settle, and two for maintenance, whose four tasks are
	// short and rarely coincide. With fewer it waits.
	Connections = 1 + composers + handovers + settlers + 2
	// handovers is the number of groups that are handed over concurrently.
	handovers = 2
)

var errTimeout = errors.New("the sender's timeout is over")

// Points at which tests interfere.
const (
	pointClaim       = "claim"     // before each claim
	pointHandOver    = "hand over" // before a hand-over is recorded
	pointRecheck     = "recheck"   // after it
	pointRechecked   = "rechecked" // after the recheck, before the calls
	pointSettle      = "settle"    // before each COMMIT of outcomes
	pointSettled     = "settled"   // after it
	pointMaintenance = "maintenance"
	pointPush        = "push" // after the COMMIT of a push, before the carrier has it
)

// Relay delivers messages. Any number of relays can work on one database. One Run or Drain may run at a
// time; all other methods are safe for concurrent use.
type Relay struct {
	name      string
	ledger    *outbox.Ledger
	composer  Composer
	queues    []*queue // in the order of the configuration
	log       zerolog.Logger
	outage    *job.Outage
	observers []outbox.Observer
	// mediaBySender and the senders' names never change.
	mediaBySender map[string]string
	random        func() float64
	at            func(ctx context.Context, point string) error

	config    atomic.Pointer[Config]
	transport outbox.Transport // of the present run
	broker    outbox.Broker    // nil: PostgreSQL is the transport
	dispatch  *dispatcher      // of the present run, with a carrier
	requeue   time.Duration
	credits   *credits
	inflight  *inflight
	content   content
	outcomes  *batcher
	tally     tally
	handing   chan struct{}  // one for each group that is being handed over
	groups    sync.WaitGroup // that are handed over or called
	running   atomic.Bool
	draining  atomic.Bool
	stopping  atomic.Bool
	capped    atomic.Int64 // in a drain, the longest wait under a cap since nothing was due
	searches  atomic.Int32 // that have not been made once
	suspects  chan *probe  // jobs of which a sample is to be tried
	suspected atomic.Int32 // jobs of which one is
	pool      *pgxpool.Pool
	absent    limit.Absent

	listener     atomic.Pointer[lifecycle.Listener]
	rest         time.Duration // at most
	resting      atomic.Bool   // nothing was found for a while
	hints        atomic.Int64  // that arrived
	beatSoon     chan struct{} // size 1: the heartbeat is not to wait
	awaited      atomic.Int64  // until when receipts are expected soon, in Unix nanoseconds
	receiptsSoon chan struct{} // size 1: the search for receipts is not to wait

	blockedBy atomic.Pointer[outbox.Installation] // nil: messages may leave the database
	reminded  time.Time                           // when kept was logged last; the heartbeat's own
	unheard   rate.Sometimes                      // logs that the transport did not accept outcomes

	stop *lifecycle.Stop
}

// Option configures a collaborator of a Relay.
type Option func(*Relay)

// WithLogger sets the logger. Without it a Relay logs nothing.
func WithLogger(log zerolog.Logger) Option { return func(r *Relay) { r.log = log } }

// WithOutage shares the process's Outage, so that an unreachable database is logged once.
func WithOutage(o *job.Outage) Option { return func(r *Relay) { r.outage = o } }

// WithBroker makes a relay receive its messages from a carrier of ids, one for each Run, and take its
// turn as dispatcher. Copies that the carrier has lost are pushed again after requeueAfter;
// RequeueAfter is a good value. The caller closes the broker after the Run. A Drain does not use it.
func WithBroker(b outbox.Broker, requeueAfter time.Duration) Option {
	return func(r *Relay) { r.broker, r.requeue = b, requeueAfter }
}

// New returns a Relay over pool, which the caller closes. It delivers the messages that composer
// composes (*compose.Composer), each through the first of senders whose medium and platforms match.
func New(pool *pgxpool.Pool, composer Composer, config Config, senders []Sender, options ...Option) (*Relay, error) {
	err := config.Validate("delivery")
	configs := make([]SenderConfig, len(senders))
	for i, s := range senders {
		configs[i] = s.SenderConfig
		if s.Client == nil {
			err = errors.Join(err, fmt.Errorf("senders[%d]: has no client", i))
		}
	}
	if err = errors.Join(err, ValidateSenders("senders", configs)); err != nil {
		return nil, err
	}
	if config.Name == "" {
		config.Name = uniqueName()
	}
	r := &Relay{
		name: config.Name, ledger: outbox.NewLedger(pool, config.Name, config.Lease), composer: composer, log: zerolog.Nop(),
		random: randv2.Float64, at: func(context.Context, string) error { return nil },
		inflight: newInflight(), content: content{limit: maxContent}, outcomes: newBatcher(),
		handing: make(chan struct{}, handovers), stop: lifecycle.NewStop(), pool: pool, suspects: make(chan *probe, 64), rest: restAtMost,
		beatSoon: make(chan struct{}, 1), receiptsSoon: make(chan struct{}, 1), unheard: rate.Sometimes{Interval: time.Minute},
	}
	r.ledger.At(config.Place)
	r.config.Store(&config)
	for _, option := range options {
		option(r)
	}
	if r.outage == nil {
		r.outage = job.NewOutage(r.log)
	}
	media, names := []string{}, []string{}
	r.mediaBySender = make(map[string]string, len(senders))
	for _, s := range senders {
		r.queues = append(r.queues, newQueue(r, s, config.ActivityShare))
		media, names = append(media, s.Medium), append(names, s.Name)
		r.mediaBySender[s.Name] = s.Medium
	}
	r.ledger.Serve(media, names)
	r.credits = newCredits(r)
	r.transport = r.postgres(context.Background(), false)
	return r, nil
}

func uniqueName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // documented never to fail
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), hex.EncodeToString(suffix[:]))
}

// settings returns the current configuration.
func (r *Relay) settings() Config { return *r.config.Load() }

// Reload applies limits and policies at once, to calls that have not been made. Name, lease, listening
// and the senders' names, media, platforms and order cannot change while a relay runs: a change of them
// is an error, and nothing is applied.
func (r *Relay) Reload(config Config, senders []SenderConfig) error {
	was := r.settings()
	if config.Name == "" {
		config.Name = was.Name
	}
	problems := []error{config.Validate("delivery"), ValidateSenders("senders", senders)}
	fixed := func(same bool, key string) {
		if !same {
			problems = append(problems, fmt.Errorf("%s: cannot change while the relay runs; restart the relay", key))
		}
	}
	fixed(config.Name == was.Name, "delivery.name")
	fixed(config.Place == was.Place, "delivery.place")
	fixed(config.Lease == was.Lease, "delivery.lease")
	fixed(config.Listen == was.Listen, "delivery.listen")
	fixed(len(senders) == len(r.queues), "senders")
	for i := range min(len(senders), len(r.queues)) {
		old := r.queues[i].settings()
		fixed(senders[i].Name == old.Name, fmt.Sprintf("senders[%d].name", i))
		fixed(senders[i].Medium == old.Medium, fmt.Sprintf("senders[%d].medium", i))
		fixed(fmt.Sprint(senders[i].Platforms) == fmt.Sprint(old.Platforms), fmt.Sprintf("senders[%d].platforms", i))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	r.config.Store(&config)
	for i, q := range r.queues {
		q.reload(senders[i], config.ActivityShare)
	}
	return nil
}

// StopNow is the hard stop: it cancels the calls in flight, whose outcomes are unknown then, records
// the known outcomes and ends. A stopped Relay cannot run again. It is safe for concurrent use; only
// the first call's cause counts.
func (r *Relay) StopNow(cause error) { r.stop.Now(cause) }

// Run delivers until ctx is cancelled, which is the soft stop. It then claims nothing new, waits for
// the calls in flight within Config.GracePeriod, records their outcomes, returns unsent messages, and
// returns when all its goroutines have ended. An error means that the database rejected the start or
// was unreachable; later failures are retried, and a slow database or pooler is waited for from the
// start. In a database that is halted or not adopted (outbox.Installation), it waits until that ends.
func (r *Relay) Run(ctx context.Context) error { return r.run(ctx, false) }

// Drain delivers due messages, including messages that become due meanwhile, messages left by dead
// relays, and messages in a carrier to which no relay pushes. It reads receipts once, and waits for
// later messages only if they wait for messages in flight under a cap. It returns its counts. Messages
// that no sender takes, because of an open breaker or a pause, are deferred. It delivers nothing and
// returns outbox.ErrNotAdopted in a database that is not adopted, job.ErrHalted in a halted one, and
// ErrSlowStart in one that is too slow to start for Config.Lease. Stops are as in Run.
func (r *Relay) Drain(ctx context.Context) (Stats, error) {
	err := r.run(ctx, true)
	return r.Stats(), err
}

func (r *Relay) run(ctx context.Context, drain bool) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("the relay is running already")
	}
	defer r.running.Store(false)
	r.draining.Store(drain)
	r.outcomes = newBatcher()
	hard, release := r.stop.After(ctx, func() time.Duration { return r.settings().GracePeriod })
	defer release()
	r.stopping.Store(false)
	defer context.AfterFunc(ctx, func() { r.stopping.Store(true) })()
	r.open(hard, drain)
	r.ledger.Over(r.transport.String())
	if err := r.announce(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return fmt.Errorf("start relay %s: %w", r.name, err)
	}
	// Outcomes after the stop are recorded under a separate context, which ends when all are recorded
	// or the database has been unreachable for long.
	records, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()

	work, over := context.WithCancel(ctx)
	defer over()
	defer context.AfterFunc(hard, over)()
	r.log.Info().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("relay started")

	var looking, keeping, settling sync.WaitGroup
	if r.settings().Listen && !drain {
		listener := lifecycle.NewListener(r.pool, channel, r.settings().StatementTimeout, r.wake, r.outage, r.log)
		r.listener.Store(listener)
		looking.Go(func() { listener.Run(work) })
	}
	if r.dispatch != nil {
		looking.Go(func() { r.dispatch.run(work) })
	}
	r.search(work, hard, &looking)
	r.keep(records, &keeping)
	if to, ok := r.transport.(carried); ok {
		keeping.Go(func() { to.Keep(records) })
	}
	for range settlers {
		settling.Go(func() { r.settleAll(records) })
	}
	r.deliverUntil(work, hard)
	over() // a drain's end
	looking.Wait()
	r.outcomes.close()
	patience := time.AfterFunc(2*r.settings().StatementTimeout, giveUp)
	settling.Wait()
	patience.Stop()
	giveUp()
	keeping.Wait()
	r.deregister(ctx)
	if where := r.blockedBy.Load(); where != nil && drain {
		return where.ErrAt(r.settings().Place)
	}
	return nil
}

// deliverUntil runs the pipeline until ctx is cancelled, or in a drain no message is due, and all calls
// have ended.
func (r *Relay) deliverUntil(ctx, hard context.Context) {
	ctx, over := context.WithCancel(ctx)
	defer over()
	claimed, enqueued := make(chan batch), make(chan struct{})
	var claiming, composing, serving sync.WaitGroup
	probing, claimedAll := context.WithCancel(ctx)
	claiming.Go(func() {
		defer claimedAll()
		r.claim(ctx, claimed)
	})
	claiming.Go(func() { r.probeAll(probing, claimed) })
	for range composers {
		composing.Go(func() { r.compose(ctx, claimed) })
	}
	for _, q := range r.queues {
		serving.Go(func() { q.run(ctx, hard, enqueued) })
	}
	claiming.Wait()
	close(claimed)
	composing.Wait()
	close(enqueued)
	over() // a drain's end
	serving.Wait()
	r.groups.Wait()
}

// open makes the transport of one run, and with a carrier its dispatcher.
func (r *Relay) open(hard context.Context, drain bool) {
	if r.dispatch = nil; r.broker == nil || drain {
		r.transport = r.postgres(hard, drain)
		return
	}
	to := r.broker.Carrier(r.name, func(copies []outbox.Copy) (answers []outbox.Answer, err error) {
		if err := r.at(hard, pointClaim); err != nil {
			return nil, claimError{err}
		}
		err = r.withTimeout(hard, func(ctx context.Context) error {
			answers, err = r.ledger.ClaimCopies(ctx, copies)
			return err
		})
		if err != nil {
			return answers, claimError{err}
		}
		return answers, nil
	})
	r.dispatch = newDispatcher(DispatchOptions{
		Ledger: r.ledger, To: to, Config: r.settings, RequeueAfter: r.requeue, Log: r.log,
		name:    r.name,
		hears:   func() bool { return r.listener.Load().Listening() },
		at:      r.at,
		blocked: r.blocked,
		rebuilt: func(q outbox.Queue) {
			for _, o := range r.observers {
				o.Rebuilt(q)
			}
		},
	})
	r.transport = carried{to, r.dispatch.walk, r.setResting}
}

// carried is a carrier that also reports recorded outcomes to the dispatcher's walk, which marks
// delivered jobs. With retries last, retries do not wait in the carrier, where they would be taken in
// turn, but are pushed when no other message is left.
type carried struct {
	outbox.Carrier
	walk    *postgres
	resting func(bool) // called when no message arrives for a while
}

// calmAfter is the time without a message from a carrier, and with none in flight, after which the
// relay rests.
const calmAfter = 2 * time.Second

// Receive implements Transport.
func (c carried) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	waiting, over := context.WithCancel(ctx)
	var calm sync.WaitGroup
	calm.Go(func() {
		for lifecycle.Pause(waiting, calmAfter) == nil {
			if credits.Idle() {
				c.resting(true)
			}
		}
	})
	found, err := c.Carrier.Receive(ctx, credits)
	over()
	calm.Wait()
	if len(found) > 0 {
		c.resting(false)
	}
	if err != nil && !errors.As(err, new(claimError)) {
		err = carrierError{err}
	}
	return found, err
}

// Settled implements Transport.
func (c carried) Settled(ctx context.Context, outcomes []outbox.Settled) error {
	if err := c.walk.Settled(ctx, outcomes); err != nil {
		return err
	}
	if c.walk.config().Retries == RetriesLast {
		outcomes = slices.Clone(outcomes)
		for i := range outcomes {
			if outcomes[i].Status == outbox.Pending {
				outcomes[i].Status = outbox.Queued
			}
		}
	}
	return c.Carrier.Settled(ctx, outcomes)
}

// postgres returns the PostgreSQL transport of one run.
func (r *Relay) postgres(hard context.Context, drain bool) outbox.Transport {
	return newPostgres(postgresOptions{
		ledger: r.ledger, claims: r.ledger, config: r.settings, drain: drain, rest: r.rest,
		hears:   func() bool { return r.listener.Load().Listening() },
		hints:   &r.hints,
		resting: r.setResting,
		act:     func(f func(context.Context) error) error { return r.withTimeout(hard, f) },
		pass:    func() error { return r.at(hard, pointClaim) },
		name:    r.name, transport: outbox.NoCarrier, log: r.log,
	})
}

// keep starts the renewals and the heartbeat, which run until all outcomes are recorded. A started
// heartbeat is completed: a cancelled one could take effect after the relay has deregistered.
func (r *Relay) keep(records context.Context, wait *sync.WaitGroup) {
	lease := r.settings().Lease
	whole := func(act func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return act(context.WithoutCancel(ctx)) }
	}
	wait.Go(func() { r.every(records, always(lease/4), nil, "leases are not renewed", whole(r.renew)) })
	wait.Go(func() {
		r.every(records, r.heartbeatInterval, r.beatSoon, "the relay's heartbeat fails", whole(r.beat))
	})
}

// search starts the searches for lost leases and for receipts and, without a carrier, for messages left
// by relays with one. They run until the stop. A drain does not end before each has run once.
func (r *Relay) search(ctx, hard context.Context, wait *sync.WaitGroup) {
	r.searches.Store(2)
	if r.dispatch == nil {
		r.searches.Store(3)
		wait.Go(func() {
			r.every(ctx, always(betweenUnserved), nil, "cannot search for messages in a carrier that no relay uses", r.first(r.takeBackQueued))
		})
	}
	wait.Go(func() {
		r.every(ctx, r.recoveryInterval, nil, "cannot search for lost leases", r.first(r.recover))
	})
	wait.Go(func() {
		r.every(ctx, r.receiptInterval, r.receiptsSoon, "cannot poll receipts", r.first(func(context.Context) error {
			return r.lookForReceipts(hard) // a soft stop does not interrupt the providers' reply
		}))
	})
}

// first counts the first call of a search, successful or failed.
func (r *Relay) first(search func(context.Context) error) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) error {
		defer once.Do(func() {
			r.searches.Add(-1)
			r.inflight.wake()
		})
		return search(ctx)
	}
}

// idle reports that no work is under way for which a drain waits.
func (r *Relay) idle() bool {
	return r.searches.Load() == 0 && r.suspected.Load() == 0 && r.outcomes.quiet() && r.inflight.empty()
}

// deregister ends the relay's row, so that the other relays share its rate at once.
func (r *Relay) deregister(ctx context.Context) {
	err := r.withTimeout(context.WithoutCancel(ctx), r.ledger.Deregister)
	if left := r.inflight.size(); err != nil || left > 0 {
		r.log.Warn().Err(err).Int("rows", left).Str("worker_id", r.name).Str("transport",
			r.transport.String()).Msg("the database did not accept all messages; other relays recover them when the leases expire")
	}
	r.inflight.forget()
	r.log.Info().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("relay stopped")
}

package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// every calls f at once, then as often as between says, and when it is asked for, until ctx
// ends, and logs its first error of a row that the Outage does not speak of.
func (r *Relay) every(ctx context.Context, between func() time.Duration, asked <-chan struct{}, problem string, f func(context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-asked:
		}
		began := time.Now()
		err := r.at(ctx, pointUpkeep)
		if err == nil {
			err = f(ctx)
		}
		if ctx.Err() == nil && !r.outage.Tried(began, err) && !failing {
			r.log.WithLevel(levelOf(err)).Err(err).Str("worker_id", r.name).Str("transport", transport).Msg(problem)
		}
		failing = err != nil
		timer.Reset(between())
	}
}

// always is one pace.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// levelOf is the level at which an error is logged that is met by trying again. That
// transactions could not be serialized is everyday where that is the default isolation.
func levelOf(err error) zerolog.Level {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "40001" {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}

// renew prolongs what is in hand. A lease that is lost stays in hand until its messages
// are found to be another's: by the look before they are sent, or when they are settled.
func (r *Relay) renew(ctx context.Context) error {
	ids := r.hand.ids()
	if len(ids) == 0 {
		return nil
	}
	var lost []int64
	err := r.within(ctx, func(ctx context.Context) (err error) {
		lost, err = r.ledger.Renew(ctx, ids)
		return err
	})
	if err != nil {
		return err
	}
	held := make(map[int64]bool)
	for _, id := range r.hand.ids() {
		held[id] = true
	}
	gone := 0
	for _, id := range lost {
		if held[id] { // and not settled in the meantime
			gone++
		}
	}
	if gone > 0 {
		r.log.Warn().Str("worker_id", r.name).Str("transport", transport).Msg("leases ran out under this relay")
	}
	return nil
}

// announce beats for the first time. A database that is only slow, as behind a pooler that
// is full, is no reason to end: that is said once, and tried again.
func (r *Relay) announce(ctx context.Context) error {
	for said := false; ; said = true {
		err := r.beat(ctx)
		if !slow(err) {
			return err
		}
		if !said {
			r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport", transport).Msg("the relay has not started yet")
		}
		if !rest(ctx, time.Duration(r.random()*float64(time.Second))) {
			return err
		}
	}
}

// slow reports whether a statement took too long, whoever ended it.
func slow(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == codeQueryCanceled || pg.Code == codeLockTimeout
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// SQLSTATE codes of statements that took too long.
const (
	codeQueryCanceled = "57014" // statement_timeout
	codeLockTimeout   = "55P03"
)

// beat says that this relay lives, and takes up what operators have set about senders.
func (r *Relay) beat(ctx context.Context) error {
	senders := make([]outbox.SenderLimits, len(r.lines))
	for i, l := range r.lines {
		senders[i] = l.limits.inForce()
	}
	var live map[string]int
	var overrides []outbox.SenderOverride
	var adopted bool
	err := r.within(ctx, func(ctx context.Context) (err error) {
		if live, adopted, err = r.ledger.Beat(ctx, senders, r.hand.size()); err == nil {
			overrides, err = r.ledger.Overrides(ctx)
		}
		return err
	})
	if err != nil {
		return err // what was known last goes on
	}
	r.adopted(ctx, adopted)
	set := make(map[string]outbox.SenderOverride, len(overrides))
	for _, o := range overrides {
		set[o.Name] = o
	}
	for i, l := range r.lines {
		name := senders[i].Name
		if o := set[name]; l.limits.operate(o, live[name], time.Now()) {
			r.log.Info().Str("sender", name).Bool("paused", o.Paused).Str("worker_id", r.name).Msg("an operator changed a sender")
		}
		l.rouse()
	}
	return nil
}

// leasesAtOnce is how many lost leases are read at once.
const leasesAtOnce = 10

// recover takes back what relays that died have left, and claims of its own name that
// it does not know. One that cannot be taken back holds up none of the others.
func (r *Relay) recover(ctx context.Context) error {
	if r.waits() {
		return nil
	}
	var problems []error
	var stay []int64 // the leases of which nothing could be moved
	for ctx.Err() == nil {
		lost, err := r.lost(ctx, stay)
		if err != nil {
			return errors.Join(append(problems, err)...)
		}
		for _, l := range lost {
			n, err := r.takeBack(ctx, l)
			if n == 0 {
				stay = append(stay, l.LeaseID)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("recover lease %d: %w", l.LeaseID, err))
			}
		}
		if len(lost) < leasesAtOnce {
			break
		}
	}
	return errors.Join(problems...)
}

// lost reads the next lost leases, without those that are known to stay.
func (r *Relay) lost(ctx context.Context, stay []int64) (lost []outbox.Lost, err error) {
	err = r.within(ctx, func(ctx context.Context) error {
		lost, err = r.ledger.Lost(ctx, r.hand.ids(), stay, leasesAtOnce)
		return err
	})
	return lost, err
}

// takeBack recovers one lease and says how many messages it moved.
func (r *Relay) takeBack(ctx context.Context, lost outbox.Lost) (int, error) {
	settlements := make([]outbox.Settlement, len(lost.Handed))
	config := r.settings()
	for i, h := range lost.Handed {
		settlements[i] = decideCrash(h, r.retryOf(medium(h.Route, h.Step)), config.MaxCrashes, r.random())
	}
	var done outbox.Recovered
	err := r.within(ctx, func(ctx context.Context) (err error) {
		done, err = r.ledger.Recover(ctx, lost, settlements)
		return err
	})
	if err != nil || done.Gone {
		return 0, err
	}
	r.tally.recovered.Add(int64(done.Released + done.Settled))
	r.hand.rouse() // what was taken back may be claimed
	for i, status := range done.Statuses {
		if status != "" {
			r.tally.settledOne(&settlements[i], status)
			r.died(&settlements[i], status)
		}
	}
	r.log.Warn().Str("worker_id", lost.Relay).Int("rows", done.Released+done.Settled).Str("transport", transport).Msg("messages of a lost lease recovered")
	return done.Released + done.Settled, nil
}

// retryOf is how a medium is retried when the sender is not known.
func (r *Relay) retryOf(medium string) RetryConfig {
	for _, l := range r.lines {
		if c := l.settings(); c.Medium == medium {
			return c.Retry
		}
	}
	return r.settings().Retry
}

// receiptsAtOnce is how many receipts are taken for a look at once.
const receiptsAtOnce = 500

// lookForReceipts asks the providers for results that are due, while there is room for
// what they say (I13). A message whose limit is over is SENT, unconfirmed, also when
// nobody can be asked.
func (r *Relay) lookForReceipts(ctx context.Context) error {
	for ctx.Err() == nil && !r.waits() {
		config := r.settings()
		limit := min(receiptsAtOnce, config.MaxInHand-r.books.waiting())
		if limit <= 0 {
			return nil // the next round is soon
		}
		r.books.look()
		var due []outbox.Awaited
		err := r.within(ctx, func(ctx context.Context) (err error) {
			due, err = r.ledger.ReceiptsDue(ctx, limit, config.Receipts.Interval)
			return err
		})
		if err != nil {
			return err
		}
		if len(due) > 0 {
			r.expectReceipts()
		}
		bySender := make(map[string][]outbox.Awaited)
		for _, a := range due {
			bySender[a.Sender] = append(bySender[a.Sender], a)
		}
		var asking sync.WaitGroup
		for name, list := range bySender {
			asking.Go(func() { r.askFor(ctx, r.lineNamed(name), list, config.Receipts) })
		}
		asking.Wait()
		if len(due) < limit {
			return nil
		}
	}
	return nil
}

// waiting counts the outcomes that nobody is recording yet.
func (b *books) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// askFor looks for the results of messages that one sender has accepted; no line: it is
// not known here, and a relay that has it gets the time for two more looks.
func (r *Relay) askFor(ctx context.Context, l *line, list []outbox.Awaited, config ReceiptConfig) {
	results := make([]sender.Result, len(list))
	for i := range results {
		results[i] = sender.Result{Class: sender.Pending}
	}
	limit := config.Limit
	if l != nil {
		l.receipts(ctx, list, results)
	} else {
		limit += 2 * config.Interval
	}
	for i, a := range list {
		if s, settled := decideReceipt(a, limit, results[i]); settled {
			r.books.learn(s)
		}
	}
}

// receipts fills in what the client knows.
func (l *line) receipts(ctx context.Context, list []outbox.Awaited, results []sender.Result) {
	reader, ok := l.client.(sender.ReceiptReader)
	if !ok {
		return
	}
	n := max(1, l.client.MaxBatch())
	for from := 0; from < len(list) && ctx.Err() == nil; from += n {
		to := min(from+n, len(list))
		receipts := make([]string, 0, n)
		for _, a := range list[from:to] {
			receipts = append(receipts, a.Receipt)
		}
		limited, cancel := context.WithTimeoutCause(ctx, l.settings().Timeout, errTimeout)
		copy(results[from:to], l.guard(len(receipts), func() []sender.Result { return reader.Receipts(limited, receipts) }))
		cancel()
	}
}

func (r *Relay) lineNamed(name string) *line {
	for _, l := range r.lines {
		if l.settings().Name == name {
			return l
		}
	}
	return nil
}

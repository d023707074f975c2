package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	// collectTimeout limits each transaction of a Collector.
	collectTimeout = 5 * time.Second
	// countAtMost is the largest count.
	countAtMost = 10_000
)

// Collector queries the database on its own timer and stores the results for scrapes. Several processes
// may each run one, because a collection is cheap and bounded.
//
//	at each interval, one part after the other:
//	  answered ─────────────► its values are exported, with their time
//	  refused (privileges) ─► it is no longer exported, which is logged once
//	  failed ───────────────► its last values are exported until they are too old
type Collector struct {
	every time.Duration
	pool  *pgxpool.Pool
	log   zerolog.Logger
	parts []*part
	media map[string]bool // allowed labels; other media are otherMedium

	failures *prometheus.CounterVec
}

// part is a group of metrics that one query collects.
type part struct {
	name    string
	query   func(context.Context) ([]sample, error)
	outage  *lifecycle.Outage // of the source; may be nil
	failing bool
	logged  map[string]bool // names of parts and metrics without privilege

	mu     sync.Mutex
	values []sample
	at     time.Time // zero before the first result
}

// sample is one value of a metric.
type sample struct {
	Metric string
	Labels []string
	Value  *float64 // nil without the privilege
}

// collected lists the metrics of a Collector.
func collected() []definition {
	byQueue := []string{"queue"}
	return []definition{
		{"belfry_collection_timestamp_seconds", "gauge", "Unix time of the last successful collection of this part.", []string{"part"}},
		{"belfry_jobs", "gauge", "Jobs that wait (PENDING), without those that wait for approval, and that run; counted up to 10,000.",
			[]string{"status"}},
		{"belfry_jobs_ended", "gauge", "Jobs that ended within the last hour, by status; of the last 10,000.", []string{"status"}},
		{"belfry_jobs_due", "gauge", "Jobs that are due in open lanes and wait; counted up to 10,000.", nil},
		{"belfry_oldest_due_job_age_seconds", "gauge", "Time since the oldest of these became due; 0 without one.", nil},
		{"belfry_oldest_heartbeat_age_seconds", "gauge", "Age of the oldest heartbeat of a RUNNING job; 0 without one.", nil},
		{"belfry_jobs_awaiting_approval", "gauge", "Jobs that wait for the approval of a second person; counted up to 10,000.", nil},
		{"belfry_oldest_awaiting_approval_age_seconds", "gauge", "Longest wait of these; 0 without one.", nil},
		{"belfry_oldest_due_awaiting_approval_age_seconds", "gauge", "Longest time since one of these became due; 0 without a due one.", nil},
		{"belfry_messages_waiting", "gauge",
			"Messages of jobs that are not final, by the jobs' own progress and the first medium of their routes; of the " +
				"newest 10,000 jobs.", []string{"state", "medium"}},
		{"belfry_oldest_due_message_age_seconds", "gauge",
			"Time since the oldest PENDING message that is not held became due; 0 without one.", byQueue},
		{"belfry_queued_messages", "gauge", "Messages that are QUEUED in a carrier; counted up to 10,000.", byQueue},
		{"belfry_oldest_queued_age_seconds", "gauge", "Time since the oldest of these became QUEUED; 0 without one.", byQueue},
		{"belfry_halted", "gauge", "1 while an operator has halted everything.", nil},
		{"belfry_lanes_paused", "gauge", "Lanes that an operator has paused.", nil},
		{"belfry_senders_paused", "gauge", "Senders that an operator has paused.", nil},
		{"belfry_relays_alive", "gauge", "Relays on this database with a heartbeat of the last 10 seconds.", nil},
		{"belfry_oldest_expired_lease_age_seconds", "gauge", "Time since the oldest lease of a dead relay expired; 0 without one.", nil},
		{"belfry_oldest_xmin_age_transactions", "gauge",
			"Age of the oldest snapshot on the server in transactions; vacuum cannot remove younger rows. Needs pg_monitor.", nil},
		{"belfry_oldest_transaction_age_seconds", "gauge", "Age of the oldest transaction on the server. Needs pg_monitor.", nil},
		{"belfry_carrier_ids", "gauge", "Ids in the carrier: ready, due later, taken by a relay, or of dead letters.",
			[]string{"queue", "state"}},
		{"belfry_carrier_full", "gauge", "1 while the carrier accepts no more ids (delivery.max_queued).", byQueue},
	}
}

// Collector registers the metrics of the database and of a carrier, which may be nil. outage logs
// outages of the database. The media of senders are the allowed labels.
func (m *Metrics) Collector(every time.Duration, pool *pgxpool.Pool, carrier outbox.Broker, senders []relay.SenderConfig,
	outage *lifecycle.Outage, log zerolog.Logger) *Collector {
	c := &Collector{every: every, pool: pool, log: log, media: make(map[string]bool)}
	for _, medium := range []string{"push", "sms", "alimtalk", "email", "webhook"} {
		c.media[medium] = true
	}
	for _, s := range senders {
		c.media[s.Medium] = true
	}
	most := pgx.StrictNamedArgs{"most": countAtMost}
	c.add("jobs", outage, c.statement(queries.collectJobs, most))
	c.add("messages", outage, c.statement(queries.collectMessages, most))
	c.add("queues", outage, c.statement(queries.collectQueues, most))
	c.add("control", outage, c.statement(queries.collectControl, nil))
	c.add("server", outage, c.statement(queries.collectServer, nil))
	if carrier != nil {
		c.add("carrier", nil, func(ctx context.Context) ([]sample, error) { return inside(ctx, carrier) })
	}
	c.failures = m.counter("belfry_collection_failures_total", "Failed collections of a part.", "part")
	for _, p := range c.parts {
		c.failures.WithLabelValues(p.name)
	}
	m.read(collected(), c.show)
	return c
}

func (c *Collector) add(name string, outage *lifecycle.Outage, query func(context.Context) ([]sample, error)) {
	c.parts = append(c.parts, &part{name: name, query: query, outage: outage, logged: make(map[string]bool)})
}

// statement queries the database with one statement in a read-only transaction.
func (c *Collector) statement(sql string, args pgx.StrictNamedArgs) func(context.Context) ([]sample, error) {
	return func(ctx context.Context) (list []sample, err error) {
		err = db.InTx(ctx, c.pool, db.Options{Limit: collectTimeout, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
			list, err = db.Collect(ctx, tx, sql, args, pgx.RowToStructByPos[sample])
			return err
		})
		return list, err
	}
}

// inside queries a carrier.
func inside(ctx context.Context, carrier outbox.Broker) (list []sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	queues, err := carrier.Queues(ctx)
	if err != nil {
		return nil, err
	}
	give := func(metric string, value float64, labels ...string) {
		list = append(list, sample{metric, labels, &value})
	}
	for _, q := range queues {
		name := string(q.Queue)
		for state, n := range map[string]int64{"ready": q.Ready, "later": q.Later, "taken": q.Taken, "dead": q.Dead} {
			give("belfry_carrier_ids", float64(n), name, state)
		}
		give("belfry_carrier_full", truth(q.Full), name)
	}
	return list, nil
}

// Run collects immediately and then at each interval, until ctx ends. It returns nil.
func (c *Collector) Run(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		for _, p := range c.parts {
			if ctx.Err() == nil {
				c.collect(ctx, p)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *Collector) collect(ctx context.Context, p *part) {
	began := time.Now()
	values, err := p.query(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.outage.Observe(began, nil)
		p.failing = false
		for _, v := range values {
			if v.Value == nil {
				c.hidden(p, v.Metric)
			}
		}
		p.keep(c.bounded(values), time.Now())
		return
	}
	if db.ClassOf(err) == db.Forbidden {
		if !p.logged[p.name] {
			p.logged[p.name] = true
			c.log.Warn().Err(err).Str("detail", p.name).Msg("this role lacks the privilege to collect metrics")
		}
		p.keep(nil, time.Time{})
		return
	}
	c.failures.WithLabelValues(p.name).Inc()
	if !p.outage.Observe(began, err) && !p.failing {
		c.log.Warn().Err(err).Str("detail", p.name).Msg("metrics are not collected")
	}
	p.failing = true
}

// hidden logs once for each metric that it requires a privilege.
func (c *Collector) hidden(p *part, metric string) {
	if !p.logged[metric] {
		p.logged[metric] = true
		c.log.Warn().Str("detail", metric).Msg("this role lacks the privilege to collect a metric; grant it pg_monitor")
	}
}

// bounded drops values without privilege and sums the values of media without a sender.
func (c *Collector) bounded(values []sample) []sample {
	sums := make(map[string]sample)
	for _, v := range values {
		if v.Value == nil {
			continue
		}
		if v.Metric == "belfry_messages_waiting" && !c.media[v.Labels[1]] {
			v.Labels = []string{v.Labels[0], otherMedium}
		}
		key := v.Metric + " " + strings.Join(v.Labels, " ")
		if had, ok := sums[key]; ok {
			sum := *had.Value + *v.Value
			v.Value = &sum
		}
		sums[key] = v
	}
	return slices.Collect(maps.Values(sums))
}

func (p *part) keep(values []sample, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values, p.at = values, at
}

// show emits the last results unless they are too old.
func (c *Collector) show(give emit) {
	index := make(map[string]int)
	for i, d := range collected() {
		index[d.name] = i
	}
	patience := 3*c.every + time.Duration(len(c.parts))*collectTimeout
	for _, p := range c.parts {
		p.mu.Lock()
		values, at := p.values, p.at
		p.mu.Unlock()
		if at.IsZero() {
			continue
		}
		give(0, float64(at.UnixMilli())/1000, p.name)
		if time.Since(at) > patience {
			continue
		}
		for _, v := range values {
			give(index[v.Metric], *v.Value, v.Labels...)
		}
	}
}

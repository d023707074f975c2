package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/outbox"
)

const (
	name = "jetstream" // of the transport
	// oldestMajor.oldestMinor is the first version with atomic batches.
	oldestMajor, oldestMinor = 2, 12
	// rollCall is the time for which a roll call waits for replies.
	rollCall = 300 * time.Millisecond
)

// Broker is a process's connection to the cluster. It implements outbox.Broker.
type Broker struct {
	config  Config
	options Options
	outage  *outbox.CarrierOutage
	pace    intervals
	lines   map[outbox.Queue]*line

	mu     sync.Mutex
	conn   *nats.Conn // nil before the first use
	closed bool
	ends   []context.CancelFunc // of carriers
}

// New returns a broker. It connects on first use and reconnects after each outage. Its errors name keys of
// delivery and delivery.nats, and contain no secret.
func New(config Config, options Options) (*Broker, error) {
	if err := errors.Join(config.Validate("delivery.nats"), options.validate()); err != nil {
		return nil, err
	}
	b := &Broker{
		config: config, options: options, lines: make(map[outbox.Queue]*line),
		outage: outbox.NewCarrierOutage(options.Log, name, away, refused),
		pace:   intervals{pull: 10 * time.Second, heartbeat: 2 * time.Second, silent: 30 * time.Second},
	}
	if _, err := config.natsOptions(b.outage, options.Log); err != nil {
		return nil, err
	}
	for _, q := range queues() {
		b.lines[q] = newLine(b, q)
	}
	return b, nil
}

// queues returns the queues in the order in which they are served.
func queues() []outbox.Queue { return []outbox.Queue{outbox.Activities, outbox.Bulk} }

// connection returns the connection, which the first call opens. It returns a connection even if no server
// is reachable, and retries in the background. A connection that nats.go has closed permanently, which it does
// after some errors of a server, is replaced.
func (b *Broker) connection() (*nats.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nats.ErrConnectionClosed
	}
	if b.conn == nil || b.conn.IsClosed() {
		options, err := b.config.natsOptions(b.outage, b.options.Log)
		if err != nil {
			return nil, err
		}
		conn, err := nats.Connect(b.config.servers(), options...)
		if err != nil {
			return nil, fmt.Errorf("connect to NATS: %w", err)
		}
		b.conn = conn
	}
	return b.conn, nil
}

// refusal connects once to find the reason why no server is connected, which a retrying connection does not
// report. It returns err if that succeeds.
func (b *Broker) refusal(err error) error {
	options, bad := b.config.natsOptions(b.outage, b.options.Log)
	if bad != nil {
		return bad
	}
	conn, why := nats.Connect(b.config.servers(),
		append(options, nats.RetryOnFailedConnect(false), nats.NoReconnect(), nats.DisconnectErrHandler(nil))...)
	if why != nil {
		return why
	}
	conn.Close()
	return err
}

// withTimeout returns a context with the timeout of a call.
func (b *Broker) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.config.Timeout)
}

// Carrier implements outbox.Broker.
func (b *Broker) Carrier(worker string, claim outbox.Claim) outbox.Carrier {
	life, end := context.WithCancel(context.Background())
	b.mu.Lock()
	b.ends = append(b.ends, end)
	b.mu.Unlock()
	return newCarrier(b, worker, claim, life, end)
}

// Check implements outbox.Broker. It creates missing streams, so that missing permissions are found. Foreign
// consumers are warnings, because belfry does not see the ids that they take.
func (b *Broker) Check(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*b.config.Timeout)
	defer cancel()
	conn, err := b.connection()
	if err != nil {
		return nil, err
	}
	if err := conn.FlushWithContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: no server of delivery.nats.urls: %w", outbox.ErrAway, b.refusal(err))
	}
	if err := fits(conn.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	var problems []error
	for _, q := range queues() {
		l := b.lines[q]
		to, err := l.open(ctx)
		if err != nil {
			if away(err) {
				err = fmt.Errorf("%w: %w", outbox.ErrAway, err)
			}
			problems = append(problems, err)
			continue
		}
		foreign, err := l.foreign(ctx, to)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("cannot list the consumers of stream %s: %v", l.stream, err))
		}
		for _, other := range foreign {
			warnings = append(warnings,
				fmt.Sprintf("stream %s has a consumer %s that is not belfry's and takes ids away; delete it (nats consumer rm %s %s)",
					l.stream, other, l.stream, other))
		}
	}
	return warnings, errors.Join(problems...)
}

// fits returns an error for an unsuitable server version.
func fits(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the NATS server has an unknown version %q", version)
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Errorf("the NATS server has version %s; belfry needs %d.%d or later for atomic batches", version, oldestMajor, oldestMinor)
	}
	return nil
}

// Queues implements outbox.Broker. Taken counts the copies held by workers that answer; Later counts all
// other unacknowledged copies, including those of dead workers.
func (b *Broker) Queues(ctx context.Context) ([]outbox.QueueStatus, error) {
	workers, err := b.workers(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]outbox.QueueStatus, 0, len(b.lines))
	for _, q := range queues() {
		s, err := b.lines[q].status(ctx)
		if err != nil {
			return nil, err
		}
		for _, w := range workers {
			s.Workers = append(s.Workers, outbox.WorkerStatus{Name: w.Name, Taken: w.Taken[q], Seen: time.Now()})
			s.Taken += w.Taken[q]
		}
		s.Taken = min(s.Taken, s.Later)
		s.Later -= s.Taken
		list = append(list, s)
	}
	return list, nil
}

// presence is a worker's reply to a roll call.
type presence struct {
	Name  string                 `json:"name"`
	Taken map[outbox.Queue]int64 `json:"taken"`
}

// callSubject is the subject of roll calls.
func (b *Broker) callSubject() string { return b.config.Prefix + ".workers" }

// workers returns the live workers.
func (b *Broker) workers(ctx context.Context) (list []presence, err error) {
	conn, err := b.connection()
	if err != nil {
		return nil, err
	}
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("call the workers: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // or the connection is gone
	if err := conn.PublishRequest(b.callSubject(), inbox, nil); err != nil {
		return nil, fmt.Errorf("call the workers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, rollCall)
	defer cancel()
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil { // timeout, or no worker is subscribed
			break
		}
		var p presence
		if json.Unmarshal(m.Data, &p) == nil && p.Name != "" {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y presence) int { return strings.Compare(x.Name, y.Name) })
	return list, nil
}

// Empty implements outbox.Broker: it deletes both streams.
func (b *Broker) Empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*b.config.Timeout)
	defer cancel()
	conn, err := b.connection()
	if err != nil {
		return err
	}
	js, err := natsjs.New(conn)
	if err != nil {
		return err
	}
	for _, q := range queues() {
		l := b.lines[q]
		if err := js.DeleteStream(ctx, l.stream); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", l.stream, err)
		}
		l.forget()
	}
	return nil
}

// Close implements outbox.Broker.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, end := range b.ends {
		end()
	}
	if b.conn != nil {
		b.conn.Close()
	}
	return nil
}

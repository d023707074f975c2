package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/outbox"
)

const (
	consumerPrefix = "relays_"
	// duplicates is the window of Nats-Msg-Id, which belfry does not use. It is the minimum.
	duplicates = 2 * time.Minute
	// copySize is the maximum size of a copy in bytes, including the headers of its batch.
	copySize = 256
)

// line is this process's access to one of the two queues: its stream, and the consumer that all workers
// share.
type line struct {
	b      *Broker
	queue  outbox.Queue
	stream string
	ids    string // subject of the copies
	state  string // subject of the count

	mu sync.Mutex
	at *opened // nil before open

	pushing sync.Mutex // one push at a time
	known   *stored    // the last known count, or nil
	room    int        // minimum number of ids that fit
	refused struct {   // pushes, although the count is the known one
		seq   uint64    // of the count
		since time.Time // zero if no push was refused
	}

	acked sync.Mutex
	last  string // reply subject of the last unconfirmed acknowledgement, or empty
}

// opened is an existing stream with the wanted settings.
type opened struct {
	conn     *nats.Conn
	stream   natsjs.Stream
	consumer natsjs.Consumer
}

func newLine(b *Broker, q outbox.Queue) *line {
	subject := b.config.Prefix + "." + string(q)
	return &line{b: b, queue: q, stream: b.config.Prefix + "_" + string(q), ids: subject + ".ids", state: subject + ".state"}
}

// wanted returns the settings of the stream: a work queue that rejects new messages when full, and never
// discards stored ones.
func (l *line) wanted() natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Name: l.stream, Description: "ids of belfry's messages; PostgreSQL stores the messages",
		Subjects: []string{l.ids, l.state}, Retention: natsjs.WorkQueuePolicy, Discard: natsjs.DiscardNew, Storage: natsjs.FileStorage,
		MaxMsgs: int64(l.b.options.MaxQueued) + int64(l.b.config.MaxAckPending) + 1, MaxBytes: l.b.config.MaxBytes,
		MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: -1,
		Replicas: l.b.config.Replicas, Duplicates: duplicates, AllowRollup: true, AllowAtomicPublish: true,
	}
}

// differences describes how a stream differs from wanted; "" means in no relevant setting.
func differences(has, want natsjs.StreamConfig) string {
	var list []string
	compare := func(key string, has, want any) {
		if h, w := fmt.Sprint(has), fmt.Sprint(want); h != w {
			list = append(list, fmt.Sprintf("%s is %s and not %s", key, h, w))
		}
	}
	compare("subjects", has.Subjects, want.Subjects)
	compare("retention", has.Retention, want.Retention)
	compare("discard", has.Discard, want.Discard)
	compare("storage", has.Storage, want.Storage)
	compare("max_msgs", has.MaxMsgs, want.MaxMsgs)
	compare("max_bytes", has.MaxBytes, want.MaxBytes)
	compare("max_msgs_per_subject", max(has.MaxMsgsPerSubject, -1), want.MaxMsgsPerSubject)
	compare("max_age", has.MaxAge, want.MaxAge)
	compare("num_replicas", has.Replicas, want.Replicas)
	compare("duplicate_window", has.Duplicates, want.Duplicates)
	compare("allow_rollup_hdrs", has.AllowRollup, want.AllowRollup)
	compare("allow_atomic", has.AllowAtomicPublish, want.AllowAtomicPublish)
	compare("no_ack", has.NoAck, want.NoAck)
	compare("sealed", has.Sealed, want.Sealed)
	compare("deny_delete", has.DenyDelete, want.DenyDelete)
	compare("deny_purge", has.DenyPurge, want.DenyPurge)
	return strings.Join(list, ", ")
}

// open finds the stream and the consumer, and creates missing ones.
func (l *line) open(ctx context.Context) (*opened, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at != nil {
		return l.at, nil
	}
	conn, err := l.b.connection()
	if err != nil {
		return nil, err
	}
	at, err := l.make(ctx, conn)
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nothing is buffered, so it says only this
		err = fmt.Errorf("no server of delivery.nats.urls is connected: %w", err)
	}
	if err != nil {
		return nil, l.b.outage.Observe(fmt.Errorf("open stream %s: %w", l.stream, err))
	}
	l.at = at
	return at, nil
}

func (l *line) make(ctx context.Context, conn *nats.Conn) (*opened, error) {
	js, err := natsjs.New(conn)
	if err != nil {
		return nil, err
	}
	want := l.wanted()
	stream, err := js.Stream(ctx, l.stream)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, want)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = js.Stream(ctx, l.stream)
		}
	}
	if err != nil {
		return nil, err
	}
	if differs := differences(stream.CachedInfo().Config, want); differs != "" {
		return nil, fmt.Errorf(
			"the stream has other settings: %s; change the configuration, or the stream (nats stream edit), or delete the stream "+
				"while no relay runs: its ids are pushed again", differs)
	}
	consumer, err := l.consume(ctx, stream)
	if err != nil {
		return nil, err
	}
	return &opened{conn: conn, stream: stream, consumer: consumer}, nil
}

// consumerOf returns the name of a stream's consumer, which contains the creation time of the stream. An
// acknowledgement identifies its message by the names of stream and consumer and a sequence number, and a
// new stream counts from 1. With a constant name, a worker with copies of a lost stream would acknowledge
// other messages.
func consumerOf(stream natsjs.Stream) string {
	return consumerPrefix + strconv.FormatInt(stream.CachedInfo().Created.UnixNano(), 36)
}

// consume creates the consumer of a stream if it is missing. A work queue permits one consumer, so an older
// one, which a restored stream may have, is deleted first; its unacknowledged copies are delivered again.
func (l *line) consume(ctx context.Context, stream natsjs.Stream) (natsjs.Consumer, error) {
	want := natsjs.ConsumerConfig{
		Durable: consumerOf(stream), FilterSubject: l.ids, AckPolicy: natsjs.AckExplicitPolicy, AckWait: l.b.options.Lease,
		MaxDeliver: -1, MaxAckPending: l.b.config.MaxAckPending, DeliverPolicy: natsjs.DeliverAllPolicy,
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, want)
	if refusal := (&natsjs.APIError{}); errors.As(err, &refusal) && refusal.ErrorCode == codeNotUnique {
		list := stream.ConsumerNames(ctx)
		for n := range list.Name() {
			if strings.HasPrefix(n, consumerPrefix) && n != want.Durable {
				_ = stream.DeleteConsumer(ctx, n) // an error reappears below
			}
		}
		if failed := list.Err(); failed != nil {
			return nil, fmt.Errorf("list the consumers: %w", failed)
		}
		consumer, err = stream.CreateOrUpdateConsumer(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	return consumer, nil
}

// with opens the line and calls f. If the stream or the consumer was deleted, it does so once more; the
// dispatcher finds the lost copies by the numbers of the pushes.
func (l *line) with(ctx context.Context, f func(ctx context.Context, to *opened) error) error {
	ctx, cancel := l.b.withTimeout(ctx)
	defer cancel()
	for again := false; ; again = true {
		to, err := l.open(ctx)
		if err != nil {
			return err
		}
		if err = f(ctx, to); err == nil {
			return l.b.outage.Observe(nil)
		}
		l.forget()
		if again || !gone(err) {
			return l.b.outage.Observe(err)
		}
	}
}

// gone reports whether err means that the stream or the consumer does not exist.
func gone(err error) bool {
	return errors.Is(err, natsjs.ErrStreamNotFound) || errors.Is(err, natsjs.ErrConsumerNotFound) ||
		errors.Is(err, natsjs.ErrConsumerDoesNotExist) ||
		errors.Is(err, natsjs.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders)
}

// forget makes the next use open the stream and the consumer again.
func (l *line) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = nil
}

// foreign lists consumers that are not belfry's.
func (*line) foreign(ctx context.Context, to *opened) (names []string, err error) {
	list := to.stream.ConsumerNames(ctx)
	for n := range list.Name() {
		if n != consumerOf(to.stream) {
			names = append(names, n)
		}
	}
	return names, list.Err()
}

// status returns the contents of the queue. Later is the number of all unacknowledged copies.
func (l *line) status(ctx context.Context) (s outbox.QueueStatus, err error) {
	s.Queue = l.queue
	if s.Inside, err = l.inside(ctx); err != nil {
		return s, err
	}
	err = l.with(ctx, func(ctx context.Context, to *opened) error {
		info, err := to.stream.Info(ctx)
		if err != nil {
			return err
		}
		taking, err := to.consumer.Info(ctx)
		if err != nil {
			return err
		}
		s.Ready, s.Later = int64(taking.NumPending), int64(taking.NumAckPending) //nolint:gosec // counts of a bounded queue
		s.Most = int64(taking.Config.MaxAckPending)
		bytes := info.State.Bytes + outbox.MaxBatch*copySize
		s.Full = s.Ready >= int64(l.b.options.MaxQueued) || bytes > uint64(l.b.config.MaxBytes) //nolint:gosec // MaxBytes is positive
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("read stream %s: %w", l.stream, err)
	}
	return s, nil
}

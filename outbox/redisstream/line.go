package redisstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/internal/redisdb"
)

// ownPage is the page size of reads of own pending entries.
const ownPage = 1000

// line is a worker's connection to the stream of one queue. One read at a time uses it.
//
//	recovery ──► own pending entries from the beginning, page by page ──► new entries, blocking
//	  ▲                                                                     │
//	  └── start, any error, a timeout, a failed settlement, a reclaim ──────┘
type line struct {
	*Broker
	queue
	consumer string

	requests   atomic.Int64 // number of recoveries requested
	recovered  int64        // requests at the beginning of the last finished recovery
	recovering int64        // requests at the beginning of the current recovery; 0 if there is none
	cursor     string       // last id of the current recovery

	conn   *redis.Conn // nil before connect
	client atomic.Pointer[blocked]
	failed error // timeout or missing group of the last read
}

// blocked identifies a connection that may be blocked in a read.
type blocked struct {
	server *redis.Client
	id     int64
}

func newLine(b *Broker, q queue, consumer string) *line {
	l := &line{Broker: b, queue: q, consumer: consumer}
	l.requests.Store(1)
	return l
}

// requestRecovery makes the next reads return own pending entries before new ones.
func (l *line) requestRecovery() { l.requests.Add(1) }

// needsRecovery reports whether own pending entries must be read.
func (l *line) needsRecovery() bool { return l.recovered != l.requests.Load() }

// read returns own pending entries, a page regardless of n, until the recovery is finished, and then up
// to n new entries, for which it waits. After a timeout or if the group was missing it returns no entries,
// and an error from the second time in a row.
func (l *line) read(ctx context.Context, n int) ([]redis.XMessage, bool, error) {
	own := l.needsRecovery()
	messages, err := l.attempt(ctx, own, n)
	var network net.Error
	switch {
	case err == nil:
		l.failed = nil
		return messages, own, nil
	case noGroup(err):
		if err := l.createGroup(ctx); err != nil {
			l.disconnect()
			return nil, own, err
		}
		l.requestRecovery()
	case errors.As(err, &network) && network.Timeout(), redisdb.HasCode(err, "UNBLOCKED"):
		l.disconnect()
	default:
		l.disconnect()
		return nil, own, err
	}
	first := l.failed == nil
	l.failed = err
	if first {
		return nil, own, nil
	}
	return nil, own, err
}

func (l *line) attempt(ctx context.Context, own bool, n int) ([]redis.XMessage, error) {
	if err := l.connect(ctx); err != nil {
		return nil, fmt.Errorf("connect for the queue %s: %w", l.name, err)
	}
	from, count, block := ">", int64(n), l.pace.block
	if own {
		if now := l.requests.Load(); l.recovering != now {
			l.recovering, l.cursor = now, "0"
		}
		from, count, block = l.cursor, ownPage, -1
	}
	streams, err := l.conn.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: l.consumer, Streams: []string{l.stream, from}, Count: count, Block: block,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("take from the queue %s: %w", l.name, err)
	}
	var messages []redis.XMessage
	if len(streams) > 0 {
		messages = streams[0].Messages
	}
	if own {
		if len(messages) == 0 {
			l.recovered, l.recovering = l.recovering, 0
		} else {
			l.cursor = messages[len(messages)-1].ID
		}
	}
	return messages, nil
}

// connect opens the connection and stores its client id for unblock.
func (l *line) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	server, err := l.server(ctx)
	if err != nil {
		return err
	}
	conn := server.Conn()
	id, err := conn.ClientID(ctx).Result()
	if err != nil && redisdb.Away(err) {
		return errors.Join(err, conn.Close())
	}
	l.conn = conn
	l.client.Store(&blocked{server, id}) // id 0 without the permission for CLIENT ID: unblock does nothing
	return nil
}

// server returns the client for blocking calls of the node that has the stream.
func (l *line) server(ctx context.Context) (*redis.Client, error) {
	switch c := l.db.Block.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, l.stream)
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("%T is not a client of one server", l.db.Block)
}

// disconnect closes the connection and requests a recovery, because a reply may be lost.
func (l *line) disconnect() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
	l.client.Store(nil)
	l.requestRecovery()
	l.recovering = 0
}

// createGroup creates the group if it is missing.
func (l *line) createGroup(ctx context.Context) error {
	if _, err := l.run(ctx, l.scripts.group, []string{l.stream, l.waiting}, group); err != nil {
		return fmt.Errorf("create the group of the queue %s: %w", l.name, err)
	}
	return nil
}

// unblock ends a blocked read. If that fails, the read ends after its own timeout.
func (l *line) unblock() {
	b := l.client.Load()
	if b == nil || b.id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.pace.block)
	defer cancel()
	_ = b.server.ClientUnblock(ctx, b.id).Err() // fails if the read has ended
}

// close ends the connection.
func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close() // no read is running
		l.conn = nil
	}
	l.client.Store(nil)
}

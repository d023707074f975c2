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

// ownPage is how many of its own pending entries a consumer reads at once.
const ownPage = 1000

// line is a worker's connection to one queue's stream, which one read at a time uses.
//
//	doubt ──► own pending entries from the beginning, page by page ──► new ones, blocking
//	  ▲                                                                  │
//	  └── start, any error, a timeout, a settling that failed, a reclaim ┘
type line struct {
	*Broker
	queue
	consumer string

	doubts  atomic.Int64 // how often there was reason to look for own pending entries
	looked  int64        // doubts when they were last read to the end
	looking int64        // doubts when the present look began; 0: there is none
	cursor  string       // of the present look

	conn   *redis.Conn // nil: none yet
	client atomic.Pointer[blocked]
	failed error // the last read's timeout, or that there was no group
}

// blocked is who may be blocked, and where.
type blocked struct {
	server *redis.Client
	id     int64
}

func newLine(b *Broker, q queue, consumer string) *line {
	l := &line{Broker: b, queue: q, consumer: consumer}
	l.doubts.Store(1)
	return l
}

// doubt has own pending entries read before new ones.
func (l *line) doubt() { l.doubts.Add(1) }

// doubtful reports whether they are to be read.
func (l *line) doubtful() bool { return l.looked != l.doubts.Load() }

// read reads up to n entries: own pending ones while there is doubt, however large n is, then
// new ones, for which it waits a while. Where the answer may be lost, or the group was, it
// returns nothing, and an error when that is so twice in a row.
func (l *line) read(ctx context.Context, n int) ([]redis.XMessage, bool, error) {
	own := l.doubtful()
	messages, err := l.attempt(ctx, own, n)
	var network net.Error
	switch {
	case err == nil:
		l.failed = nil
		return messages, own, nil
	case noGroup(err):
		if err := l.createGroup(ctx); err != nil {
			l.breakOff()
			return nil, own, err
		}
		l.doubt()
	case errors.As(err, &network) && network.Timeout(), redisdb.HasCode(err, "UNBLOCKED"):
		l.breakOff()
	default:
		l.breakOff()
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
		if now := l.doubts.Load(); l.looking != now {
			l.looking, l.cursor = now, "0"
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
			l.looked, l.looking = l.looking, 0
		} else {
			l.cursor = messages[len(messages)-1].ID
		}
	}
	return messages, nil
}

// connect makes the connection, and notes who is blocked on it.
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
	l.client.Store(&blocked{server, id}) // 0, if it may not ask: it waits out its block
	return nil
}

// server is the one that has the stream, for what blocks.
func (l *line) server(ctx context.Context) (*redis.Client, error) {
	switch c := l.db.Block.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, l.stream)
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("%T is no client of a server", l.db.Block)
}

// breakOff gives the connection up, after which it is not known what it was served.
func (l *line) breakOff() {
	if l.conn != nil {
		_ = l.conn.Close() // it is broken
		l.conn = nil
	}
	l.client.Store(nil)
	l.doubt()
	l.looking = 0
}

// createGroup makes the group anew where there is none.
func (l *line) createGroup(ctx context.Context) error {
	if _, err := l.run(ctx, l.scripts.group, []string{l.stream, l.waiting}, group); err != nil {
		return fmt.Errorf("make the group of the queue %s: %w", l.name, err)
	}
	return nil
}

// unblock has a read return that waits. One that does not, waits no longer than its block.
func (l *line) unblock() {
	b := l.client.Load()
	if b == nil || b.id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.pace.block)
	defer cancel()
	_ = b.server.ClientUnblock(ctx, b.id).Err() // it may not be blocked any more
}

// close ends the connection.
func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close() // nothing is under way
		l.conn = nil
	}
	l.client.Store(nil)
}

package redisstream

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// group is the one consumer group of each stream.
	group = "belfry"
	// memoryShare is the percentage of maxmemory from which pushes are full.
	memoryShare = 80
	// maxDead is the approximate maximum number of stored copies of DEAD messages.
	maxDead = 10_000
	// carriers is the maximum number of concurrent carriers of a process: two while one run follows
	// another. Each blocks one connection per queue.
	carriers = 2
)

//go:embed *.lua
var files embed.FS

// script reads NAME.lua, which documents its keys and arguments.
func script(name string) *redis.Script { return redisdb.MustScript(files, name) }

// scripts are the atomic operations.
type scripts struct{ push, inside, settle, move, group, heartbeat, leave, reclaim *redis.Script }

// Options configures a Broker, in addition to its server.
type Options struct {
	// MaxQueued is the maximum number of waiting copies per queue. A push that exceeds it is answered with
	// full, except if the queue is empty.
	MaxQueued int
	// Lease is the time after which a claim expires without a renewal. Other workers take over entries
	// that have been pending for one and a half times as long.
	Lease time.Duration
	Log   zerolog.Logger // receives one line when the server becomes unreachable and one when it is back
}

// intervals are the timings of a carrier. Tests shorten them.
type intervals struct {
	block time.Duration // timeout of one blocking read
	hold  time.Duration // maximum time that an entry waits in memory for credits
	tick  time.Duration // between heartbeats, reclaims and trims
	alive time.Duration // age of the last heartbeat after which a worker is dead
	idle  time.Duration // age after which another worker takes over a pending entry
}

// Broker carries ids in streams of a server or a Cluster.
type Broker struct {
	db      *redisdb.DB
	queues  [2]queue // activities, bulk
	options Options
	pace    intervals
	scripts scripts
	outage  *outbox.CarrierOutage
}

// Config is the configuration of the Redis server.
type Config = redisdb.Config

// DefaultConfig returns the default configuration, without a URL.
func DefaultConfig() Config { return redisdb.DefaultConfig() }

// New returns a broker for a valid configuration. Its errors name the configuration keys. The broker
// connects on first use; the caller closes it.
func New(config Config, options Options) (*Broker, error) {
	if options.MaxQueued < 1 {
		return nil, fmt.Errorf("delivery.max_queued: %d is not allowed; allowed values: 1 or more", options.MaxQueued)
	}
	if options.Lease <= 0 {
		return nil, fmt.Errorf("delivery.lease: %s is not allowed; it must be positive", options.Lease)
	}
	db, err := redisdb.Open(config, "delivery.redis", 2*carriers)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		db: db, options: options,
		outage: outbox.NewCarrierOutage(options.Log, name, redisdb.Away, func(err error) bool { return !redisdb.Full(err) }),
		pace: intervals{
			block: time.Second, hold: 50 * time.Millisecond, tick: 3 * time.Second,
			alive: 15 * time.Second, idle: options.Lease * 3 / 2,
		},
		scripts: scripts{
			script("push"), script("inside"), script("settle"), script("move"),
			script("group"), script("heartbeat"), script("leave"), script("reclaim"),
		},
	}
	for i, name := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		b.queues[i] = keysOf(db, name)
	}
	return b, nil
}

// queue is the name and the keys of one queue.
type queue struct {
	name                                              outbox.Queue
	stream, state, waiting, returned, consumers, dead string
}

// keysOf returns the keys of the queue of that name.
func keysOf(db *redisdb.DB, name outbox.Queue) queue {
	tag := db.Tag(string(name))
	return queue{
		name: name, stream: tag + "stream", state: tag + "state", waiting: tag + "waiting",
		returned: tag + "returned", consumers: tag + "consumers", dead: tag + "dead",
	}
}

// Indexes of Broker.queues.
const (
	activities = 0
	bulk       = 1
)

func queueOf(k outbox.Key) int {
	if k.JobID < 0 {
		return activities
	}
	return bulk
}

func placeOf(name outbox.Queue) int {
	if name == outbox.Activities {
		return activities
	}
	return bulk
}

// entry is a copy that this worker has taken out of a stream.
type entry struct {
	outbox.Copy
	id    string
	lane  string
	text  string // encoded copy
	since time.Time
}

// text encodes a copy for the stream.
func text(k outbox.Key, push int64, lane string) string {
	b := make([]byte, 0, 48+len(lane))
	b = append(strconv.AppendInt(b, k.JobID, 10), ' ')
	b = append(strconv.AppendInt(b, k.ChannelID, 10), ' ')
	b = append(strconv.AppendInt(b, push, 10), ' ')
	return string(append(b, lane...))
}

// read decodes an entry. It returns false if the entry has no valid copy.
func read(m redis.XMessage, now time.Time) (entry, bool) {
	written, _ := m.Values["c"].(string)
	e := entry{id: m.ID, text: written, since: now}
	part := strings.SplitN(written, " ", 4)
	if len(part) != 4 {
		return e, false
	}
	var err [3]error
	e.JobID, err[0] = strconv.ParseInt(part[0], 10, 64)
	e.ChannelID, err[1] = strconv.ParseInt(part[1], 10, 64)
	e.Push, err[2] = strconv.ParseInt(part[2], 10, 64)
	e.lane = part[3]
	return e, errors.Join(err[:]...) == nil
}

// run runs a script of one queue.
func (b *Broker) run(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, error) {
	answer, err := s.Run(ctx, b.db.Do, keys, args...).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return answer, err
}

// Check implements outbox.Broker. It runs every command once, so that missing permissions are found.
func (b *Broker) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = b.db.Check(ctx)
	if err == nil {
		if err = b.rehearse(ctx); redisdb.Full(err) {
			err = nil // the relays drain it
		}
		if err != nil && !redisdb.Away(err) {
			return warnings, fmt.Errorf("delivery.redis.url: the user lacks permissions: %w "+
				"(ACL SETUSER … ~%s* +@stream +@hash +@sortedset +eval +evalsha +del +time +info +client)", err,
				strings.TrimSuffix(b.db.Tag(""), "}:"))
		}
	}
	if redisdb.Away(err) {
		err = fmt.Errorf("%w: %w", outbox.ErrAway, err)
	}
	return warnings, err
}

// rehearse runs every command once on the queue "check". Relays that start concurrently share it, so a
// queue that another relay has emptied is no error.
func (b *Broker) rehearse(ctx context.Context) error {
	q := keysOf(b.db, "check")
	if err := b.empty(ctx, q); err != nil {
		return err
	}
	item := text(outbox.Key{JobID: 1, ChannelID: 1}, 1, "")
	run := func(s *redis.Script, keys []string, args ...any) error {
		_, err := b.run(ctx, s, keys, args...)
		return err
	}
	// EVAL, which a cached script does not need until the server forgets it.
	if err := b.scripts.group.Eval(ctx, b.db.Do, []string{q.stream, q.waiting}, group).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if err := run(b.scripts.push, []string{q.stream, q.state, q.waiting}, group, "check", 1, 1, 1, memoryShare, item); err != nil {
		_ = b.empty(ctx, q) // the next check empties it too
		return err
	}
	id := "1-1" // if another relay has emptied the queue
	streams, err := b.db.Do.XReadGroup(ctx,
		&redis.XReadGroupArgs{Group: group, Consumer: "check", Streams: []string{q.stream, ">"}, Count: 1, Block: -1}).Result()
	if err == nil && len(streams) > 0 && len(streams[0].Messages) > 0 {
		id = streams[0].Messages[0].ID
	}
	for _, err := range []error{
		err,
		run(b.scripts.reclaim, []string{q.stream, q.returned}, group, "check", 0, id, 1),
		b.db.Do.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: q.stream, Group: group, Start: "-", End: "+", Count: 1}).Err(),
		b.db.Do.XInfoGroups(ctx, q.stream).Err(),
		run(b.scripts.settle, []string{q.stream, q.waiting, q.returned, q.dead}, group, maxDead, 1, 1, id, item, 1, 0, item),
		run(b.scripts.move, []string{q.stream, q.waiting, q.returned}, 1),
		run(b.scripts.inside, []string{q.stream, q.state, q.waiting, q.returned}, group),
		run(b.scripts.heartbeat, []string{q.stream, q.consumers}, group, "check", 1000),
		run(b.scripts.leave, []string{q.stream, q.consumers}, group, "check"),
	} {
		if err != nil && !errors.Is(err, redis.Nil) && !noGroup(err) && !redisdb.HasCode(err, "no such key") {
			_ = b.empty(ctx, q)
			return err
		}
	}
	return b.empty(ctx, q)
}

// Close implements outbox.Broker.
func (b *Broker) Close() error { return b.db.Close() }

// Empty implements outbox.Broker.
func (b *Broker) Empty(ctx context.Context) error {
	return errors.Join(b.empty(ctx, b.queues[activities]), b.empty(ctx, b.queues[bulk]))
}

func (b *Broker) empty(ctx context.Context, q queue) error {
	if err := b.db.Do.Del(ctx, q.stream, q.state, q.waiting, q.returned, q.consumers, q.dead).Err(); err != nil {
		return fmt.Errorf("empty the queue %s: %w", q.name, err)
	}
	return nil
}

// inside trims a queue and returns its last and oldest push.
func (b *Broker) inside(ctx context.Context, q queue) (in outbox.Inside, err error) {
	answer, err := b.run(ctx, b.scripts.inside, []string{q.stream, q.state, q.waiting, q.returned}, group)
	if err != nil {
		return in, fmt.Errorf("read the pushes of the queue %s: %w", q.name, err)
	}
	list, _ := answer.([]any)
	if len(list) != 3 {
		return in, fmt.Errorf("read the pushes of the queue %s: unexpected reply %v", q.name, answer)
	}
	in.Epoch, _ = list[0].(string)
	in.Last, _ = list[1].(int64)
	in.Oldest, _ = list[2].(int64)
	return in, nil
}

// Queues implements outbox.Broker.
func (b *Broker) Queues(ctx context.Context) ([]outbox.QueueStatus, error) {
	list := make([]outbox.QueueStatus, 0, len(b.queues))
	for _, q := range b.queues {
		s, err := b.status(ctx, q)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (b *Broker) status(ctx context.Context, q queue) (s outbox.QueueStatus, err error) {
	s.Queue = q.name
	if s.Inside, err = b.inside(ctx, q); err != nil {
		return s, err
	}
	server, err := b.db.Master(ctx, q.stream)
	if err != nil {
		return s, fmt.Errorf("read the status of the queue %s: %w", q.name, err)
	}
	pipe := server.Pipeline()
	entries, waiting, dead := pipe.XLen(ctx, q.stream), pipe.ZCard(ctx, q.waiting), pipe.XLen(ctx, q.dead)
	pending, seen := pipe.XPending(ctx, q.stream, group), pipe.ZRangeWithScores(ctx, q.consumers, 0, -1)
	clock := pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil && !noGroup(err) {
		return s, fmt.Errorf("read the status of the queue %s: %w", q.name, err)
	}
	now, err := clock.Result()
	if err != nil {
		return s, fmt.Errorf("read the status of the queue %s: %w", q.name, err)
	}
	taken := make(map[string]int64)
	if p, err := pending.Result(); err == nil {
		s.Taken, taken = p.Count, p.Consumers
	}
	s.Later, s.Dead, s.Ready = waiting.Val(), dead.Val(), max(0, entries.Val()-s.Taken)
	for _, z := range seen.Val() {
		name, _ := z.Member.(string)
		w := outbox.WorkerStatus{Name: name, Taken: taken[name]}
		if at := time.UnixMilli(int64(z.Score)); now.Sub(at) <= b.pace.alive {
			w.Seen = at
		}
		delete(taken, name)
		if w.Taken > 0 || !w.Seen.IsZero() {
			s.Workers = append(s.Workers, w)
		}
	}
	for name, n := range taken {
		s.Workers = append(s.Workers, outbox.WorkerStatus{Name: name, Taken: n})
	}
	s.Full = s.Ready+s.Later >= int64(b.options.MaxQueued) || memoryFull(ctx, server)
	return s, nil
}

// memoryFull reports whether a server has used more than memoryShare of its maxmemory.
func memoryFull(ctx context.Context, server *redis.Client) bool {
	info, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return false // the user may lack the permission for INFO
	}
	number := func(key string) (n int64) {
		_, after, _ := strings.Cut(info, "\n"+key+":")
		line, _, _ := strings.Cut(after, "\n")
		n, _ = strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		return n
	}
	limit := number("maxmemory")
	return limit > 0 && number("used_memory") > limit*memoryShare/100
}

// noGroup reports whether the consumer group or the stream is missing.
func noGroup(err error) bool { return redisdb.HasCode(err, "NOGROUP") }

package redislist

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// path is the key of the server in the configuration.
	path = "delivery.redis"
	// carriers is the number of relays of one process that can wait for ids concurrently. Further
	// relays queue for a connection.
	carriers = 8
	// window is the number of ids at the head among which ids of jobs with credit are searched.
	window = 1000
	// deadKept is the maximum number of stored ids of dead letters.
	deadKept = 1000
)

//go:embed *.lua
var files embed.FS

// script reads NAME.lua, which documents its keys and arguments.
func script(name string) *redis.Script { return redisdb.MustScript(files, name) }

// scripts are the atomic operations.
type scripts struct{ push, take, settle, keep, giveBack, status *redis.Script }

// Options configures a Broker, in addition to its server.
type Options struct {
	// MaxQueued is the maximum number of waiting ids per queue. A push that exceeds it is answered with
	// full, except if the queue is empty.
	MaxQueued int
	Log       zerolog.Logger // receives one line when the server becomes unreachable and one when it is back
}

// intervals are the timings of a carrier. Tests shorten them.
type intervals struct {
	block time.Duration // timeout of one blocking call
	tick  time.Duration // maximum time between heartbeats
	alive time.Duration // age of the last heartbeat after which a worker is dead
	stuck time.Duration // age after which an id of a live worker is returned
	scan  time.Duration // between scans of all keys for the ids of unregistered workers
	held  time.Duration // time without credit after which ids of a job may be deferred
	off   time.Duration // delay of deferred ids
}

// Broker carries ids in lists of a server or a Cluster. It is safe for concurrent use.
type Broker struct {
	db      *redisdb.DB
	queues  [2]keys // activities, bulk
	options Options
	pace    intervals
	scripts scripts
	health  health
}

// Config is the configuration of the Redis server.
type Config = redisdb.Config

// DefaultConfig returns the default configuration, without a URL.
func DefaultConfig() Config { return redisdb.DefaultConfig() }

// New returns a broker for a valid configuration. Its errors name the keys. It connects when it
// is first used; the caller closes it.
func New(config Config, options Options) (*Broker, error) {
	if options.MaxQueued < 1 {
		return nil, fmt.Errorf("delivery.max_queued: %d is not allowed; allowed values: 1 or more", options.MaxQueued)
	}
	db, err := redisdb.Open(config, path, 2*carriers)
	if err != nil {
		return nil, err
	}
	return &Broker{
		db: db, options: options, health: health{log: options.Log},
		queues: [2]keys{keysOf(db, outbox.Activities), keysOf(db, outbox.Bulk)},
		pace: intervals{
			block: time.Second, tick: time.Second, alive: 30 * time.Second, stuck: outbox.RequeueAfter, scan: 5 * time.Minute,
			held: time.Second, off: 2 * time.Second,
		},
		scripts: scripts{script("push"), script("take"), script("settle"), script("keep"), script("return"), script("status")},
	}, nil
}

// keys are the Redis keys of one queue.
type keys struct {
	name                                                outbox.Queue
	tag                                                 string
	state, main, waiting, workers, monitor, dead, lists string
}

func keysOf(db *redisdb.DB, name outbox.Queue) keys {
	tag := db.Tag(string(name))
	return keys{
		name: name, tag: tag, state: tag + "state", main: tag + "main", waiting: tag + "waiting",
		workers: tag + "workers", monitor: tag + "monitor", dead: tag + "dead", lists: tag + "processing:",
	}
}

func (k keys) processing(worker string) string { return k.lists + worker }

// Indexes of Broker.queues.
const (
	activities = 0
	bulk       = 1
)

func placeOf(name outbox.Queue) int {
	if name == outbox.Activities {
		return activities
	}
	return bulk
}

func queueOf(k outbox.Key) int {
	if k.JobID < 0 {
		return activities
	}
	return bulk
}

// run runs a script once, ignoring the cancellation of ctx: the caller must know which ids it moved.
func (b *Broker) run(ctx context.Context, s *redis.Script, keys []string, args ...any) *redis.Cmd {
	return s.Run(context.WithoutCancel(ctx), b.db.Do, keys, args...)
}

// Carrier implements outbox.Broker.
func (b *Broker) Carrier(name string, claim outbox.Claim) outbox.Carrier {
	c := &carrier{Broker: b, name: name, claim: claim, arrived: make(chan struct{}, 1), jobs: make(map[int64]*jobSeen)}
	for i := range c.taken {
		c.taken[i] = &taken{keys: b.queues[i], claimed: make(map[outbox.Key]string), doubt: true, wanted: make(chan struct{}, 1),
			earlier: make(chan struct{}, 1)}
	}
	return c
}

// Check implements outbox.Broker.
func (b *Broker) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = b.db.Check(ctx)
	if err == nil {
		err = b.rehearse(ctx)
		if redisdb.Full(err) {
			err = nil // a full server drains
		}
		if err != nil && !redisdb.Away(err) {
			return warnings, fmt.Errorf("%s.url: the user lacks permissions: %w "+
				"(ACL SETUSER … ~%s* +@list +@hash +@sortedset +eval +evalsha +get +set +del +unlink +scan +time +info)", path, err,
				strings.TrimSuffix(b.db.Tag(""), "}:"))
		}
	}
	if redisdb.Away(err) {
		err = fmt.Errorf("%w: %w", outbox.ErrAway, err)
	}
	return warnings, err
}

// rehearse runs each operation once on a separate queue. Relays that start at the same time share the
// queue, so redis.Nil, an id taken by another relay, is not an error.
func (b *Broker) rehearse(ctx context.Context) error {
	k := keysOf(b.db, "check")
	empty := func() error { return b.empty(ctx, k) }
	if err := empty(); err != nil {
		return err
	}
	item := outbox.Copy{Key: outbox.Key{JobID: 1, ChannelID: 1}, Push: 1}
	text := itemOf(item, "")
	for _, err := range []error{
		b.run(ctx, b.scripts.push, []string{k.state, k.main, k.waiting, k.workers}, k.tag, "check", 1, 1, 1, text).Err(),
		b.db.Block.BLMove(ctx, k.main, k.main, "LEFT", "LEFT", b.pace.block).Err(),
		b.run(ctx, b.scripts.take, []string{k.state, k.main, k.waiting, k.workers, k.processing("check")}, "check", 1, window, 1, 1).Err(),
		b.run(ctx, b.scripts.settle, []string{k.state, k.main, k.waiting, k.dead, k.processing("check")}, deadKept, text, 0).Err(),
		b.run(ctx, b.scripts.keep, []string{k.state, k.main, k.waiting, k.workers, k.monitor}, "check", 1000, 1).Err(),
		b.run(ctx, b.scripts.giveBack, []string{k.state, k.main, k.workers, k.processing("check")}, "check", -1, 0).Err(),
		// EVAL, which a cached script does not need until the server forgets it.
		b.scripts.status.Eval(ctx, b.db.Do, []string{k.state, k.main, k.waiting, k.workers, k.dead}, k.tag, 1).Err(),
	} {
		if err != nil && !errors.Is(err, redis.Nil) {
			return errors.Join(err, empty())
		}
	}
	return empty()
}

// Empty implements outbox.Broker.
func (b *Broker) Empty(ctx context.Context) error {
	return errors.Join(b.empty(ctx, b.queues[activities]), b.empty(ctx, b.queues[bulk]))
}

func (b *Broker) empty(ctx context.Context, k keys) error {
	names := []string{k.state, k.main, k.waiting, k.workers, k.monitor, k.dead}
	workers, err := b.scan(ctx, k)
	if err != nil {
		return err
	}
	for _, w := range workers {
		names = append(names, k.processing(w))
	}
	if err := b.db.Do.Unlink(ctx, names...).Err(); err != nil {
		return fmt.Errorf("empty the queue %s: %w", k.name, err)
	}
	return nil
}

// scan returns the workers that have a processing key, registered or not.
func (b *Broker) scan(ctx context.Context, k keys) (workers []string, err error) {
	node, err := b.db.Master(ctx, k.main)
	if err != nil {
		return nil, fmt.Errorf("find the node of the queue %s: %w", k.name, err)
	}
	for cursor := uint64(0); ; {
		var found []string
		if found, cursor, err = node.Scan(ctx, cursor, k.lists+"*", 1000).Result(); err != nil {
			return nil, fmt.Errorf("scan for the ids taken by workers of the queue %s: %w", k.name, err)
		}
		for _, key := range found {
			workers = append(workers, strings.TrimPrefix(key, k.lists))
		}
		if cursor == 0 {
			return workers, nil
		}
	}
}

// Close implements outbox.Broker.
func (b *Broker) Close() error { return b.db.Close() }

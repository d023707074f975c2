package abortcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/job"
)

// keyPrefix and a job's id are the key of its flag.
const keyPrefix = "belfry:abort:"

// What Get returns for a key that exists and cannot be read.
const (
	UnknownActor     = "unknown"
	unreadableReason = "the abort flag in the cache could not be read"
)

// poolSize is the number of connections at most: one for each job that this
// process walks, with some to spare. More callers than that wait, within Timeout.
const poolSize = 8

// Cache is a Redis server's abort flags. It may be used from any goroutine.
type Cache struct {
	client  *redis.Client
	ttl     time.Duration
	timeout time.Duration
}

// flag is what Set writes. At is for people, in UTC by the clock of this process.
type flag struct {
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Open returns a cache for a valid configuration with a URL. It connects with the
// first call, so that a Redis that is down keeps no belfry from starting. The
// caller closes it.
func Open(config Config) (*Cache, error) {
	if config.URL == "" {
		return nil, errURL(redisdb.ErrURL)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	options, err := redisdb.Single(config.URL, config.Timeout)
	if err != nil {
		return nil, errURL(err)
	}
	options.PoolSize = poolSize
	return &Cache{client: redis.NewClient(options), ttl: config.TTL, timeout: config.Timeout}, nil
}

// Close closes the connections. Calls in progress and later ones fail.
func (c *Cache) Close() error {
	if err := c.client.Close(); err != nil {
		return fmt.Errorf("abort cache: close: %w", err)
	}
	return nil
}

// Set flags the job until Clear or the end of the time to live; of several calls
// the newest counts. After an error the flag may or may not be set; repeating Set
// is harmless.
func (c *Cache) Set(ctx context.Context, jobID int64, act job.Act) error {
	value, err := json.Marshal(flag{Actor: act.Actor, Reason: act.Reason, At: time.Now().UTC()})
	if err != nil {
		return wrap("set", jobID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return wrap("set", jobID, c.client.Set(ctx, key(jobID), value, c.ttl).Err())
}

// Get returns the actor and the reason of the flag, or nil if there is none. An error is neither: ask the
// database.
func (c *Cache) Get(ctx context.Context, jobID int64) (*job.Act, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	value, err := c.client.Get(ctx, key(jobID)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil //nolint:nilnil // nil is no flag, by the interface's definition
	case redis.HasErrorPrefix(err, "WRONGTYPE"): // a list, a set …: there, and not readable
		return unreadable(), nil
	case err != nil:
		return nil, wrap("get", jobID, err)
	}
	return decode(value), nil
}

// Clear removes the flag; removing none is no error. After an error the flag may
// or may not be there; repeating Clear is harmless.
func (c *Cache) Clear(ctx context.Context, jobID int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return wrap("clear", jobID, c.client.Del(ctx, key(jobID)).Err())
}

// decode reads a key's value. There is no value that means no flag.
func decode(value []byte) *job.Act {
	var f *struct{ Actor, Reason string } // nothing else has to be readable
	if err := json.Unmarshal(value, &f); err != nil || f == nil {
		return unreadable()
	}
	if f.Actor == "" {
		f.Actor = UnknownActor
	}
	return &job.Act{Actor: f.Actor, Reason: f.Reason}
}

func unreadable() *job.Act { return &job.Act{Actor: UnknownActor, Reason: unreadableReason} }

func key(jobID int64) string { return keyPrefix + strconv.FormatInt(jobID, 10) }

// wrap names the operation and the job; nil stays nil.
func wrap(operation string, jobID int64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("abort cache: %s job %d: %w", operation, jobID, err)
}

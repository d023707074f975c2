package redisdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// commands is how many connections there are at most for what does not wait.
	commands = 16
	// moves is how often a command is sent where a Cluster says that its key has moved to, and
	// movePause how long it takes at least to learn where that is.
	moves     = 5
	movePause = 20 * time.Millisecond
)

// DB is a server, the servers of a Cluster, or the master that Sentinels name. It may be used
// from any goroutine.
type DB struct {
	// Do runs commands and scripts that do not wait.
	Do redis.UniversalClient
	// Block runs those that do: each has a connection to itself as long as it waits. Cancelling
	// a context does not end them; a deadline does, and breaks the connection.
	Block redis.UniversalClient

	config   Config
	blocking int
}

// Single returns the options of a client of one server, by its URL, whose calls last no longer
// than timeout. The error is ErrURL.
func Single(url string, timeout time.Duration) (*redis.Options, error) {
	options, _, err := parse(url)
	if err != nil {
		return nil, err
	}
	return single(options, universal(options, timeout)), nil
}

func single(options *redis.Options, u *redis.UniversalOptions) *redis.Options {
	one := u.Simple()
	one.Network = options.Network
	return one
}

// universal are the options of every client: a command is sent once, within timeout. A new
// connection says no more than it must: AUTH and SELECT.
func universal(options *redis.Options, timeout time.Duration) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, DB: options.DB,
		TLSConfig:  options.TLSConfig,
		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, // none
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		ContextTimeoutEnabled: true,
		PipelinePoolSize:      -1, // pipelines go with the others
		Protocol:              2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   dialer(redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: options.TLSConfig})),
	}
}

// Open returns clients for a valid configuration, with as many connections for takes that
// wait at the same time. Errors are about files of certificates, and name the keys below path.
// The caller closes it.
func Open(c Config, path string, blocking int) (*DB, error) {
	if err := c.Validate(path); err != nil {
		return nil, err
	}
	do, err := c.client(path, commands)
	if err != nil {
		return nil, err
	}
	block, err := c.client(path, blocking+1)
	if err != nil {
		return nil, errors.Join(err, do.Close())
	}
	return &DB{Do: do, Block: block, config: c, blocking: blocking}, nil
}

func (c Config) client(path string, connections int) (redis.UniversalClient, error) {
	options, query, err := parse(c.URL, "addr", "sentinel_username", "sentinel_password")
	if err != nil {
		return nil, fmt.Errorf("%s.url: %w", path, err)
	}
	if options.TLSConfig != nil {
		if err := c.certificates(path, options.TLSConfig); err != nil {
			return nil, err
		}
	}
	if options.TLSConfig != nil && (c.Cluster || c.Sentinel != "") {
		options.TLSConfig.ServerName = "" // each server's certificate has the name that it is called by
	}
	u := universal(options, c.Timeout)
	u.PoolSize, u.Addrs = connections, hosts(options, query)
	switch {
	case c.Cluster:
		cluster := u.Cluster()
		cluster.DisableRoutingPolicies = true // by the key alone, without asking about commands
		client := redis.NewClusterClient(cluster)
		client.AddHook(moved{})
		return client, nil
	case c.Sentinel != "":
		failover := u.Failover()
		failover.MasterName = c.Sentinel
		failover.SentinelUsername, failover.SentinelPassword = query.Get("sentinel_username"), query.Get("sentinel_password")
		return redis.NewFailoverClient(failover), nil
	}
	return redis.NewClient(single(options, u)), nil
}

// Wait makes a call that waits, on a connection of Block, and has the server end its waiting when
// ctx ends: the call returns redis.Nil then, or what came before. Of a Cluster, and where the
// user may not run CLIENT, the call's own timeout has to do. What a call took that ended so is
// the caller's to handle.
func (d *DB) Wait(ctx context.Context, call func(on redis.Cmdable) error) error {
	client, one := d.Block.(*redis.Client)
	if !one {
		return call(d.Block)
	}
	conn := client.Conn()
	defer func() { _ = conn.Close() }() // it goes back to the pool
	if id, err := conn.ClientID(ctx).Result(); err == nil {
		defer context.AfterFunc(ctx, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.config.Timeout)
			defer cancel()
			_ = d.Do.ClientUnblock(ctx, id).Err() // the timeout ends it as well
		})()
	}
	return call(conn)
}

// Close closes the connections. Calls in progress and later ones fail.
func (d *DB) Close() error {
	if err := errors.Join(d.Do.Close(), d.Block.Close()); err != nil {
		return fmt.Errorf("close the connections to Redis: %w", err)
	}
	return nil
}

// Tag is what all keys of one queue begin with: they are on one node of a Cluster.
func (d *DB) Tag(queue string) string { return "{" + d.config.KeyPrefix + ":" + queue + "}:" }

// Master is the server that has a key, for what no key says.
func (d *DB) Master(ctx context.Context, key string) (*redis.Client, error) {
	switch c := d.Do.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("%T is no client of one server", d.Do)
}

// moved sends a command again that a Cluster's node did not run because it does not have the
// key any more. Every other error is the caller's: what it says of what was done is nothing.
type moved struct{}

func (moved) DialHook(next redis.DialHook) redis.DialHook { return next }

func (moved) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (moved) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		for n := 1; n < moves; n++ {
			if _, is := redis.IsMovedError(err); !is {
				break
			}
			timer := time.NewTimer(movePause << n) // the client has begun to ask where keys are
			select {
			case <-ctx.Done():
				timer.Stop()
				return err
			case <-timer.C:
			}
			cmd.SetErr(nil)
			err = next(ctx, cmd)
		}
		return err
	}
}

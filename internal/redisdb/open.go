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
	// commands is the maximum number of connections for non-blocking commands.
	commands = 16
	// moves is how often a command is sent again after MOVED, and movePause the first pause before it.
	moves     = 5
	movePause = 20 * time.Millisecond
)

// DB connects to a server, the servers of a Cluster, or the master that Sentinels name. It is safe for
// concurrent use.
type DB struct {
	// Do runs non-blocking commands and scripts.
	Do redis.UniversalClient
	// Block runs blocking calls, each on its own connection. Cancelling a context does not end them; a
	// deadline does, and closes the connection.
	Block redis.UniversalClient

	config   Config
	blocking int
}

// Single returns the options of a client of the server at a URL, whose calls take at most timeout. Its
// error is ErrURL.
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

// universal returns the options of every client: a command is sent once, within timeout. A new
// connection sends only AUTH and SELECT.
func universal(options *redis.Options, timeout time.Duration) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, DB: options.DB,
		TLSConfig:  options.TLSConfig,
		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, // none
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		ContextTimeoutEnabled: true,
		PipelinePoolSize:      -1, // pipelines share the pool
		Protocol:              2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   dialer(redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: options.TLSConfig})),
	}
}

// Open returns clients for a valid configuration, with the given number of connections for concurrent
// blocking calls. Errors concern certificate files and name the keys below path. The caller closes the
// DB.
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
		options.TLSConfig.ServerName = "" // each server's certificate has its own name
	}
	u := universal(options, c.Timeout)
	u.PoolSize, u.Addrs = connections, hosts(options, query)
	switch {
	case c.Cluster:
		cluster := u.Cluster()
		cluster.DisableRoutingPolicies = true // route by key, without COMMAND
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

// Wait makes a blocking call on a connection of Block. When ctx ends, the server unblocks the call,
// which returns redis.Nil or its result. In a Cluster, or if the user may not run CLIENT, the call ends
// by its own timeout. The caller must handle a result of an interrupted call.
func (d *DB) Wait(ctx context.Context, call func(on redis.Cmdable) error) error {
	client, one := d.Block.(*redis.Client)
	if !one {
		return call(d.Block)
	}
	conn := client.Conn()
	defer func() { _ = conn.Close() }() // returns it to the pool
	if id, err := conn.ClientID(ctx).Result(); err == nil {
		defer context.AfterFunc(ctx, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.config.Timeout)
			defer cancel()
			_ = d.Do.ClientUnblock(ctx, id).Err() // otherwise the timeout ends it
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

// Tag returns the prefix of all keys of one queue, which puts them on one node of a Cluster.
func (d *DB) Tag(queue string) string { return "{" + d.config.KeyPrefix + ":" + queue + "}:" }

// Master returns the client of the server that has a key, for commands without a key.
func (d *DB) Master(ctx context.Context, key string) (*redis.Client, error) {
	switch c := d.Do.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("%T is no client of one server", d.Do)
}

// moved sends a command again if a Cluster's node answered MOVED. It returns every other error: the
// command may have been executed.
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
			timer := time.NewTimer(movePause << n) // the client is reloading the slots
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

package belfry

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Option adds a part to an Instance. If options exclude each other, the last one wins. The program closes the
// parts that it gives, after the end of Run.
type Option func(*Instance)

// WithPool lets belfry work on a pool of the program. It replaces database.*. Its sessions need PostgreSQL's
// defaults for standard_conforming_strings, default_transaction_* and similar settings, which Run checks.
// Behind a pooler in transaction mode its connections must not prepare statements
// (default_query_exec_mode=cache_describe); a pool of belfry's own detects that.
func WithPool(pool *pgxpool.Pool) Option {
	return func(i *Instance) {
		i.parts.Pool = pool
		if pool == nil {
			i.problems = append(i.problems, errors.New("WithPool: nil is not allowed; allowed values: an open pool"))
		}
	}
}

// WithLogger sets the logger. Without one nothing is logged.
func WithLogger(log zerolog.Logger) Option { return func(i *Instance) { i.parts.Log = log } }

// WithSlog is WithLogger for log/slog. It preserves levels, and fields in their order. Levels that log does not
// enable are not written.
func WithSlog(log *slog.Logger) Option {
	return func(i *Instance) {
		if log == nil {
			i.problems = append(i.problems, errors.New("WithSlog: nil is not allowed; allowed values: a logger"))
			return
		}
		i.parts.Log = overSlog(log.Handler())
	}
}

// WithSenders adds senders: clients of the program, clients of provider.New, or the senders of a configuration
// file, which node/settings opens. Begin a SenderConfig with relay.DefaultSenderConfig. List media whose
// senders need no address of a channel in Config.Delivery.Compose.NoAddress.
func WithSenders(senders ...relay.Sender) Option {
	return func(i *Instance) {
		i.parts.Senders = append(i.parts.Senders, senders...)
		for _, s := range senders {
			if s.Client == nil {
				i.problems = append(i.problems, fmt.Errorf("WithSenders: sender %q has no client; allowed values: a sender.Sender", s.Name))
			}
		}
	}
}

// WithCarrier sets the carrier of message ids: redislist.New, redisstream.New or jetstream.New. Nil, as
// without the option, means PostgreSQL. All relays on a database use the same carrier.
func WithCarrier(carrier outbox.Broker) Option {
	return func(i *Instance) { i.parts.Broker = carrier }
}

// WithAbortCache sets a cache of abort flags, such as abortcache.Open, which can abort a job while the database
// is down.
func WithAbortCache(cache job.AbortCache) Option {
	return func(i *Instance) { i.parts.Cache = cache }
}

// WithMonitor exposes metrics and health, such as metrics.OpenMonitor.
func WithMonitor(m node.Monitor) Option { return func(i *Instance) { i.parts.Monitor = m } }

// WithTypes adds job types to inbox and push. Run registers them in the database. Their jobs can be enqueued
// from then on.
func WithTypes(types ...job.Type) Option {
	return func(i *Instance) { i.parts.Types = append(i.parts.Types, types...) }
}

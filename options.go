package belfry

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Option is something of the program's own that an Instance works with. Of options that exclude
// each other the last one counts.
type Option func(*Instance)

// WithPool has belfry work on a pool of the program's, which stays open. database.* then means
// nothing. Its sessions have PostgreSQL's defaults for standard_conforming_strings,
// default_transaction_* and the like, which Run checks. Behind a pooler in transaction mode its
// connections must not prepare statements (default_query_exec_mode=cache_describe), which a
// pool of belfry's finds out by itself.
func WithPool(pool *pgxpool.Pool) Option {
	return func(i *Instance) {
		i.pool = pool
		if pool == nil {
			i.problems = append(i.problems, errors.New("WithPool: nil is not allowed; allowed values: an open pool"))
		}
	}
}

// WithLogger has belfry log by log. Without any nothing is logged. log.level and log.format are
// the command line's.
func WithLogger(log zerolog.Logger) Option { return func(i *Instance) { i.log = log } }

// WithSlog is WithLogger for log/slog. Levels and fields are carried over, in their order;
// what log does not enable is not written.
func WithSlog(log *slog.Logger) Option {
	return func(i *Instance) {
		if log == nil {
			i.problems = append(i.problems, errors.New("WithSlog: nil is not allowed; allowed values: a logger"))
			return
		}
		i.log = overSlog(log.Handler())
	}
}

// WithSenders adds senders to those of the configuration: clients of one's own, or
// provider.New's. They stay open. Begin their SenderConfig with relay.DefaultSenderConfig. Name
// media all of whose senders need no address of a channel in Config.Delivery.Compose.NoAddress.
func WithSenders(senders ...relay.Sender) Option {
	return func(i *Instance) {
		i.senders = append(i.senders, senders...)
		for _, s := range senders {
			if s.Client == nil {
				i.problems = append(i.problems, fmt.Errorf("WithSenders: sender %q has no client; allowed values: a sender.Sender", s.Name))
			}
		}
	}
}

// WithTypes adds job types to inbox and push. The database learns of them when Run begins; from
// then on jobs of them may be enqueued.
func WithTypes(types ...job.Type) Option {
	return func(i *Instance) { i.types = append(i.types, types...) }
}

// thisBuild says which belfry this program has.
func thisBuild() metrics.Build {
	b := metrics.Build{Version: "(devel)", Commit: "unknown", Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/belfryhq/belfry" {
				b.Version = m.Version
			}
		}
	}
	return b
}

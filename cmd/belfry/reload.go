package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// reloadOnHangup reloads the configuration of a node, which was started with current, at SIGHUP, until the returned function is called,
// which waits for the end. Signals are received from the moment reloadOnHangup returns.
func reloadOnHangup(ctx context.Context, sources config.Input, current settings.Config, n *node.Node, logger zerolog.Logger,
	level *settings.LiveLevel) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var loop sync.WaitGroup
	loop.Go(func() {
		on(ctx, hangups, func(ctx context.Context) { reload(ctx, sources, current, n, logger, level) })
	})
	return func() {
		cancel()
		loop.Wait()
		signal.Stop(hangups)
	}
}

// reload reads the configuration again. An invalid one changes nothing, and all of its problems are logged.
func reload(ctx context.Context, sources config.Input, current settings.Config, n *node.Node, logger zerolog.Logger,
	level *settings.LiveLevel) {
	next, err := settings.Load(sources, nil)
	var changed, waiting []string
	if err == nil {
		changed, waiting, err = n.Reload(ctx, current.Update(next.Config))
	}
	if err != nil {
		for _, line := range config.Lines(err) {
			logger.Error().Str("error", line).Msg("configuration refused; nothing changed")
		}
		return
	}
	level.Set(next.LogLevel(false))
	logger.Info().Strs("keys", changed).Msg("configuration reloaded")
	if len(waiting) > 0 {
		logger.Warn().Strs("keys", waiting).Msg("changed, and takes effect at the next start")
	}
}

// on calls do for each value of c until ctx is cancelled.
func on[T any](ctx context.Context, c <-chan T, do func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			do(ctx)
		}
	}
}

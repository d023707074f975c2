package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/node"
)

// reloads has a node read the configuration of cmd again at SIGHUP, until the returned
// function is called, which waits for the end. Signals count from the moment reloads returns.
func (a *app) reloads(cmd *cobra.Command, p *node.Node, logger zerolog.Logger, level *liveLevel) (end func()) {
	ctx, cancel := context.WithCancel(cmd.Context())
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var loop sync.WaitGroup
	loop.Go(func() { on(ctx, hangups, func(ctx context.Context) { a.reload(ctx, cmd, p, logger, level) }) })
	return func() {
		cancel()
		loop.Wait()
		signal.Stop(hangups)
	}
}

// reload reads the configuration again. A bad one changes nothing, and every problem of it is
// logged.
func (a *app) reload(ctx context.Context, cmd *cobra.Command, p *node.Node, logger zerolog.Logger, level *liveLevel) {
	next, err := a.settings(cmd)
	var changed, waiting []string
	if err == nil {
		changed, waiting, err = p.Reload(ctx, next.Config)
	}
	if err != nil {
		for _, line := range problemLines(err) {
			logger.Error().Str("error", line).Msg("configuration refused; nothing changed")
		}
		return
	}
	level.set(logLevel(next, false))
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

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
)

func newChannelsCommand(a *app) *cobra.Command {
	return a.nounCommand("channels",
		newChannelsImportCommand(a), newChannelsGenerateCommand(a), a.nounCommand("channels segment"))
}

// ticker limits how often a long command says where it is.
type ticker struct {
	app   *app
	live  *progress
	began time.Time
	last  time.Time
}

func (a *app) newTicker() *ticker {
	now := a.now()
	return &ticker{app: a, live: a.newProgress(), began: now, last: now}
}

// tell shows one line on the terminal, or now and then elsewhere.
func (t *ticker) tell(format string, args ...any) {
	every := plainEvery
	if t.live.width != nil {
		every = redrawEvery
	}
	now := t.app.now()
	if now.Sub(t.last) < every {
		return
	}
	t.last = now
	t.live.line(fmt.Sprintf(format, args...))
}

// perSecond is the rate since the beginning.
func (t *ticker) perSecond(n int64) string {
	took := t.app.now().Sub(t.began)
	if took <= 0 {
		return ""
	}
	return fmt.Sprintf("%s/s", printer.Grouped(int64(float64(n)/took.Seconds())))
}

// end removes the live line and returns how long it took.
func (t *ticker) end() string {
	t.live.end()
	return printer.Short(t.app.now().Sub(t.began))
}

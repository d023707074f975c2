package main

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	followEvery = 500 * time.Millisecond // between queries of a delivery that is shown
	followLog   = 10 * time.Second       // between log entries about it
)

// following renders the progress of a delivery: on a terminal as one line, elsewhere as a line every
// text.PlainEvery, or as entries of the log.
type following struct {
	stats   func() relay.Stats
	waiting int64
	own     lifecycle.Meter // messages that this relay finished
	fall    lifecycle.Meter // decrease of the waiting messages, through every relay
}

// observe records a measurement.
func (f *following) observe(now time.Time, waiting int64) {
	f.waiting = waiting
	f.own.Observe(now, settledBy(f.stats()))
	f.fall.Observe(now, -waiting)
}

// settledBy returns the number of messages that a relay has finished.
func settledBy(st relay.Stats) int64 { return st.Sent + st.Dead + st.Refused + st.Cancelled }

// line renders the delivery as one line, with a bar of size characters; 0 means no bar.
func (f *following) line(size int) string {
	st := f.stats()
	done := settledBy(st)
	all := done + f.waiting
	if f.waiting == 0 {
		return "delivery: " + text.Counted(done, "message") + deadText(st.Dead) + ", nothing waits"
	}
	line := "delivery: "
	if size > 0 {
		line += text.Bar(done, all, size) + " "
	}
	line += jobs.Percent(done, all)
	if rate, known := f.own.Rate(); known {
		fastest := &f.own
		if all, _ := f.fall.Rate(); all > rate { // other relays send too
			fastest = &f.fall
		}
		line += text.PaceText(&rate, fastest.Left(f.waiting))
	}
	return line + fmt.Sprintf("; %s / %s messages", text.Grouped(done), text.Grouped(all)) + deadText(st.Dead)
}

func deadText(n int64) string {
	if n == 0 {
		return ""
	}
	return ", " + text.Grouped(n) + " dead"
}

// follow shows a delivery until the returned function is called, which waits for its end. Without a
// terminal it writes to log, if there is one, while messages are sent.
func follow(ctx context.Context, db *database, show *progress, log *zerolog.Logger, stats func() relay.Stats) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f := &following{stats: stats}
		again := time.NewTicker(followEvery)
		defer again.Stop()
		shown, before := show.now(), int64(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			now := show.now()
			if show.OnTerminal() || log == nil { // the log does not contain the waiting messages
				waiting, err := delivery.Waiting(ctx, db.Pool)
				if err != nil {
					continue // the relay logs it
				}
				f.observe(now, waiting)
			}
			switch done := settledBy(stats()); {
			case show.OnTerminal():
				show.Line(f.line(min(20, show.Width()/4)))
			case log != nil && now.Sub(shown) >= followLog:
				if done > before {
					log.Info().Int64("rows", done-before).Int64("elapsed_ms", now.Sub(shown).Milliseconds()).Msg("messages delivered")
				}
				shown, before = now, done
			case log == nil && now.Sub(shown) >= text.PlainEvery:
				shown = now
				show.Line(f.line(0))
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	followEvery = 500 * time.Millisecond // how often a delivery that is shown is looked at
	followLog   = 10 * time.Second       // between log entries about it
)

// following shows how a delivery goes: as one line on a terminal, elsewhere as lines now
// and then, or as entries of the log.
type following struct {
	stats   func() relay.Stats
	waiting int64
	own     printer.Pace // what this relay has made final
	fall    printer.Pace // how fast what waits becomes less, whoever sends it
}

// look takes note of the delivery at a time.
func (f *following) look(now time.Time, waiting int64) {
	f.waiting = waiting
	f.own.Look(now, settledBy(f.stats()))
	f.fall.Look(now, -waiting)
}

// settledBy is how many messages a relay has made final.
func settledBy(st relay.Stats) int64 { return st.Sent + st.Dead + st.Refused + st.Cancelled }

// line is one line about the delivery, with a bar of so many characters.
func (f *following) line(size int) string {
	st := f.stats()
	done := settledBy(st)
	all := done + f.waiting
	if f.waiting == 0 {
		return "delivery: " + printer.Counted(done, "message") + deadText(st.Dead) + ", nothing waits"
	}
	text := "delivery: "
	if size > 0 {
		text += printer.Bar(done, all, size) + " "
	}
	text += admin.Percent(done, all)
	if rate, known := f.own.Rate(); known {
		fastest := &f.own
		if all, _ := f.fall.Rate(); all > rate { // other relays send too
			fastest = &f.fall
		}
		text += printer.PaceText(&rate, fastest.Left(f.waiting))
	}
	return text + fmt.Sprintf("; %s / %s messages", printer.Grouped(done), printer.Grouped(all)) + deadText(st.Dead)
}

func deadText(n int64) string {
	if n == 0 {
		return ""
	}
	return ", " + printer.Grouped(n) + " dead"
}

// follow shows a delivery until the returned function is called, which waits for the end.
// Without a terminal and with a log it is the log that tells, as long as messages move.
func (a *app) follow(ctx context.Context, db *database, show *progress, log *zerolog.Logger, stats func() relay.Stats) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f := &following{stats: stats}
		again := time.NewTicker(followEvery)
		defer again.Stop()
		told, before := a.now(), int64(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			now := a.now()
			if show.width != nil || log == nil { // the log tells nothing of what waits
				waiting, err := messagesWaiting(ctx, db)
				if err != nil {
					continue // the relay says so
				}
				f.look(now, waiting)
			}
			switch done := settledBy(stats()); {
			case show.width != nil:
				show.line(f.line(max(0, min(20, show.width()/4))))
			case log != nil && now.Sub(told) >= followLog:
				if done > before {
					log.Info().Int64("rows", done-before).Int64("elapsed_ms", now.Sub(told).Milliseconds()).Msg("messages delivered")
				}
				told, before = now, done
			case log == nil && now.Sub(told) >= plainEvery:
				told = now
				show.line(f.line(0))
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// messagesWaiting is how many messages of jobs may be sent now.
func messagesWaiting(ctx context.Context, db *database) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	err = db.Pool.QueryRow(ctx, queries.messagesWaiting).Scan(&n)
	return n, err
}

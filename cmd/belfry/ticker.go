package main

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/text"
)

// ticker shows the progress of a long command at most once per interval.
type ticker struct {
	*streams

	live  *progress
	began time.Time
	last  time.Time
}

func newTicker(x *streams) *ticker {
	now := x.now()
	return &ticker{streams: x, live: newProgress(x), began: now, last: now}
}

// show shows one line on a terminal, or elsewhere a line every plainEvery.
func (t *ticker) show(format string, args ...any) {
	every := plainEvery
	if t.live.width != nil {
		every = redrawEvery
	}
	now := t.now()
	if now.Sub(t.last) < every {
		return
	}
	t.last = now
	t.live.line(fmt.Sprintf(format, args...))
}

// perSecond returns the average rate, as text.
func (t *ticker) perSecond(n int64) string {
	took := t.now().Sub(t.began)
	if took <= 0 {
		return ""
	}
	return fmt.Sprintf("%s/s", text.Grouped(int64(float64(n)/took.Seconds())))
}

// end removes the live line and returns the elapsed time, as text.
func (t *ticker) end() string {
	t.live.end()
	return text.Short(t.now().Sub(t.began))
}

package text

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The intervals of progress: of a live line on a terminal, and of lines elsewhere.
const (
	RedrawEvery = 100 * time.Millisecond
	PlainEvery  = 2 * time.Second
)

// Progress is the last line of a terminal, which is redrawn. Logs pass through it, so that they do not break
// the line. Elsewhere each line follows the previous one. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int // of the terminal; nil without a terminal
	shown string     // the line on the terminal, not ended yet
}

// NewProgress returns a Progress that writes to out. width returns the width of the terminal; nil means that
// out is not a terminal.
func NewProgress(out io.Writer, width func() int) *Progress { return &Progress{out: out, width: width} }

// OnTerminal reports whether the output is a terminal.
func (l *Progress) OnTerminal() bool { return l.width != nil }

// Width returns the width of the terminal, or 0 without one.
func (l *Progress) Width() int {
	if l.width == nil {
		return 0
	}
	return l.width()
}

// Write writes logs above the live line.
func (l *Progress) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shown := l.shown
	l.draw("")
	n, err := l.out.Write(b)
	l.draw(shown)
	return n, err
}

// Line shows a line: on a terminal in place of the last one, elsewhere below it.
func (l *Progress) Line(line string) {
	if l.width == nil {
		l.Print(line)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw(OneLine(line, max(l.width()-1, 20)))
}

// Print writes a line that stays, in place of the live line.
func (l *Progress) Print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw("")
	_, _ = io.WriteString(l.out, line+"\n")
}

// Clear removes the live line.
func (l *Progress) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw("")
}

// draw replaces the live line, or removes it if line is empty.
func (l *Progress) draw(line string) {
	if l.width == nil || line == l.shown {
		return
	}
	// Overwriting and blanking the rest flickers less than erasing first.
	rest := utf8.RuneCountInString(l.shown) - utf8.RuneCountInString(line)
	_, _ = io.WriteString(l.out, "\r"+line+strings.Repeat(" ", max(rest, 0)))
	if line == "" {
		_, _ = io.WriteString(l.out, "\r")
	}
	l.shown = line
}

// Ticker shows the progress of a long command at most once per interval.
type Ticker struct {
	*Progress

	now         func() time.Time
	began, last time.Time
}

// NewTicker returns a Ticker that starts now.
func NewTicker(p *Progress, now func() time.Time) *Ticker {
	began := now()
	return &Ticker{Progress: p, now: now, began: began, last: began}
}

// Show shows a line, unless the last one is too recent.
func (t *Ticker) Show(format string, args ...any) {
	every := PlainEvery
	if t.OnTerminal() {
		every = RedrawEvery
	}
	now := t.now()
	if now.Sub(t.last) < every {
		return
	}
	t.last = now
	t.Line(fmt.Sprintf(format, args...))
}

// PerSecond returns the average rate of n since the start, as text.
func (t *Ticker) PerSecond(n int64) string {
	took := t.now().Sub(t.began)
	if took <= 0 {
		return ""
	}
	return fmt.Sprintf("%s/s", Grouped(int64(float64(n)/took.Seconds())))
}

// End removes the live line and returns the elapsed time, as text.
func (t *Ticker) End() string {
	t.Clear()
	return Short(t.now().Sub(t.began))
}

package main

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// board is what `belfry jobs watch` shows: how jobs stand, and how fast they go.
type board struct {
	at   time.Time
	jobs []*watchedJob
}

// watchedJob is one job of the board.
type watchedJob struct {
	admin.JobState

	walk, delivery pace
	still          admin.Standstill // "": nothing stands in the way
	said           string           // the last line about it, where there is no terminal
}

func newBoard() *board { return &board{} }

// look takes note of how the jobs stand at a time, and of what keeps their messages.
func (b *board) look(now time.Time, states []admin.JobState, why map[int64]admin.Standstill) {
	b.at = now
	before := make(map[int64]*watchedJob, len(b.jobs))
	for _, one := range b.jobs {
		before[one.ID] = one
	}
	b.jobs = b.jobs[:0:0]
	for _, s := range states {
		one := before[s.ID]
		if one == nil {
			one = &watchedJob{}
		}
		one.JobState, one.still = s, why[s.ID]
		one.walk.look(now, s.ChannelsRead)
		one.delivery.look(now, s.Settled())
		b.jobs = append(b.jobs, one)
	}
}

// watched are the ids of the board's jobs.
func (b *board) watched() []int64 {
	ids := make([]int64, len(b.jobs))
	for i, one := range b.jobs {
		ids[i] = one.ID
	}
	return ids
}

// atRest reports whether nothing of any job goes on.
func (b *board) atRest() bool {
	for _, one := range b.jobs {
		if !one.AtRest() {
			return false
		}
	}
	return true
}

// walkText is how far the walk is.
func (w *watchedJob) walkText() string {
	if w.Status == job.Pending && w.Cursor == "" {
		return "due " + printer.Clock(w.ScheduleAt)
	}
	text := admin.WalkDone(w.Job)
	if total, known := w.Total(); known && w.Status == job.Running {
		text += w.walk.text(total - w.ChannelsRead)
	}
	return text + "; " + printer.Counted(w.ChannelsRead, "channel") + " read, " + printer.Counted(w.RowsWritten, "row")
}

// deliveryText is how far the delivery is.
func (w *watchedJob) deliveryText() string {
	text := "100%"
	if w.Messages.Waiting > 0 {
		text = admin.Percent(w.Settled(), w.Messages.Messages)
		if !w.AtRest() {
			text += w.delivery.text(w.Messages.Waiting)
		}
	}
	return text + "; " + admin.MessagesText(w.Messages)
}

// line is one line about the job.
func (w *watchedJob) line() string {
	text := admin.JobLabel(w.Job) + ": " + string(w.Status) + w.Marks()
	switch {
	case w.Delivering():
		text = admin.JobLabel(w.Job) + ": DELIVERING" + w.Marks() + " " + w.deliveryText()
	case w.Messages.Messages == 0:
		text += ", " + w.walkText()
	case w.Status == job.Processed:
		text += ", " + admin.MessagesText(w.Messages)
	default:
		text += ", " + w.walkText() + ", delivery " + w.deliveryText()
	}
	if why := w.waits(); why != "" {
		text += "; " + why
	}
	return printer.OneLine(text, 500)
}

// waits is why messages stay where they are; "" when they do not.
func (w *watchedJob) waits() string {
	if w.Messages.Waiting == 0 || w.still.Why == "" || w.still.Moving || w.delivery.known && w.delivery.rate >= moving {
		return ""
	}
	return w.still.Text()
}

// lines is the board for a terminal of this size: a block of lines for each job, and how
// many there was no room for.
func (b *board) lines(width, height int) []string {
	var all []string
	for i, one := range b.jobs {
		block := one.block(width)
		room := height - len(all)
		if i < len(b.jobs)-1 {
			room-- // for saying that there are more
		}
		if len(block) > room && i > 0 {
			return append(all, printer.OneLine(fmt.Sprintf("and %s more; a taller terminal shows them, or name those to watch", printer.Counted(int64(len(b.jobs)-i), "job")), width))
		}
		all = append(all, block...)
	}
	return all
}

// block is what the terminal shows of one job.
func (w *watchedJob) block(width int) []string {
	size := max(10, min(24, width/5))
	row := func(name string, part, whole int64, text string) string {
		return printer.OneLine(fmt.Sprintf("  %-8s %s %s", name, bar(part, whole, size), text), width)
	}
	lines := []string{printer.OneLine(admin.JobLabel(w.Job)+": "+w.Shown()+w.Marks()+", "+w.Title, width)}
	read := w.ChannelsRead
	total, _ := w.Total()
	if w.Status == job.Processed {
		read, total = 1, 1
	}
	lines = append(lines, row("walk", read, total, w.walkText()))
	if w.Messages.Messages > 0 {
		lines = append(lines, row("delivery", w.Settled(), w.Messages.Messages, w.deliveryText()))
	}
	if w.Throttle != "" {
		lines = append(lines, printer.OneLine("  slowed   "+admin.ThrottledBy(w.Job), width))
	}
	if why := w.waits(); why != "" {
		lines = append(lines, printer.OneLine("  waits    "+why, width))
	}
	return lines
}

// watchDocument is the JSON of one job at one look.
type watchDocument struct {
	At            time.Time       `json:"at"`
	ID            int64           `json:"id"`
	Type          string          `json:"type"`
	Title         string          `json:"title"`
	Status        job.Status      `json:"status"`
	Delivering    bool            `json:"delivering"` // the walk is over, messages are left
	ChannelsRead  int64           `json:"channels_read"`
	ChannelsTotal *int64          `json:"channels_total"`
	RowsWritten   int64           `json:"rows_written"`
	Throttle      string          `json:"throttle"`
	Messages      outbox.Progress `json:"messages"`
	KeysPerSecond *float64        `json:"keys_per_second"` // of the walk; null: not known yet
	SentPerSecond *float64        `json:"sent_per_second"` // messages that became final
	SecondsLeft   *float64        `json:"seconds_left"`    // of the walk while it goes on, then of the delivery; null: cannot be told
	Why           string          `json:"why"`             // messages wait; "": nothing stands in their way
}

func (w *watchedJob) document(at time.Time) watchDocument {
	d := watchDocument{
		At: at.UTC(), ID: w.ID, Type: w.Type, Title: w.Title, Status: w.Status, Delivering: w.Delivering(),
		ChannelsRead: w.ChannelsRead, ChannelsTotal: w.ChannelsTotal, RowsWritten: w.RowsWritten, Throttle: w.Throttle, Messages: w.Messages,
	}
	if !w.still.Moving {
		d.Why = w.still.Why
	}
	left := time.Duration(-1)
	total, walkable := w.Total()
	if w.walk.known {
		d.KeysPerSecond = &w.walk.rate
	}
	if w.delivery.known {
		d.SentPerSecond = &w.delivery.rate
	}
	switch {
	case w.Status == job.Running && walkable:
		left = w.walk.left(total - w.ChannelsRead)
	case w.Delivering():
		left = w.delivery.left(w.Messages.Waiting)
	}
	if left >= 0 {
		seconds := left.Seconds()
		d.SecondsLeft = &seconds
	}
	return d
}

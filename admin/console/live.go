package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	// againAfter is between two watches: one ends when the database is away.
	againAfter = 2 * time.Second
	// beatAfter is how long a stream says nothing at most.
	beatAfter = 2 * time.Second
	// writeWithin is how long a reader has for each event.
	writeWithin = 10 * time.Second
)

// cellsOf are the texts about a job that change, by the names of their cells.
func (c *Console) cellsOf(w jobs.WatchedJob) map[string]string {
	s := w.State()
	id := text.Int(w.ID) + "."
	cells := map[string]string{
		id + "status": s.Badge().String(), id + "tone": string(s.Badge().Tone), id + "walked": jobs.WalkDone(s.Job), id + "walk": c.plain(w.WalkLine()),
		id + "walk-bar": percent(walked(s)), id + "rows": text.Grouped(w.RowsWritten), id + "waits": c.plain(w.Waits()), id + "slowed": "",
	}
	for name, rate := range map[string]*float64{"walk-rate": w.KeysPerSecond, "chunk-ms": w.ChunkMS, "delivery-rate": w.SentPerSecond} {
		if cells[id+name] = ""; rate != nil {
			cells[id+name] = strconv.FormatFloat(*rate, 'f', 1, 64)
		}
	}
	if s.Throttle != "" {
		cells[id+"slowed"] = jobs.ThrottledBy(s.Job)
	}
	if w.Messages.Messages > 0 {
		cells[id+"sent"], cells[id+"delivery"], cells[id+"delivery-bar"] = text.Grouped(w.Messages.Sent), w.DeliveryText(), percent(delivered(s))
	}
	return cells
}

func percent(part float64) string { return strconv.FormatFloat(part, 'f', 1, 64) }

// feed is one open stream.
type feed struct {
	c   *Console
	w   http.ResponseWriter
	ctl *http.ResponseController

	mu    sync.Mutex
	sent  map[int64]map[string]string // by job that is under way and cell, what the page has
	gauge map[string]string           // by cell about a sender, what the page has
	again bool                        // something may have been missed
	last  time.Time
}

// happened is what pages say of an event.
type happened struct {
	ID   int64  `json:"id"`
	Of   string `json:"of"`   // its subject
	Name string `json:"name"` // of what it is about
	Kind string `json:"kind"`
	By   string `json:"by"`
	Text string `json:"text"`
}

// liveEvent is an event of the stream. One without anything says only that it lives.
type liveEvent struct {
	At    time.Time         `json:"at"`
	Again bool              `json:"again,omitempty"` // something may have been missed: pages are to be read again
	Jobs  []int64           `json:"jobs,omitempty"`  // that are under way
	Cells map[string]string `json:"cells,omitempty"`
	Acts  []happened        `json:"acts,omitempty"`
}

// live streams what changes, until the browser leaves.
func (v *visit) live() {
	jobs, there := v.named("jobs watch")
	events, too := v.named("events watch")
	if !there || !too {
		v.lost()
		return
	}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no")
	f := &feed{c: v.Console, w: v.w, ctl: http.NewResponseController(v.w), sent: make(map[int64]map[string]string)}
	if f.send(liveEvent{}) != nil {
		return
	}
	api.Note(v.req, "", true)
	ctx := v.req.Context()
	for ctx.Err() == nil {
		err := v.follow(ctx, jobs, events, f)
		if err != nil && errkind.Of(err) != errkind.Unavailable { // who asks may not any more, or is gone
			return
		}
		timer := time.NewTimer(againAfter)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		f.broken()
	}
}

// follow sends what changes and what is done until a watch ends.
func (v *visit) follow(ctx context.Context, watch, events operation.Operation, f *feed) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after := v.req.URL.Query()["after"] // where the events ended when the page was made
	running.Go(func() {
		again := time.NewTicker(gaugedAfter)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				f.gauged(v.gauges.read(func() ([]delivery.SenderState, error) { return v.senders(ctx) }))
			}
		}
	})
	ended := make(chan error, 2)
	running.Go(func() {
		in, _ := read(watch, url.Values{"follow": {"on"}, "after": after})
		_, err := v.stream(ctx, watch, in, func(item any) error {
			watched, _ := item.([]jobs.WatchedJob)
			return f.look(watched)
		})
		ended <- err
	})
	running.Go(func() {
		in, _ := read(events, url.Values{"after": after})
		_, err := v.stream(ctx, events, in, func(item any) error {
			acts, _ := item.([]job.ControlEvent)
			return f.tell(acts)
		})
		ended <- err
	})
	return <-ended
}

// broken notes that a watch has ended, so that the next event has pages read again.
func (f *feed) broken() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.sent)
	f.gauge = nil
	f.again = true
}

// look sends what differs from what the page has.
func (f *feed) look(jobs []jobs.WatchedJob) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := liveEvent{Cells: make(map[string]string)}
	for _, one := range jobs {
		before, cells := f.sent[one.ID], f.c.cellsOf(one)
		for name, text := range cells {
			if was, has := before[name]; !has || was != text {
				t.Cells[name] = text
			}
		}
		if one.Status == job.Running || one.Delivering {
			t.Jobs = append(t.Jobs, one.ID)
			f.sent[one.ID] = cells
		} else {
			delete(f.sent, one.ID)
		}
	}
	if len(t.Cells) == 0 && !f.again {
		return f.beat()
	}
	t.Again, f.again = f.again, false
	return f.send(t)
}

// gauged sends what differs of the senders. What cannot be written the watches find out.
func (f *feed) gauged(cells map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := maps.Clone(cells)
	maps.DeleteFunc(changed, func(name, text string) bool { return f.gauge[name] == text })
	if f.gauge = cells; len(changed) > 0 {
		_ = f.send(liveEvent{Cells: changed})
	}
}

// tell sends what was done.
func (f *feed) tell(acts []job.ControlEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(acts) == 0 {
		return nil
	}
	var t liveEvent
	for _, e := range acts {
		t.Acts = append(t.Acts, happened{e.ID, e.Subject, e.Name, e.Kind, e.Actor, jobs.EventLine(e).String()})
	}
	return f.send(t)
}

// beat says that the stream lives, where nothing was said for a while. It is the caller's turn.
func (f *feed) beat() error {
	if time.Since(f.last) < beatAfter {
		return nil
	}
	return f.send(liveEvent{})
}

// send writes an event. It is the caller's turn.
func (f *feed) send(t liveEvent) error {
	t.At = time.Now().UTC()
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_ = f.ctl.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := fmt.Fprintf(f.w, "data: %s\n\n", text); err != nil {
		return err
	}
	f.last = time.Now()
	if err := f.ctl.Flush(); err != nil {
		return err
	}
	return f.ctl.SetWriteDeadline(time.Time{})
}

// subjects are what the nouns of operations are called in the events.
var subjects = map[string]string{
	"": job.SubjectJob, "jobs": job.SubjectJob, "lanes": "lane", "schedules": "schedule", "senders": "sender", "categories": "category",
	"dead-letters": "dead_letter", "channels": "channel", "limits": "limits", "transport": "transport", "tokens": "token", "users": "user", "sessions": "user",
}

// about is what a page of an operation shows, for the events that are news on it: a subject, one of
// a kind, one of a name; "*" is everything.
func about(o operation.Operation, values url.Values) []string {
	subject := subjects[o.Noun()]
	switch o.Name {
	case jobsList: // the cells of those that are listed come up to date by themselves
		return []string{job.SubjectJob + ".enqueued"}
	case upcomingOf:
		return []string{job.SubjectJob, "schedule", "lane", "installation"}
	case "events list":
		return []string{"*"}
	}
	var names []string
	for _, p := range arguments(o) {
		for _, name := range values[p.Name] {
			names = append(names, subject+":"+name)
		}
	}
	switch {
	case len(names) > 0:
		return names
	case o.Noun() == "" || o.Changes:
		return nil
	}
	return []string{subject}
}

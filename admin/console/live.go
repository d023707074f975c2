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
	// retryDelay is the delay before a new watch: a watch ends when the database is down.
	retryDelay = 2 * time.Second
	// keepAliveInterval is the longest interval without an event.
	keepAliveInterval = 2 * time.Second
	// writeTimeout limits the write of each event.
	writeTimeout = 10 * time.Second
)

// cellsOf returns the values of a job that change, by the names of their cells.
func (c *Console) cellsOf(w jobs.WatchedJob) map[string]string {
	s := w.State()
	id := text.Int(w.ID) + "."
	cells := map[string]string{
		id + "status": s.Badge().String(), id + "tone": string(s.Badge().Tone), id + "walked": jobs.WalkDone(s.Job), id + "walk": c.plain(w.WalkLine()),
		id + "walk-bar": percent(walkPercent(s)), id + "rows": text.Grouped(w.RowsWritten), id + "waits": c.plain(w.Waits()), id + "slowed": "",
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
		cells[id+"sent"], cells[id+"delivery"], cells[id+"delivery-bar"] = text.Grouped(w.Messages.Sent), w.DeliveryText(), percent(deliveredPercent(s))
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
	sent  map[int64]map[string]string // the page's cells, by job in progress and name
	gauge map[string]string           // the page's cells of senders, by name
	again bool                        // events may be missing
	last  time.Time
}

// controlEvent is an event for the announcement of a page.
type controlEvent struct {
	ID   int64  `json:"id"`
	Of   string `json:"of"`   // subject
	Name string `json:"name"` // of the object
	Kind string `json:"kind"`
	By   string `json:"by"`
	Text string `json:"text"`
}

// liveEvent is an event of the stream. An empty one is a heartbeat.
type liveEvent struct {
	At      time.Time         `json:"at"`
	Again   bool              `json:"again,omitempty"` // events may be missing: pages must be reloaded
	Jobs    []int64           `json:"jobs,omitempty"`  // jobs in progress
	Cells   map[string]string `json:"cells,omitempty"`
	Actions []controlEvent    `json:"acts,omitempty"`
}

// live streams changes until the browser disconnects.
func (h *handler) live() {
	jobs, there := h.named("jobs watch")
	events, too := h.named("events watch")
	if !there || !too {
		h.notFound()
		return
	}
	h.w.Header().Set("Content-Type", "text/event-stream")
	h.w.Header().Set("X-Accel-Buffering", "no")
	f := &feed{c: h.Console, w: h.w, ctl: http.NewResponseController(h.w), sent: make(map[int64]map[string]string)}
	if f.send(liveEvent{}) != nil {
		return
	}
	api.Note(h.req, "", true)
	ctx := h.req.Context()
	for ctx.Err() == nil {
		err := h.follow(ctx, jobs, events, f)
		if err != nil && errkind.Of(err) != errkind.Unavailable { // the caller lost the role or disconnected
			return
		}
		timer := time.NewTimer(retryDelay)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		f.reset()
	}
}

// follow sends changes and control events until a watch ends.
func (h *handler) follow(ctx context.Context, watch, events operation.Operation, f *feed) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after := h.req.URL.Query()["after"] // the position of the events at the start of the page's request
	running.Go(func() {
		again := time.NewTicker(statsInterval)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				f.sendStats(h.senderStats.read(func() ([]delivery.SenderState, error) { return h.senders(ctx) }))
			}
		}
	})
	ended := make(chan error, 2)
	running.Go(func() {
		in, _ := read(watch, url.Values{"follow": {"on"}, "after": after})
		_, err := h.stream(ctx, watch, in, func(item any) error {
			watched, _ := item.([]jobs.WatchedJob)
			return f.sendJobs(watched)
		})
		ended <- err
	})
	running.Go(func() {
		in, _ := read(events, url.Values{"after": after})
		_, err := h.stream(ctx, events, in, func(item any) error {
			actions, _ := item.([]job.ControlEvent)
			return f.sendEvents(actions)
		})
		ended <- err
	})
	return <-ended
}

// reset makes the next event request a reload of pages, after a watch has ended.
func (f *feed) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.sent)
	f.gauge = nil
	f.again = true
}

// send writes an event. The caller holds the lock.
func (f *feed) sendJobs(jobs []jobs.WatchedJob) error {
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
		return f.keepAlive()
	}
	t.Again, f.again = f.again, false
	return f.send(t)
}

// sendStats sends the cells of senders that differ from the page's. The watches detect a failed write.
func (f *feed) sendStats(cells map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := maps.Clone(cells)
	maps.DeleteFunc(changed, func(name, text string) bool { return f.gauge[name] == text })
	if f.gauge = cells; len(changed) > 0 {
		_ = f.send(liveEvent{Cells: changed})
	}
}

// sendEvents sends control events.
func (f *feed) sendEvents(actions []job.ControlEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(actions) == 0 {
		return nil
	}
	var t liveEvent
	for _, e := range actions {
		t.Actions = append(t.Actions, controlEvent{e.ID, e.Subject, e.Name, e.Kind, e.Actor, jobs.EventLine(e).String()})
	}
	return f.send(t)
}

// keepAlive sends a heartbeat after a quiet interval. The caller holds the lock.
func (f *feed) keepAlive() error {
	if time.Since(f.last) < keepAliveInterval {
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
	_ = f.ctl.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := fmt.Fprintf(f.w, "data: %s\n\n", text); err != nil {
		return err
	}
	f.last = time.Now()
	if err := f.ctl.Flush(); err != nil {
		return err
	}
	return f.ctl.SetWriteDeadline(time.Time{})
}

// subjects maps nouns of operations to subjects of control events.
var subjects = map[string]string{
	"": job.SubjectJob, "jobs": job.SubjectJob, "lanes": "lane", "schedules": "schedule", "senders": "sender", "categories": "category",
	"dead-letters": "dead_letter", "channels": "channel", "limits": "limits", "transport": "transport", "tokens": "token", "users": "user", "sessions": "user",
}

// aboutOf returns the control events that concern a page: a subject, "subject.kind", "subject:name", or "*"
// for all.
func aboutOf(o operation.Operation, values url.Values) []string {
	subject := subjects[o.Noun()]
	switch o.Name {
	case jobsList: // the stream updates the cells of listed jobs
		return []string{job.SubjectJob + ".enqueued"}
	case upcomingOperation:
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

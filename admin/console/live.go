package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/printer"
)

const (
	// againAfter is between two watches: one ends when nothing is under way.
	againAfter = 2 * time.Second
	// beatAfter is how long a stream says nothing at most.
	beatAfter = 2 * time.Second
	// writeWithin is how long a reader has for each event.
	writeWithin = 10 * time.Second
)

// cellsOf are the texts about a job that change, by the names of their cells.
func (c *Console) cellsOf(w admin.WatchedJob) map[string]string {
	s := w.State()
	id := printer.Int(w.ID) + "."
	cells := map[string]string{
		id + "status": s.Shown() + s.Marks(), id + "tone": toneOf(s.Shown()), id + "walked": admin.WalkDone(s.Job), id + "walk": c.unmarked(w.WalkText(printer.Times{})),
		id + "walk-bar": percent(walked(s)), id + "rows": printer.Grouped(w.RowsWritten), id + "waits": c.unmarked(w.Waits()), id + "slowed": "",
	}
	for name, rate := range map[string]*float64{"walk-rate": w.KeysPerSecond, "delivery-rate": w.SentPerSecond} {
		if cells[id+name] = ""; rate != nil {
			cells[id+name] = strconv.FormatFloat(*rate, 'f', 1, 64)
		}
	}
	if s.Throttle != "" {
		cells[id+"slowed"] = admin.ThrottledBy(s.Job)
	}
	if w.Messages.Messages > 0 {
		cells[id+"sent"], cells[id+"delivery"], cells[id+"delivery-bar"] = printer.Grouped(w.Messages.Sent), w.DeliveryText(), percent(delivered(s))
	}
	return cells
}

func percent(part float64) string { return strconv.FormatFloat(part, 'f', 1, 64) }

// feed is one open stream.
type feed struct {
	c    *Console
	w    http.ResponseWriter
	ctl  *http.ResponseController
	sent map[string]string  // by cell, what the page has
	open map[int64]struct{} // the jobs that were not at rest
	last time.Time
}

// live streams what changes, until the browser leaves.
func (v *visit) live() {
	watch, there := v.named("jobs watch")
	if !there {
		v.lost()
		return
	}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no")
	f := &feed{c: v.Console, w: v.w, ctl: http.NewResponseController(v.w), sent: make(map[string]string), open: make(map[int64]struct{})}
	if f.send(nil, nil) != nil {
		return
	}
	api.Stays(v.req)
	ctx := api.Unattended(v.req.Context())
	for ctx.Err() == nil {
		err := v.follow(ctx, watch, f)
		if err != nil && admin.KindOf(err) != admin.Unavailable { // who asks may not any more, or is gone
			return
		}
		if f.beat() != nil {
			return
		}
		timer := time.NewTimer(againAfter)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// follow sends what changes until nothing is under way, or the watch ends otherwise. What was under
// way when the watch before ended, and is not any more, is looked at once.
func (v *visit) follow(ctx context.Context, watch admin.Operation, f *feed) error {
	if open := slices.Collect(maps.Keys(f.open)); len(open) > 0 {
		values := make(url.Values)
		for _, id := range open {
			values.Add("id", printer.Int(id))
		}
		in, _ := read(watch, values)
		_, err := v.ask.Stream(ctx, watch, in, func(item any) error {
			jobs, _ := item.([]admin.WatchedJob)
			return errors.Join(f.look(jobs), errEnough)
		})
		if admin.KindOf(err) == admin.NotFound { // one was pruned meanwhile
			clear(f.open)
		} else if !errors.Is(err, errEnough) {
			return err
		}
	}
	_, err := v.ask.Stream(ctx, watch, watch.NewInput(), func(item any) error {
		jobs, _ := item.([]admin.WatchedJob)
		return f.look(jobs)
	})
	return err
}

// look sends what differs from what the page has.
func (f *feed) look(jobs []admin.WatchedJob) error {
	changed := make(map[string]string)
	ids := make([]int64, 0, len(jobs))
	for _, one := range jobs {
		ids = append(ids, one.ID)
		if f.open[one.ID] = struct{}{}; one.AtRest {
			delete(f.open, one.ID)
		}
		for name, text := range f.c.cellsOf(one) {
			if before, has := f.sent[name]; !has || before != text {
				changed[name] = text
			}
		}
	}
	maps.Copy(f.sent, changed)
	if len(changed) == 0 {
		return f.beat()
	}
	return f.send(ids, changed)
}

// beat says that the stream lives, where nothing was said for a while.
func (f *feed) beat() error {
	if time.Since(f.last) < beatAfter {
		return nil
	}
	return f.send(nil, nil)
}

// send writes an event; without cells it says only that the stream lives.
func (f *feed) send(ids []int64, cells map[string]string) error {
	event := struct {
		At    time.Time         `json:"at"`
		Jobs  []int64           `json:"jobs,omitempty"`
		Cells map[string]string `json:"cells,omitempty"`
	}{time.Now().UTC(), ids, cells}
	text, err := json.Marshal(event)
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

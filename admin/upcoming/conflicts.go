package upcoming

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	// comparedRead is the number of entries that are compared with a requested job.
	comparedRead = 500
	// comparedAround is how long before and after the due time of the requested job entries are read.
	comparedAround = 6 * time.Hour
)

// LaneConflicts are the entries of its lane with which a requested job is expected to overlap.
type LaneConflicts struct {
	Lane       string    `json:"lane"`
	At         time.Time `json:"at"`          // due time, UTC
	ExpectedMS *int64    `json:"expected_ms"` // as of an Entry
	Behind     []string  `json:"behind"`      // entries that run first
	AheadOf    []string  `json:"ahead_of"`    // entries that wait for the requested job
	Held       string    `json:"held"`
	Unknown    string    `json:"unknown"` // the reason why entries were not compared
}

// ConflictsOf compares a requested job with upcoming entries and running jobs. An error, such as a missing
// right, does not prevent the preview; it is reported in Unknown.
func ConflictsOf(ctx context.Context, env *operation.Env, r job.Request) *LaneConflicts {
	ctx, cancel := context.WithTimeout(ctx, operation.DefaultDeadline)
	defer cancel()
	c := &LaneConflicts{Lane: cmp.Or(r.Spec.Lane, "default"), Behind: []string{}, AheadOf: []string{}}
	if err := c.find(ctx, env, r); err != nil {
		c.Unknown = text.OneLine(env.RedactError(err).Error(), 200)
	}
	return c
}

func (c *LaneConflicts) find(ctx context.Context, env *operation.Env, r job.Request) error {
	held, err := holds(ctx, env)
	if err != nil {
		return err
	}
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return err
	}
	c.At, c.Held = latest(*cmp.Or(r.Spec.ScheduleAt, &now), now).UTC(), held(c.Lane)
	q := upcomingQuery{lane: c.Lane, until: new(c.At.Add(comparedAround)), skipHeld: true, occurrences: comparedRead + 1,
		limit: comparedRead + 1}
	if from := c.At.Add(-comparedAround); from.After(now) {
		q.from, q.after.at = from, from
	}
	entries, now, err := readUpcoming(ctx, env, q)
	if err != nil {
		return err
	}
	entries = append(entries, Entry{At: c.At, Lane: c.Lane, Types: r.Types, Category: r.Spec.Category, Priority: r.Spec.Priority})
	running, err := expectDurations(ctx, env, c.Lane, entries, now)
	if err != nil {
		return err
	}
	last := len(entries) - 1
	own, others := entries[last], append(running, entries[:last]...)
	if last > comparedRead && entries[last-1].At.Before(own.At) {
		c.Unknown = fmt.Sprintf("more than %d entries are due before", comparedRead)
	}
	c.ExpectedMS = own.ExpectedMS
	start, end := own.interval(now)
	for _, e := range others {
		from, until := e.interval(now)
		switch {
		case c.Held != "" || e.Lane != c.Lane || !from.Before(end) || !start.Before(until):
		case e.Priority > own.Priority || e.Priority == own.Priority && !from.After(start):
			c.Behind = append(c.Behind, e.Name)
		default:
			c.AheadOf = append(c.AheadOf, e.Name)
		}
	}
	return nil
}

// Text describes the conflicts in one sentence.
func (c LaneConflicts) Text() text.Line {
	var parts []string
	lane := text.Ref("lane", c.Lane)
	switch {
	case c.Unknown != "":
		return text.Sprintf("the other entries of lane %s are unknown: %s", lane, c.Unknown)
	case c.Held != "":
		return text.Sprintf("held: %s", c.Held)
	case len(c.Behind) > 0:
		parts = append(parts, "behind "+operation.SomeNames(c.Behind))
	}
	if len(c.AheadOf) > 0 {
		parts = append(parts, "ahead of "+operation.SomeNames(c.AheadOf))
	}
	if len(parts) == 0 {
		return text.Sprintf("%s: no overlap; %s", lane, text.Command("upcoming").Flag("lane", c.Lane).To("list the lane's entries"))
	}
	return text.Sprintf("%s: %s", lane, strings.Join(parts, "; "))
}

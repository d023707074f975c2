package admin

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// What who reads no contents may find out of where people are: nothing of an audience within less than
// leastRadius metres, and of no more than mostHidden people how many they are.
const (
	mostHidden  = 9
	leastRadius = 500
)

// mayFind refuses an audience that finds out where one person is, to who reads no contents.
func (r Role) mayFind(a channels.Audience) error {
	if r.readsContents() || a.Kind != channels.KindRadius || a.RadiusM >= leastRadius {
		return nil
	}
	return invalid("radius", "is too small; allowed values for viewers and authors: %dm or more", leastRadius)
}

// mayLocate refuses, to a role that reads no contents, an operation that answers which channels an
// audience by radius has: their places would follow from its centre and radius.
func (e *Env) mayLocate(ctx context.Context, operation string, jobID int64) error {
	locates, err := e.locates(ctx, jobID)
	if err != nil || !locates {
		return err
	}
	return &DeniedError{Operation: operation + " of a job to a radius", Has: e.Role, Needs: Operator}
}

// locates reports whether a job is to a radius and the role reads no contents: then its rows would
// find out where people are.
func (e *Env) locates(ctx context.Context, jobID int64) (bool, error) {
	if e.Role.readsContents() {
		return false, nil
	}
	j, err := e.Jobs.Get(ctx, jobID)
	if err != nil {
		return false, noSuchJob(err)
	}
	return j.Audience.Kind == channels.KindRadius, nil
}

// hideWho removes from a job to a radius, for a role that reads no contents, every part that differs
// with a person inside and outside the circle: the cursor, which is the id of the last channel, counts
// of at most mostHidden channels, and the traces of having written so few rows.
func hideWho(v reflect.Value) {
	if !v.CanAddr() || !v.Addr().CanInterface() {
		return
	}
	switch s := v.Addr().Interface().(type) {
	case *job.Job:
		if s.Audience.Kind != channels.KindRadius {
			return
		}
		s.Cursor = ""
		if s.ChannelsMatched <= mostHidden {
			s.Chunks, s.Throttle, s.ThrottleDetail, s.ThrottledMS = 0, "", "", 0
		}
		zeroFew(&s.ChannelsRead, &s.ChannelsMatched, &s.RowsWritten, &s.Declined, &s.Skipped, &s.Recalled, &s.Erased)
		if total := s.ChannelsTotal; total != nil && *total <= mostHidden {
			s.ChannelsTotal = nil
		}
	case *JobState:
		if s.Audience.Kind == channels.KindRadius {
			s.HaltedAt = nil // while messages wait
			zeroFew(&s.Messages.Messages, &s.Messages.Sent, &s.Messages.Dead, &s.Messages.Cancelled, &s.Messages.Waiting)
		}
	case *jobReport: // its revisions are a copy already
		if s.Audience.Kind == channels.KindRadius {
			s.Waits, s.Remedy, s.Deliveries = "", "", nil
			for i := range s.Revisions {
				s.Revisions[i].Cursor = ""
			}
		}
	}
}

func zeroFew(counts ...*int64) {
	for _, n := range counts {
		if *n <= mostHidden {
			*n = 0
		}
	}
}

// toRadius are those of the jobs that are to a radius.
func (e *Env) toRadius(ctx context.Context, ids []int64) ([]int64, error) {
	rows, err := e.reads().Query(ctx, queries.jobsToRadius, pgx.StrictNamedArgs{"ids": ids})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// notByRadius removes the jobs to a radius from a channel's history, for a role that reads no
// contents.
func (e *Env) notByRadius(ctx context.Context, lines []delivery.HistoryLine) ([]delivery.HistoryLine, error) {
	if e.Role.readsContents() || len(lines) == 0 {
		return lines, nil
	}
	ids := make([]int64, 0, len(lines))
	for _, l := range lines {
		ids = append(ids, l.JobID)
	}
	hidden, err := e.toRadius(ctx, ids)
	return slices.DeleteFunc(lines, func(l delivery.HistoryLine) bool { return slices.Contains(hidden, l.JobID) }), err
}

// coarse is a count as the role may read it. atMost is what a count that is as low may be less than,
// too; 0: counts are what they are.
func (r Role) coarse(n int64) (shown, atMost int64) {
	if r.readsContents() {
		return n, 0
	}
	return max(n, mostHidden), mostHidden
}

// atMostText tells a count that may be less.
func atMostText(n, atMost int64) string {
	if atMost > 0 && n <= atMost {
		return "fewer than " + printer.Grouped(atMost+1)
	}
	return printer.Grouped(n)
}

// coarsen removes from a preview, for a role that reads no contents, what would locate one person:
// the samples, and the counts of at most mostHidden channels. A count that is 0 without such a channel
// and not 0 with it would find out whether the circle contains the channel.
func (out *jobPreview) coarsen(r Role) {
	if out.Channels, out.AtMost = r.coarse(out.Channels); out.AtMost == 0 {
		return
	}
	out.LookedAt = max(out.LookedAt, mostHidden)
	out.Samples = nil
	for _, n := range []*int64{&out.NoAddress, &out.InvalidAddress, &out.OptedOut, &out.BadContent, &out.QuietHours, &out.Capped} {
		if *n <= mostHidden {
			*n = 0
		}
	}
	for _, tally := range []map[string]int64{out.Platforms, out.Locales, out.Media, out.MissingAttributes} {
		maps.DeleteFunc(tally, func(_ string, n int64) bool { return n <= mostHidden })
	}
}

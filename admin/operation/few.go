package operation

import (
	"context"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// What who reads no contents may find out of where people are: nothing of an audience within less than
// leastRadius metres, and of no more than mostHidden people how many they are.
const (
	MostHidden  = 9
	leastRadius = 500
)

// MayFind refuses an audience that finds out where one person is, to who reads no contents.
func (r Role) MayFind(a channels.Audience) error {
	if r.ReadsContents() || a.Kind != channels.KindRadius || a.RadiusM >= leastRadius {
		return nil
	}
	return Invalid("radius", "is too small; allowed values for viewers and authors: %dm or more", leastRadius)
}

// NeedsApproval reports whether a job of the role to an audience waits for approval whatever its category
// says. A job to a radius changes what is shown about each person it reaches, such as caps, invalid
// addresses and the rates of senders: its author could find out who is inside.
func (r Role) NeedsApproval(a channels.Audience) bool {
	return !r.ReadsContents() && a.Kind == channels.KindRadius
}

// MayLocate refuses, to a role that reads no contents, an operation that answers which channels an
// audience by radius has: their places would follow from its centre and radius.
func (e *Env) MayLocate(ctx context.Context, operation string, jobID int64) error {
	locates, err := e.Locates(ctx, jobID)
	if err != nil || !locates {
		return err
	}
	return &DeniedError{Operation: operation + " of a job to a radius", Has: e.Role, Needs: Operator}
}

// Locates reports whether a job is to a radius and the role reads no contents: then its rows would
// find out where people are.
func (e *Env) Locates(ctx context.Context, jobID int64) (bool, error) {
	if e.Role.ReadsContents() {
		return false, nil
	}
	j, err := e.Jobs.Get(ctx, jobID)
	if err != nil {
		return false, NoSuchJob(err)
	}
	return j.Audience.Kind == channels.KindRadius, nil
}

// locating is a part of a result that differs with a person inside and outside the circle of a job to a
// radius. hideLocation removes the difference, for a role that reads no contents.
type locating interface{ HideLocation() }

// hideLocation removes from a job to a radius, for a role that reads no contents, every part that differs
// with a person inside and outside the circle: the cursor, which is the id of the last channel, counts
// of at most mostHidden channels, and the traces of having written so few rows.
func hideLocation(v reflect.Value) {
	if !v.CanAddr() || !v.Addr().CanInterface() {
		return
	}
	switch s := v.Addr().Interface().(type) {
	case *job.Job:
		if s.Audience.Kind != channels.KindRadius {
			return
		}
		s.Cursor = ""
		if s.ChannelsMatched <= MostHidden {
			s.Chunks, s.Throttle, s.ThrottleDetail, s.ThrottledMS = 0, "", "", 0
		}
		ZeroFew(&s.ChannelsRead, &s.ChannelsMatched, &s.RowsWritten, &s.Declined, &s.Skipped, &s.Recalled, &s.Erased)
		for _, n := range []**int{&s.ApprovedCount, &s.ApprovedRecipients} {
			if *n != nil && **n <= MostHidden+1 { // the walk may write 5 % more, rounded up
				*n = nil
			}
		}
		if total := s.ChannelsTotal; total != nil && *total <= MostHidden {
			s.ChannelsTotal = nil
		}
	case locating:
		s.HideLocation()
	}
}

// ZeroFew sets counts that are too small to be shown to 0.
func ZeroFew(counts ...*int64) {
	for _, n := range counts {
		if *n <= MostHidden {
			*n = 0
		}
	}
}

// ToRadius are those of the jobs that are to a radius.
func (e *Env) ToRadius(ctx context.Context, ids []int64) ([]int64, error) {
	rows, err := e.Reads().Query(ctx, queries.jobsToRadius, pgx.StrictNamedArgs{"ids": ids})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Coarse is a count as the role may read it. atMost is what a count that is as low may be less than,
// too; 0: counts are what they are.
func (r Role) Coarse(n int64) (shown, atMost int64) {
	if r.ReadsContents() {
		return n, 0
	}
	return max(n, MostHidden), MostHidden
}

// AtMostText tells a count that may be less.
func AtMostText(n, atMost int64) string {
	if atMost > 0 && n <= atMost {
		return "fewer than " + text.Grouped(atMost+1)
	}
	return text.Grouped(n)
}

package operation

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Roles that read no contents must not find out where a person is. The constants bound their audiences: radiuses are at
// least leastRadius metres, and counts of at most MostHidden people are hidden. Counts inside a radius are rounded down
// to a multiple of MostHidden+1, so that two of them seldom differ by one person.
const (
	MostHidden  = 9
	leastRadius = 500
)

// MayFind returns an error for an audience that would reveal the place of one person to a role that reads no
// contents.
func (r Role) MayFind(a channels.Audience) error {
	if r.ReadsContents() || a.Kind != channels.KindRadius || a.RadiusM >= leastRadius {
		return nil
	}
	return Invalid("radius", "is too small; allowed values for viewers and authors: %dm or more", leastRadius)
}

// NeedsApproval reports whether a job of this role waits for approval, whatever its category requires. A job
// to a radius changes visible state of each recipient, such as caps, invalid addresses and the rates of
// senders, so that its author could find out who is inside.
func (r Role) NeedsApproval(a channels.Audience) bool {
	return !r.ReadsContents() && a.Kind == channels.KindRadius
}

// MayLocate returns an error if an operation would list the channels of a job to a radius for a role that
// reads no contents: their places would follow from its centre and radius.
func (e *Env) MayLocate(ctx context.Context, operation string, jobID int64) error {
	locates, err := e.Locates(ctx, jobID)
	if err != nil || !locates {
		return err
	}
	return &DeniedError{Operation: operation + " of a job to a radius", Has: e.Role, Needs: Operator}
}

// Locates reports whether a job is to a radius, or was before a correction, and the role reads no contents. The rows of
// such a job would reveal places.
func (e *Env) Locates(ctx context.Context, jobID int64) (bool, error) {
	if e.Role.ReadsContents() {
		return false, nil
	}
	if _, err := e.Jobs.Get(ctx, jobID); err != nil {
		return false, NoSuchJob(err)
	}
	found, err := e.ToRadius(ctx, []int64{jobID})
	return len(found) > 0, err
}

// locating is a part of a result that depends on whether a person is inside the radius of a job. HideLocation
// removes the difference.
type locating interface{ HideLocation() }

// hideLocation removes from a job to a radius, and from each corrected one, which may have been to a radius, each field that depends on a single person: the cursor, which
// is the id of the last channel, exact counts, and effects of at most MostHidden rows.
func hideLocation(v reflect.Value) {
	if !v.CanAddr() || !v.Addr().CanInterface() {
		return
	}
	switch s := v.Addr().Interface().(type) {
	case *job.Job:
		if s.Audience.Kind != channels.KindRadius && s.Revision == 0 {
			return
		}
		s.Cursor = ""
		if s.ChannelsMatched <= MostHidden {
			s.Chunks, s.Throttle, s.ThrottleDetail, s.ThrottledMS = 0, "", "", 0
		}
		Round(&s.ChannelsRead, &s.ChannelsMatched, &s.RowsWritten, &s.Declined, &s.Skipped, &s.Recalled, &s.Erased)
		s.ApprovedCount = rounded(s.ApprovedCount, MostHidden+1) // a walk may write 5 % more, rounded up
		s.ApprovedRecipients = rounded(s.ApprovedRecipients, MostHidden+1)
		s.ChannelsTotal = rounded(s.ChannelsTotal, MostHidden)
	case *job.Revision:
		var was struct{ Kind channels.Kind }
		if json.Unmarshal(s.Audience, &was) != nil || was.Kind == channels.KindRadius {
			s.Cursor = ""
		}
	case locating:
		s.HideLocation()
	}
}

// Round rounds counts inside a radius down.
func Round(counts ...*int64) {
	for _, n := range counts {
		*n -= *n % (MostHidden + 1)
	}
}

// rounded returns a copy of a count inside a radius, rounded down, or nil if it is at most hidden.
func rounded[T int | int64](n *T, hidden T) *T {
	if n == nil || *n <= hidden {
		return nil
	}
	return new(*n - *n%(MostHidden+1))
}

// ToRadius returns the ids of jobs to a radius, or to one before a correction.
func (e *Env) ToRadius(ctx context.Context, ids []int64) ([]int64, error) {
	return db.Column[int64](ctx, e.Reads(), queries.jobsToRadius, pgx.StrictNamedArgs{"ids": ids})
}

// HidesDetail reports whether a role may not see the detail of an act, whose counts and channels would reveal who is
// inside the radius of a job: of acts on such a job, and on dead letters.
func (r Role) HidesDetail(act job.ControlEvent, toRadius bool) bool {
	return !r.ReadsContents() && (toRadius || act.Subject == job.SubjectDeadLetter)
}

// HideInside removes the details of acts that the role may not see.
func (e *Env) HideInside(ctx context.Context, acts []job.ControlEvent) error {
	if e.Role.ReadsContents() || len(acts) == 0 {
		return nil
	}
	ids := make([]int64, 0, len(acts))
	for _, a := range acts {
		ids = append(ids, a.JobID())
	}
	hidden, err := e.ToRadius(ctx, ids)
	for i, a := range acts {
		if e.Role.HidesDetail(a, slices.Contains(hidden, a.JobID())) {
			acts[i].Detail = json.RawMessage("{}")
		}
	}
	return err
}

// Coarse returns a count of an audience for the role. If atMost is not 0, a real count that is not above it may be any
// number from 0 to atMost, and one inside a radius is rounded down.
func (r Role) Coarse(n int64, of channels.Audience) (shown, atMost int64) {
	if r.ReadsContents() {
		return n, 0
	}
	if of.Kind == channels.KindRadius {
		Round(&n)
	}
	return max(n, MostHidden), MostHidden
}

// AtMostText renders a count from Coarse.
func AtMostText(n, atMost int64) string {
	if atMost > 0 && n <= atMost {
		return "fewer than " + text.Grouped(atMost+1)
	}
	return text.Grouped(n)
}

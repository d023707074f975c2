package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
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
	if e.Role.readsContents() {
		return nil
	}
	j, err := e.Jobs.Get(ctx, jobID)
	if err != nil {
		return noSuchJob(err)
	}
	if j.Audience.Kind != channels.KindRadius {
		return nil
	}
	return &DeniedError{Operation: operation + " of a job to a radius", Has: e.Role, Needs: Operator}
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
	rows, err := e.reads().Query(ctx, queries.jobsToRadius, pgx.StrictNamedArgs{"ids": ids})
	if err != nil {
		return nil, err
	}
	hidden, err := pgx.CollectRows(rows, pgx.RowTo[int64])
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

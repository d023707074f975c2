package recipients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// segmentScan is the number of waiting jobs that are searched for a segment, in the order of their ids.
const segmentScan = 10_000

// segmentRef names a segment.
type segmentRef struct {
	Name string `arg:"NAME" values:"channels segment list"`
}

type newSegment struct {
	Name        string `arg:"NAME"`
	Description string `flag:"description" help:"purpose of the segment"`
	operation.Act
}

type segmentDrop struct {
	segmentRef
	operation.PlanFlags
	operation.Act
}

// SegmentNamed names a segment that was created.
type SegmentNamed struct {
	Segment string `json:"segment"`
}

// SegmentDropped is a segment that was removed.
type SegmentDropped struct {
	Plan    *operation.Plan `json:"plan,omitempty"` // if set, nothing was removed
	Segment string          `json:"segment"`
	Members int64           `json:"members"`
}

// Affected returns the number of members.
func (d *SegmentDropped) Affected(string) operation.Affected {
	return operation.Affected{N: d.Members, Noun: "member", Plan: d.Plan}
}

func segmentOperations() []operation.Operation {
	return append([]operation.Operation{
		operation.Define(operation.Operation{Name: "channels segment list", Suggests: "name description",
			Short: "List segments by name", Role: operation.Viewer,
			Long: "List segments by name. Members are counted up to 10,000. To count active members, use\n`belfry channels count --segment NAME`."},
			func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[channels.Segment], error) {
				return operation.Listed(ctx, env, func(ctx context.Context, tx pgx.Tx) ([]channels.Segment, error) {
					return env.Channels.ListSegments(ctx, tx)
				})
			}, segmentsText),
		operation.Define(operation.Operation{
			Name: "channels segment create", Short: "Create an empty segment", Role: operation.Operator, Changes: true,
			Events:  "the segment's events",
			SQL:     `INSERT INTO belfry.segments (name, description) VALUES ('beta', 'beta testers');`,
			Example: `  belfry channels segment create beta --description "beta testers"`,
		}, func(ctx context.Context, env *operation.Env, in newSegment) (SegmentNamed, error) {
			err := env.Channels.CreateSegment(ctx, env.DB, in.Name, in.Description, in.ChannelsBy(env))
			if err != nil {
				return SegmentNamed{}, segmentProblem(in.Name, err)
			}
			return SegmentNamed{in.Name}, nil
		}, func(p *text.Doc, _ newSegment, out SegmentNamed) {
			p.Note("created; %s", text.Command("channels segment add", out.Segment).Usage("FILE").To("add members"))
		}),
		operation.Define(operation.Operation{
			Name: "channels segment drop", Short: "Remove a segment, not its channels", Role: operation.Operator, Changes: true,
			Events: "the segment's events",
			Long: `Remove a segment, but not its channels. A running job for the segment finds no further
members and ends early. --dry-run counts the members, and lists the waiting and running
jobs and the schedules for the segment. --plan fails if the number of members has changed.`,
			SQL: `DELETE FROM belfry.segments WHERE name = 'beta';`,
			Example: `  belfry channels segment drop beta --dry-run
  belfry channels segment drop beta --plan TOKEN`,
		}, dropSegment, func(p *text.Doc, _ segmentDrop, out *SegmentDropped) {
			if out.Plan != nil {
				out.Plan.Text(p, "member", "removed")
			}
		}),
	}, memberOperations()...)
}

func segmentsText(p *text.Doc, _ operation.None, out operation.List[channels.Segment]) {
	if len(out.Items) == 0 {
		p.Line("no segments yet; %s", text.Command("channels segment create").Usage("NAME").To("create one"))
		return
	}
	t := text.NewTable("NAME", ">MEMBERS", "CREATED", "DESCRIPTION")
	for _, s := range out.Items {
		t.Add(s.Name, text.Bounded(s.Members, channels.SegmentCounts), s.CreatedAt, text.OneLine(s.Description, 80))
	}
	p.Table(t)
}

// dropSegment removes a segment. A dry run counts its members and rolls back.
func dropSegment(ctx context.Context, env *operation.Env, in segmentDrop) (*SegmentDropped, error) {
	out := &SegmentDropped{Segment: in.Name}
	plan := &operation.Plan{Selection: "segment " + in.Name, Outcomes: []operation.Outcome{}}
	if in.Counts() {
		var err error
		if plan.AsOf, err = env.Jobs.Now(ctx); err != nil {
			return nil, err
		}
		if plan.Outcomes, err = segmentUsers(ctx, env, in.Name); err != nil {
			return nil, err
		}
	}
	change, err := env.Channels.DropSegment(ctx, env.DB, channels.SegmentEdit{
		Segment: in.Name, By: in.ChannelsBy(env), Agree: func(c channels.SegmentChange) error {
			plan.Count = c.Removed
			if err := in.Agrees(plan, "member", "removed"); err != nil || !in.DryRun {
				return err
			}
			plan.Outcomes = slices.Insert(plan.Outcomes, 0, operation.Outcome{Of: "members", Outcome: "removed", Count: c.Removed})
			out.Plan = plan
			return operation.ErrPlanned
		},
	})
	if err != nil && out.Plan == nil {
		return nil, segmentProblem(in.Name, err)
	}
	out.Members = change.Removed
	return out, nil
}

// segmentUsers lists the jobs and schedules whose audience is the segment.
func segmentUsers(ctx context.Context, env *operation.Env, segment string) (list []operation.Outcome, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"segment": segment, "scan": segmentScan, "limit": operation.NamedJobs}
		list, err = db.Collect(ctx, tx, queries.segmentUsers, args, func(row pgx.CollectableRow) (o operation.Outcome, err error) {
			o.Outcome = "left"
			return o, row.Scan(&o.Of, &o.Detail)
		})
		return err
	})
	return list, err
}

// segmentProblem adds the next step to an error, and classifies invalid input.
func segmentProblem(name string, err error) error {
	switch {
	case errors.Is(err, channels.ErrAudience):
		return operation.Invalid("", "%s", err)
	case errors.Is(err, channels.ErrMember):
		return operation.Invalid("keys", "%s", strings.TrimPrefix(err.Error(), channels.ErrMember.Error()+": "))
	case errors.Is(err, channels.ErrSegmentExists):
		return fmt.Errorf("%w: %s", channels.ErrSegmentExists, name)
	case errors.Is(err, channels.ErrNoSegment):
		return operation.Advise(err, "`belfry channels segment list` lists the segments")
	}
	return err
}

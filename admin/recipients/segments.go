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
	"github.com/belfryhq/belfry/internal/text"
)

// segmentLooks is among how many jobs that wait those on a segment are looked for, the next first.
const segmentLooks = 10_000

// segmentRef names a segment.
type segmentRef struct {
	Name string `arg:"NAME" values:"channels segment list"`
}

type newSegment struct {
	Name        string `arg:"NAME"`
	Description string `flag:"description" help:"what the segment is for"`
	operation.Act
}

type segmentDrop struct {
	segmentRef
	operation.PlanFlags
	operation.Act
}

// SegmentNamed is a segment that was made.
type SegmentNamed struct {
	Segment string `json:"segment"`
}

// SegmentDropped is a segment that was removed.
type SegmentDropped struct {
	Plan    *operation.Plan `json:"plan,omitempty"` // then it was not
	Segment string          `json:"segment"`
	Members int64           `json:"members"` // that it had
}

// Affected returns what a receipt counts.
func (d *SegmentDropped) Affected(string) operation.Affected {
	return operation.Affected{N: d.Members, Noun: "member", Plan: d.Plan}
}

func segmentOperations() []operation.Operation {
	return append([]operation.Operation{
		operation.Define(operation.Operation{Name: "channels segment list", Offers: "name description", Short: "List segments by name", Role: operation.Viewer,
			Long: "List segments by name. Members are counted to 10,000; `belfry channels count --segment NAME`\ncounts those that are active."},
			func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[channels.Segment], error) {
				return operation.Listed(ctx, env, func(ctx context.Context, tx pgx.Tx) ([]channels.Segment, error) {
					return env.Channels.ListSegments(ctx, tx)
				})
			}, segmentsText),
		operation.Define(operation.Operation{
			Name: "channels segment create", Short: "Make an empty segment", Role: operation.Operator, Changes: true, Events: "the segment's events",
			SQL:     `INSERT INTO belfry.segments (name, description) VALUES ('beta', 'beta testers');`,
			Example: `  belfry channels segment create beta --description "beta testers"`,
		}, func(ctx context.Context, env *operation.Env, in newSegment) (SegmentNamed, error) {
			err := env.Channels.CreateSegment(ctx, env.DB, in.Name, in.Description, in.ChannelsBy(env))
			if err != nil {
				return SegmentNamed{}, segmentProblem(in.Name, err)
			}
			return SegmentNamed{in.Name}, nil
		}, func(p *text.Doc, _ newSegment, out SegmentNamed) {
			p.Note("created; fill it with\n  belfry channels segment add %s FILE", out.Segment)
		}),
		operation.Define(operation.Operation{
			Name: "channels segment drop", Short: "Remove a segment, not its channels", Role: operation.Operator, Changes: true, Events: "the segment's events",
			Long: `Remove a segment, not its channels. A job on it that is under way finds no further
members and ends early. --dry-run counts the members, and names the jobs that wait or run
and the schedules that are for them; --plan refuses another number of members.`,
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
		p.Printf("no segments yet; make one with\n  belfry channels segment create NAME\n")
		return
	}
	t := text.NewTable("NAME", ">MEMBERS", "CREATED", "DESCRIPTION")
	for _, s := range out.Items {
		t.Add(s.Name, text.Bounded(s.Members, channels.SegmentCounts), p.Clock(s.CreatedAt), text.OneLine(s.Description, 80))
	}
	p.Table(t)
}

// dropSegment removes a segment, or takes it back once it is known how many members go with it.
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

// segmentUsers are who is left with nobody to send to: jobs and schedules on a segment.
func segmentUsers(ctx context.Context, env *operation.Env, segment string) (list []operation.Outcome, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.segmentUsers, pgx.StrictNamedArgs{"segment": segment, "looks": segmentLooks, "limit": operation.NamedJobs})
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o operation.Outcome, err error) {
			o.Outcome = "left"
			return o, row.Scan(&o.Of, &o.Detail)
		})
		return err
	})
	return list, err
}

// segmentProblem says where to look, and that a bad name is a matter of the input.
func segmentProblem(name string, err error) error {
	switch {
	case errors.Is(err, channels.ErrAudience):
		return operation.Invalid("", "%s", err)
	case errors.Is(err, channels.ErrMember):
		return operation.Invalid("keys", "%s", strings.TrimPrefix(err.Error(), channels.ErrMember.Error()+": "))
	case errors.Is(err, channels.ErrSegmentExists):
		return fmt.Errorf("%w: %s", channels.ErrSegmentExists, name)
	case errors.Is(err, channels.ErrNoSegment):
		return operation.Advise(err, "`belfry channels segment list` shows what there is")
	}
	return err
}

package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
)

// segmentRef names a segment.
type segmentRef struct {
	Name string `arg:"NAME" values:"channels segment list"`
}

type newSegment struct {
	Name        string `arg:"NAME"`
	Description string `flag:"description" help:"what the segment is for"`
	Act
}

type segmentDrop struct {
	segmentRef
	Act
}

// SegmentNamed is a segment that was made or removed.
type SegmentNamed struct {
	Segment string `json:"segment"`
}

func segmentOperations() []Operation {
	return append([]Operation{
		Define(Operation{Name: "channels segment list", Offers: "name description", Short: "List segments by name", Role: Viewer,
			Long: "List segments by name. Members are counted to 10,000; `belfry channels count --segment NAME`\ncounts those that are active."},
			func(ctx context.Context, env *Env, _ None) (List[channels.Segment], error) {
				list, err := env.Channels.ListSegments(ctx, env.DB)
				return List[channels.Segment]{Items: list}, err
			}, segmentsText),
		Define(Operation{
			Name: "channels segment create", Short: "Make an empty segment", Role: Operator, Changes: true, Events: "the segment's events",
			SQL:     `INSERT INTO belfry.segments (name, description) VALUES ('beta', 'beta testers');`,
			Example: `  belfry channels segment create beta --description "beta testers"`,
		}, func(ctx context.Context, env *Env, in newSegment) (SegmentNamed, error) {
			err := env.Channels.CreateSegment(ctx, env.DB, in.Name, in.Description, in.of(env))
			return segmentRef{in.Name}.done(err)
		}, func(p *printer.Page, _ newSegment, out SegmentNamed) {
			p.Note("created; fill it with\n  belfry channels segment add %s FILE", out.Segment)
		}),
		Define(Operation{
			Name: "channels segment drop", Short: "Remove a segment, not its channels", Role: Operator, Changes: true, Events: "the segment's events",
			Long: `Remove a segment, not its channels. A job on it that is under way finds no further
members and ends early.`,
			SQL: `DELETE FROM belfry.segments WHERE name = 'beta';`,
		}, func(ctx context.Context, env *Env, in segmentDrop) (SegmentNamed, error) {
			return in.done(env.Channels.DropSegment(ctx, env.DB, in.Name, in.of(env)))
		}, func(*printer.Page, segmentDrop, SegmentNamed) {}),
	}, memberOperations()...)
}

func segmentsText(p *printer.Page, _ None, out List[channels.Segment]) {
	if len(out.Items) == 0 {
		p.Printf("no segments yet; make one with\n  belfry channels segment create NAME\n")
		return
	}
	t := printer.NewTable("NAME", ">MEMBERS", "CREATED", "DESCRIPTION")
	for _, s := range out.Items {
		t.Add(s.Name, printer.Bounded(s.Members, channels.SegmentCounts), p.Clock(s.CreatedAt), printer.OneLine(s.Description, 80))
	}
	p.Table(t)
}

// done is the segment that was acted on, unless it was not.
func (s segmentRef) done(err error) (SegmentNamed, error) {
	if err != nil {
		return SegmentNamed{}, segmentProblem(s.Name, err)
	}
	return SegmentNamed{s.Name}, nil
}

// segmentProblem says where to look, and that a bad name is a matter of the input.
func segmentProblem(name string, err error) error {
	switch {
	case errors.Is(err, channels.ErrAudience):
		return invalid("", "%s", err)
	case errors.Is(err, channels.ErrMember):
		return invalid("keys", "%s", strings.TrimPrefix(err.Error(), channels.ErrMember.Error()+": "))
	case errors.Is(err, channels.ErrSegmentExists):
		return fmt.Errorf("%w: %s", channels.ErrSegmentExists, name)
	case errors.Is(err, channels.ErrNoSegment):
		return advise(err, "`belfry channels segment list` shows what there is")
	}
	return err
}

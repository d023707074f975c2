package enqueue

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// audienceCount is the number of channels of an audience.
type audienceCount struct {
	Audience channels.Audience `json:"audience"`
	Channels int64             `json:"channels"`
	// AtMost is the highest value of Channels that may stand for a lower one, for viewers and authors.
	// 0 means an exact count.
	AtMost int64 `json:"at_most,omitempty" doc:"channels that is not above it may be any number from 0 to it, and inside a radius it is rounded down to a multiple of ten: so viewers and authors cannot locate a person; absent: channels is exact"`
}

// countOf counts an audience, as the role may read it.
func countOf(ctx context.Context, env *operation.Env, audience channels.Audience) (*audienceCount, error) {
	n, err := env.Channels.Count(ctx, env.Reads(), audience)
	if err != nil {
		return nil, err
	}
	c := &audienceCount{Audience: audience}
	c.Channels, c.AtMost = env.Role.Coarse(n, audience)
	return c, nil
}

type countInput struct {
	content.AudienceChoice
	Timeout *operation.Span `flag:"timeout" label:"DURATION" help:"give up after this time (default 2m)"`
}

func (in countInput) Check(operation.Operation, time.Time) error {
	_, err := in.Audience()
	return err
}

func countOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "channels count", Short: "Count the channels that an audience matches now", Role: operation.Viewer, Usage: "AUDIENCE", Deadline: -1,
		Long: "Count the active channels that an audience matches now. Nothing is written.\n\n" + content.AudienceHelp,
		Example: `  belfry channels count --everyone
  belfry channels count --near 37.57,126.98 --radius 30km --platform ios`,
	}, func(ctx context.Context, env *operation.Env, in countInput) (*audienceCount, error) {
		audience, err := in.Audience()
		if err != nil {
			return nil, err
		}
		limit := content.PreviewDeadline // like a preview, it reads every candidate
		if in.Timeout != nil {
			limit = time.Duration(*in.Timeout)
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := env.Role.MayFind(audience); err != nil {
			return nil, err
		}
		return countOf(ctx, env, audience)
	}, func(p *text.Doc, _ countInput, out *audienceCount) {
		out.text(p)
	})
}

func (c *audienceCount) text(p *text.Doc) {
	if c.AtMost > 0 && c.Channels <= c.AtMost {
		p.Line("%s", operation.AtMostText(c.Channels, c.AtMost))
		return
	}
	p.Line("%d", c.Channels)
	p.Note("%s: %s", c.Audience, text.Counted(c.Channels, "active channel"))
}

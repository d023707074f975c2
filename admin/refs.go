package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// noSuchJob says where to look when there is no such job.
func noSuchJob(err error) error {
	if errors.Is(err, job.ErrNotFound) {
		return advise(err, "`belfry jobs list` shows what there is")
	}
	return err
}

// jobRef names one job.
type jobRef struct {
	ID int64 `arg:"ID" values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, as belfry jobs list shows them"`
}

// channelRef names one channel.
type channelRef struct {
	Channel    *int64  `flag:"channel" label:"ID" help:"the channel with this id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID"`
}

// find returns the id of the channel, which exists.
func (c channelRef) find(ctx context.Context, env *Env, operation string) (int64, error) {
	if (c.Channel != nil) == (c.ExternalID != nil) {
		return 0, invalid("", "%s takes either --channel ID or --external-id ID", operation)
	}
	if c.ExternalID != nil {
		return env.Channels.Resolve(ctx, env.reads(), *c.ExternalID)
	}
	found, err := env.Channels.Recipients(ctx, env.reads(), []int64{*c.Channel})
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, fmt.Errorf("%w with id %d in %s", channels.ErrNoChannel, *c.Channel, env.Channels.Relation())
	}
	return *c.Channel, nil
}

// text names the channel as it was given.
func (c channelRef) text() string {
	if c.ExternalID != nil {
		return "channel " + printer.OneLine(*c.ExternalID, 60)
	}
	return "channel " + printer.Int(*c.Channel)
}

// flags are the flags that name the channel.
func (c channelRef) flags() string {
	if c.ExternalID != nil {
		return "--external-id " + printer.OneLine(*c.ExternalID, 60)
	}
	return "--channel " + printer.Int(*c.Channel)
}

func (r jobRef) resource() resource {
	return resource{subject: subjectJob, name: printer.Int(r.ID), show: "jobs show " + printer.Int(r.ID), notFound: func(context.Context, *Env) error {
		return noSuchJob(fmt.Errorf("job %d: %w", r.ID, job.ErrNotFound))
	}}
}

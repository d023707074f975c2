package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// NoSuchJob adds advice to the error of a job that does not exist.
func NoSuchJob(err error) error {
	if errors.Is(err, job.ErrNotFound) {
		return Advise(err, "`belfry jobs list` lists the jobs")
	}
	return err
}

// JobRef identifies one job.
type JobRef struct {
	ID int64 `arg:"ID" values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, see belfry jobs list"`
}

// ChannelRef identifies one channel.
type ChannelRef struct {
	Channel    *int64  `flag:"channel" label:"ID" help:"the channel with this id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID"`
}

// Find returns the id of the channel, or an error if it does not exist.
func (c ChannelRef) Find(ctx context.Context, env *Env, operation string) (int64, error) {
	if (c.Channel != nil) == (c.ExternalID != nil) {
		return 0, Invalid("", "%s takes either --channel ID or --external-id ID", operation)
	}
	if c.ExternalID != nil {
		return env.Channels.Resolve(ctx, env.Reads(), *c.ExternalID)
	}
	found, err := env.Channels.Recipients(ctx, env.Reads(), []int64{*c.Channel})
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, fmt.Errorf("%w with id %d in %s", channels.ErrNoChannel, *c.Channel, env.Channels.Relation())
	}
	return *c.Channel, nil
}

// Text returns the channel as it was given.
func (c ChannelRef) Text() string {
	if c.ExternalID != nil {
		return "channel " + text.OneLine(*c.ExternalID, 60)
	}
	return "channel " + text.Int(*c.Channel)
}

// Flags returns the flags that identify the channel.
func (c ChannelRef) Flags() string {
	if c.ExternalID != nil {
		return "--external-id " + text.OneLine(*c.ExternalID, 60)
	}
	return "--channel " + text.Int(*c.Channel)
}

// Resource returns the object of the precondition.
func (r JobRef) Resource() Resource {
	return Resource{Subject: SubjectJob, Name: text.Int(r.ID), Show: text.Command("jobs show", r.ID),
		NotFound: func(context.Context, *Env) error {
			return NoSuchJob(fmt.Errorf("job %d: %w", r.ID, job.ErrNotFound))
		}}
}

// SubjectJob is the subject of events of jobs.
const SubjectJob = "job"

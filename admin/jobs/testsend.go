package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

type testSend struct {
	operation.JobRef
	To          string `flag:"to" label:"CHANNEL" help:"external id or id of the channel"`
	RequestedBy string `flag:"requested-by" local:"true" label:"WHO" help:"requester, recorded in {events} (default: user@host)"`
}

func (in testSend) Check(operation.Operation, time.Time) error {
	if in.To == "" {
		return operation.Invalid("", "--to CHANNEL is required: an external id or an id")
	}
	return nil
}

func testSendOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs test-send", Short: "Send a job's content to one channel now, as a test", Usage: "ID --to CHANNEL",
		Role: operation.Author, Changes: true, Events: content.SentEvents,
		Long: `Send the present content of a job to one channel, before all bulk messages: an activity with
the job in belfry.activities.test_of. The job's counts, report and audit do not include it,
and the channel also receives the job. Content, route, opt-outs, quiet hours and caps are
those of the job's category. ` + "`belfry events list`" + ` shows the requester and the channel.

A job that waits for approval can only be tested with channels of the segment testers, five
times per clock hour. In a category with approval_above, other tests count as activities
(activities_per_hour).

CHANNEL is an external id, or the id of a channel if no channel has this external id. A
running daemon or ` + "`belfry relay`" + ` delivers the message.`,
		Example: "  belfry jobs test-send 17 --to kim@example.org\n  belfry jobs test-send 17 --to 4711",
	}, sendTest, func(d *text.Doc, in testSend, sent outbox.Activity) {
		d.Line("%d", sent.ID)
		d.Note("activity %d, a test of job %s, to channel %s; a running daemon delivers it, or %s", sent.ID, text.Ref("job", in.ID),
			text.Ref("channel", sent.ChannelID), text.Command("relay"))
	})
}

func sendTest(ctx context.Context, env *operation.Env, in testSend) (outbox.Activity, error) {
	j, err := env.Jobs.Get(ctx, in.ID)
	switch {
	case err != nil:
		return outbox.Activity{}, operation.NoSuchJob(err)
	case j.Type == outbox.TypeInbox:
		return outbox.Activity{},
			operation.Invalid("", "job %d is of type inbox; allowed values: a job with messages, such as of type push", in.ID)
	}
	channel, err := findChannel(ctx, env, in.To)
	if err != nil {
		return outbox.Activity{}, err
	}
	who := in.RequestedBy
	if who == "" {
		who = env.Actor
	}
	sent, err := outbox.SendTest(ctx, env.DB, in.ID, channel, who, env.Role >= operation.Operator)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return sent, content.SendRefused(err, false)
	}
	return sent, err
}

// findChannel returns the id of a channel, by its external id or its id.
func findChannel(ctx context.Context, env *operation.Env, name string) (int64, error) {
	found, unknown := env.Channels.Resolve(ctx, env.Reads(), name)
	if unknown == nil {
		return found, nil
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return 0, unknown
	}
	people, err := env.Channels.RecipientsBare(ctx, env.Reads(), []int64{id})
	if err == nil && len(people) == 0 {
		err = fmt.Errorf("%w with external id or id %s in %s", channels.ErrNoChannel, name, env.Channels.Relation())
	}
	return id, err
}

package recipients

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/text"
)

// forgetPatience is for how long relays and runs that work on the channel are waited for.
const forgetPatience = time.Minute

// ForgetInput identifies one person, by channel id or external id.
type ForgetInput struct {
	ID         *int64  `arg:"[CHANNEL]" is:"a channel's id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID"`
	operation.PlanFlags
	operation.Act
}

// Check returns what is wrong with the input.
func (in ForgetInput) Check(operation.Operation, time.Time) error {
	if (in.ID != nil) == (in.ExternalID != nil) {
		return operation.Invalid("", "channels forget takes either CHANNEL or --external-id ID")
	}
	return nil
}

// ForgetReport is what was erased of a channel, or would be. It does not say whose it was.
type ForgetReport struct {
	Plan *operation.Plan `json:"plan,omitempty"`
	delivery.Forgotten

	// Remark says what of the channel is not belfry's to erase.
	Remark string `json:"remark,omitempty"`
}

// Affected returns what a receipt counts.
func (f *ForgetReport) Affected(string) operation.Affected {
	return operation.Affected{N: f.Rows(), Noun: "row", Plan: f.Plan}
}

func forgetOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "channels forget", Short: "Erase all that belfry has of one channel", Usage: "{CHANNEL | --external-id ID}",
		Role: operation.Admin, Changes: true, Deadline: -1, Events: "an event that does not say whom",
		Long: `Erase all that belfry has of one channel, as on a request for erasure: the row of
belfry.channels with its addresses, opt-outs and invalid addresses, memberships in
segments, notifications, messages with their attempts, activities, the errors of skips, and
its external id in the lists of jobs, their revisions and events, and of schedules. Opt-outs
go as well: whoever comes back under the same external id is new, and is asked anew.

The channel is emptied first, so that nothing more is written or sent to it. A message that
a relay has in flight, and a chunk in progress, are waited for, up to a minute; then the
command ends with an error, and repeating it goes on. So does repeating one that was
interrupted.

What was counted stays counted, and audits of jobs agree. The act is kept in the events with
how many rows of each kind, and without the channel: do not name it in --reason. Words of a
job, backups, the logs and the application's own table are not belfry's to erase.`,
		Example: `  belfry channels forget --external-id user-4711 --dry-run
  belfry channels forget --external-id user-4711 --plan TOKEN --reason "ticket 815"
  belfry channels forget 4711`,
	}, forgetChannel, func(p *text.Doc, _ ForgetInput, out *ForgetReport) {
		if out.Plan != nil {
			out.Plan.Text(p, "row", "erased")
		} else {
			p.Printf("erased: %s\n", forgottenText(out.Forgotten))
		}
		if out.Remark != "" {
			p.Note("%s", out.Remark)
		}
	})
}

func forgetChannel(ctx context.Context, env *operation.Env, in ForgetInput) (*ForgetReport, error) {
	id, external, err := in.Find(ctx, env)
	if err != nil {
		return nil, err
	}
	remark, err := notOurs(ctx, env)
	if err != nil {
		return nil, err
	}
	if in.Counts() {
		asOf, err := env.Jobs.Now(ctx)
		if err != nil {
			return nil, err
		}
		counts, err := delivery.Forget(ctx, env.DB, env.Channels, id, external, delivery.ForgetOptions{DryRun: true})
		if err != nil {
			return nil, err
		}
		plan := forgetPlan(counts, asOf)
		if in.DryRun {
			return &ForgetReport{Plan: plan, Forgotten: counts, Remark: remark}, nil
		}
		if err := in.Agrees(plan, "row", "erased"); err != nil {
			return nil, err
		}
	}
	done, err := delivery.Forget(ctx, env.DB, env.Channels, id, external, delivery.ForgetOptions{
		Act: in.By(env), Patience: forgetPatience,
		Observe: func(f delivery.Forgotten) { env.Progressf("erased so far: %s", text.Counted(f.Rows(), "row")) },
	})
	if errors.Is(err, delivery.ErrStillSent) {
		err = operation.Advise(err, "what is erased stays erased; repeat the command")
	}
	return &ForgetReport{Forgotten: done, Remark: remark}, err
}

// Find returns the channel's id and its external id. One that is gone may have left rows:
// its id finds them.
func (in ForgetInput) Find(ctx context.Context, env *operation.Env) (id int64, external string, err error) {
	if in.ExternalID != nil {
		id, err = env.Channels.Resolve(ctx, env.Reads(), *in.ExternalID)
		return id, *in.ExternalID, err
	}
	found, err := env.Channels.Recipients(ctx, env.Reads(), []int64{*in.ID})
	if err != nil || len(found) == 0 {
		return *in.ID, "", err
	}
	return *in.ID, found[0].ExternalID, nil
}

// notOurs says whose the row of the channel is beside belfry.
func notOurs(ctx context.Context, env *operation.Env) (string, error) {
	if !env.Channels.Own() {
		return env.Channels.Relation() + " is the application's: its row stays, and the channel is in audiences until it is deleted there", nil
	}
	a, err := attach.Read(ctx, env.DB)
	if err != nil || a == nil {
		return "", err
	}
	return a.Relation + " is the application's: delete its row there first, or its next change makes a channel again", nil
}

func forgetPlan(f delivery.Forgotten, asOf time.Time) *operation.Plan {
	p := &operation.Plan{Selection: "one channel", AsOf: asOf, Count: f.Rows(), Outcomes: []operation.Outcome{}}
	for _, part := range forgottenParts(f) {
		if part.n > 0 {
			p.Outcomes = append(p.Outcomes, operation.Outcome{Of: part.many, Outcome: "erased", Count: part.n})
		}
	}
	return p
}

type forgottenPart struct {
	n         int64
	one, many string
}

func forgottenParts(f delivery.Forgotten) []forgottenPart {
	return []forgottenPart{
		{f.Channels, "channel", "channels"}, {f.OptOuts, "opt-out", "opt-outs"}, {f.InvalidAddresses, "invalid address", "invalid addresses"},
		{f.SegmentMembers, "membership", "memberships"}, {f.Messages, "message", "messages"}, {f.Attempts, "attempt", "attempts"},
		{f.Notifications, "notification", "notifications"}, {f.Activities, "activity", "activities"}, {f.Skips, "error of a skip", "errors of skips"},
		{f.Lists, "list", "lists"},
	}
}

func forgottenText(f delivery.Forgotten) string {
	var parts []string
	for _, part := range forgottenParts(f) {
		switch part.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+part.one)
		default:
			parts = append(parts, text.Grouped(part.n)+" "+part.many)
		}
	}
	return text.OrNone(strings.Join(parts, ", "))
}

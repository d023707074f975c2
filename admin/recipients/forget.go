package recipients

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/text"
)

// forgetPatience is the maximum wait for relays and runs that work on the channel.
const forgetPatience = time.Minute

// ForgetInput identifies one person, by channel id or external id.
type ForgetInput struct {
	ID         *int64  `arg:"[CHANNEL]" is:"a channel's id"`
	ExternalID *string `flag:"external-id" label:"ID" help:"the channel with this external ID"`
	operation.PlanFlags
	operation.Act
}

// Check validates the input.
func (in ForgetInput) Check(operation.Operation, time.Time) error {
	if (in.ID != nil) == (in.ExternalID != nil) {
		return operation.Invalid("", "channels forget takes either CHANNEL or --external-id ID")
	}
	return nil
}

// ForgetReport counts the rows of a channel that were erased, or would be. It does not contain the id.
type ForgetReport struct {
	Plan *operation.Plan `json:"plan,omitempty"`
	Forgotten

	// Remark names a row of the application, which belfry does not erase.
	Remark string `json:"remark,omitempty"`
}

// Affected returns the number of rows.
func (f *ForgetReport) Affected(string) operation.Affected {
	return operation.Affected{N: f.Rows(), Noun: "row", Plan: f.Plan}
}

func forgetOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "channels forget", Short: "Erase all data of one channel", Usage: "{CHANNEL | --external-id ID}",
		Role: operation.Admin, Changes: true, Deadline: -1, Events: "an event without the channel",
		Long: `Erase all data of one channel, such as after a request for erasure: the row of
belfry.channels with its addresses, opt-outs and invalid addresses, memberships in
segments, notifications, messages with their attempts, activities, the errors of skips, and
its external id in the lists of jobs, their revisions and events, and of schedules. Since
opt-outs are erased, too, a recipient who returns with the same external id is new.

The channel is emptied first, so that nothing more is written or sent to it. The command
waits up to a minute for messages in flight, a chunk in progress, and open transactions that
write belfry's tables; then it fails. Repeat it to resume, also after an interruption.

Counts do not change, and audits of jobs pass. The event has the number of rows of each
kind, but not the channel: do not name it in --reason. The content of jobs, backups, logs
and the application's own table are not erased.`,
		Example: `  belfry channels forget --external-id user-4711 --dry-run
  belfry channels forget --external-id user-4711 --plan TOKEN --reason "ticket 815"
  belfry channels forget 4711`,
	}, forgetChannel, func(p *text.Doc, _ ForgetInput, out *ForgetReport) {
		if out.Plan != nil {
			out.Plan.Text(p, "row", "erased")
		} else {
			p.Line("erased: %s", forgottenText(out.Forgotten))
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
	remark, err := remarkOf(ctx, env)
	if err != nil {
		return nil, err
	}
	if in.Counts() {
		asOf, err := env.Jobs.Now(ctx)
		if err != nil {
			return nil, err
		}
		counts, err := Forget(ctx, env.DB, env.Channels, id, external, ForgetOptions{DryRun: true})
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
	done, err := Forget(ctx, env.DB, env.Channels, id, external, ForgetOptions{
		Act: in.By(env), Patience: forgetPatience,
		Observe: func(f Forgotten) { env.Progressf("erased so far: %s", text.Counted(f.Rows(), "row")) },
	})
	if errors.Is(err, ErrStillSent) {
		err = operation.Advise(err, "the rows so far stay erased; repeat the command to resume")
	}
	return &ForgetReport{Forgotten: done, Remark: remark}, err
}

// Find returns the channel's id and its external id. A deleted channel may have left rows, which its
// id finds; the external id is empty then.
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

// remarkOf returns a remark if the application has a row of the channel.
func remarkOf(ctx context.Context, env *operation.Env) (string, error) {
	if !env.Channels.Own() {
		return env.Channels.Relation() + " belongs to the application: delete the row there; until then the channel is in audiences", nil
	}
	a, err := attach.Read(ctx, env.DB)
	if err != nil || a == nil {
		return "", err
	}
	return a.Relation + " belongs to the application: delete the row there first, or its next change creates the channel again", nil
}

func forgetPlan(f Forgotten, asOf time.Time) *operation.Plan {
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

func forgottenParts(f Forgotten) []forgottenPart {
	return []forgottenPart{
		{f.Channels, "channel", "channels"}, {f.OptOuts, "opt-out", "opt-outs"}, {f.InvalidAddresses, "invalid address", "invalid addresses"},
		{f.SegmentMembers, "membership", "memberships"}, {f.Messages, "message", "messages"}, {f.Attempts, "attempt", "attempts"},
		{f.Notifications, "notification", "notifications"}, {f.Activities, "activity", "activities"},
		{f.Skips, "error of a skip", "errors of skips"},
		{f.Lists, "list", "lists"},
	}
}

func forgottenText(f Forgotten) string {
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

package recipients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/text"
)

// detachWait bounds how long detach waits for a moment without writers.
const detachWait = 10 * time.Minute

type attachInput struct {
	Relation   string `arg:"RELATION"`
	ExternalID string `flag:"external-id" label:"COLUMN" required:"true" help:"COLUMN of the service's user id, with a unique index: uuid, text or an integer" allowed:"a column with a unique index of its own"`
	Platform   string `flag:"platform" label:"COLUMN" help:"COLUMN, or =VALUE for all (default =unknown)"`
	Active     string `flag:"active" label:"COLUMN" help:"boolean COLUMN, or !COLUMN: active while it is null or false (default: all are)"`
	Locale     string `flag:"locale" label:"COLUMN" help:"COLUMN, or =VALUE for all"`
	TimeZone   string `flag:"time-zone" label:"COLUMN" help:"COLUMN, or =VALUE for all"`
	Location   string `flag:"location" label:"COLUMN" help:"point COLUMN, or LATITUDE,LONGITUDE as two columns"`
	Attributes string `flag:"attributes" label:"COLUMN" help:"jsonb COLUMN, or columns: NAME=COLUMN,COLUMN,…"`
	Addresses  string `flag:"addresses" label:"COLUMN" help:"jsonb COLUMN, or columns by medium: push=COLUMN,email=COLUMN"`
	attachBatch
	Wait operation.Span `flag:"wait" label:"DURATION" default:"10m" help:"maximum wait for a moment without writers (default 10m)"`
	operation.Act
}

// attachBatch is the number of rows per transaction.
type attachBatch struct {
	Batch int `flag:"batch" label:"ROWS" min:"1" max:"100000" default:"2000" help:"rows per transaction, 1 to 100000 (default 2000)"`
}

type verifyInput struct {
	attachBatch
	operation.PlanFlags
	operation.Act
}

// Attachment is the relation that belfry.channels follows.
type Attachment struct {
	attach.Status

	TookSeconds float64 `json:"took_seconds"` // of the backfill
	// UnlistedPlatforms lists up to ten platforms that no audience can name.
	UnlistedPlatforms []string `json:"unlisted_platforms"`
}

// Affected returns the number of rows that were ever backfilled.
func (a *Attachment) Affected(string) operation.Affected {
	return operation.Affected{N: a.Filled, Noun: "row"}
}

// Detached names a relation that is no longer followed.
type Detached struct {
	Relation string `json:"relation"`
}

// Verified lists the differences between the attached relation and belfry.channels.
type Verified struct {
	Plan *operation.Plan `json:"plan,omitempty"` // if set, nothing was repaired
	attach.Drift

	TookSeconds       float64  `json:"took_seconds"`
	UnlistedPlatforms []string `json:"unlisted_platforms"` // see Attachment
}

// Affected returns the number of channels that differ.
func (v *Verified) Affected(string) operation.Affected {
	return operation.Affected{N: differs(v.Drift), Noun: "channel", Plan: v.Plan}
}

// Verdict returns an error if a dry run found a difference.
func (v *Verified) Verdict() error {
	if v.Plan == nil || v.None() {
		return nil
	}
	return errors.New("belfry.channels differs from the attached relation; repair it: `belfry channels verify`")
}

func differs(d attach.Drift) int64 { return d.Missing + d.Different + d.Strays }

func attachOperations() []operation.Operation {
	const events = "the events of the attached relation"
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "channels attach", Short: "Have belfry.channels follow a table of the application, of uuid or text keys",
			Role: operation.Admin, Changes: true, Deadline: -1, Usage: "RELATION --external-id COLUMN", Events: events,
			Long: `Have belfry.channels follow a table of the application, whose keys may be uuid, text or
integers. Triggers on RELATION write the channel in the same transaction as its row.
Existing rows are backfilled in one transaction per batch, in the order of COLUMN's unique
index, without a lock on any row of the application. If attach is interrupted, repeat it:
it resumes where it stopped. With other columns it restarts. A server ends it after five
minutes; repeat it then.

A deleted row leaves its channel behind, inactive and without location, attributes and
addresses. TRUNCATE has this effect on all channels. A value that a channel cannot have,
such as a platform with a blank, is left empty. No write of the application fails because
of the triggers: if a channel cannot be written (a lock for 5 seconds, a snapshot in
REPEATABLE READ older than the channel), the channel is unchanged, and 'belfry doctor'
recommends 'belfry channels verify'. If a column of the mapping is renamed, dropped or
changes its type, channels are unchanged until the table is attached again.

Partitioned, unlogged and temporary tables, VIRTUAL generated columns and DEFERRABLE keys
are not supported. Names may have double quotes, as in SQL.

CREATE TRIGGER blocks writers for a moment. It is tried for half a second at a time, until
--wait is over, so that no writer waits longer behind a long transaction.

The database user owns the schema belfry and needs SELECT and TRIGGER on RELATION, granted
by its owner. The application needs no privileges. The error of a missing privilege
contains the remedy.`,
			Example: `  belfry channels attach app.users --external-id id --platform os --active '!deleted_at' \
      --locale lang --time-zone tz --location lat,lon --attributes first_name,plan --addresses push=push_token,email=email
  belfry channels attach shop.customers --external-id login --platform =web --addresses contacts`,
		}, attachRelation, func(p *text.Doc, _ attachInput, out *Attachment) {
			if out.FilledAt == nil {
				p.Line("%s attached, %s backfilled so far", out.Relation, text.Counted(out.Filled, "row"))
				return
			}
			p.Line("%s attached, %s backfilled in %s", out.Relation, text.Counted(out.Filled, "row"), operation.SecondsSpan(&out.TookSeconds))
			if out.Unusable > 0 {
				p.Note("%s skipped: the external id does not have 1 to 200 characters", text.Counted(out.Unusable, "row"))
			}
			notePlatforms(p, out.UnlistedPlatforms)
			p.Note("existing channels without a row are unchanged; %s", text.Command("channels verify").To("deactivate them"))
		}),
		operation.Define(operation.Operation{
			Name: "channels detach", Short: "Stop following the attached table", Role: operation.Admin, Changes: true, Deadline: -1, Events: events,
			Long: `Drop the triggers of the attached relation, and stop following it. The channels do not
change. Only the relation's owner may drop its triggers.`,
		}, func(ctx context.Context, env *operation.Env, in operation.Act) (Detached, error) {
			ctx, cancel := context.WithTimeout(ctx, detachWait)
			defer cancel()
			relation, err := attach.Detach(ctx, env.DB, in.ChannelsBy(env))
			return Detached{relation}, err
		}, func(p *text.Doc, _ operation.Act, out Detached) { p.Line("%s detached", out.Relation) }),
		operation.Define(operation.Operation{
			Name: "channels verify", Short: "Compare the attached relation with belfry.channels, and repair differences",
			Role: operation.Operator, Changes: true, Deadline: -1, Events: events,
			Long: `Compare every row of the attached relation with its channel, and every active channel
with its row, in one transaction per batch, and repair differences: missing channels are
created, different channels updated, and channels without a row deactivated. Differences
have two causes: the triggers could not follow a write, which 'belfry doctor' reports, or
the triggers did not run, because of session_replication_role = replica, a restore of one
table, or a disabled trigger. The exit code is 1 if --dry-run found a difference.`,
		}, verifyAttached, verifiedText),
	}
}

func attachRelation(ctx context.Context, env *operation.Env, in attachInput) (*Attachment, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Duration(in.Wait))
	err := attach.Attach(waiting, env.Channels, env.DB, attach.Table{
		Relation: in.Relation, ExternalID: in.ExternalID, Platform: in.Platform, Active: in.Active, Locale: in.Locale,
		TimeZone: in.TimeZone, Location: in.Location, Attributes: in.Attributes, Addresses: in.Addresses,
	}, in.ChannelsBy(env))
	cancel()
	if err != nil {
		return nil, attachRefused(err)
	}
	began := time.Now()
	if _, err = attach.Backfill(ctx, env.DB, attach.Options{BatchSize: in.Batch, Progress: progressOf(env, "backfilled", began)}); err != nil {
		return nil, fmt.Errorf("%w; repeat the command to resume", err)
	}
	state, err := attach.Read(ctx, env.DB)
	switch {
	case err != nil:
		return nil, err
	case state == nil:
		return nil, attach.ErrNotAttached
	}
	took := time.Since(began).Seconds()
	unlisted, err := attach.UnlistedPlatforms(ctx, env.DB)
	return &Attachment{*state, took, unlisted}, err
}

// attachRefused attributes the problems of an attachment to the parameters.
func attachRefused(err error) error {
	if !errors.Is(err, attach.ErrTable) {
		return err
	}
	var bad operation.InvalidError
	for one := range strings.SplitSeq(err.Error(), "\n") {
		param, text, named := strings.Cut(strings.TrimPrefix(one, attach.ErrTable.Error()+": "), ": ")
		if !named || strings.Contains(param, " ") {
			param, text = "relation", strings.TrimPrefix(one, attach.ErrTable.Error()+": ")
		}
		bad.Add(param, "%s", text)
	}
	return &bad
}

func verifyAttached(ctx context.Context, env *operation.Env, in verifyInput) (*Verified, error) {
	began := time.Now()
	options := attach.Options{BatchSize: in.Batch, By: in.ChannelsBy(env), Progress: progressOf(env, "compared", began)}
	if in.Counts() {
		asOf, err := env.Jobs.Now(ctx)
		if err != nil {
			return nil, err
		}
		options.DryRun = true
		found, err := attach.Verify(ctx, env.DB, options)
		if err != nil {
			return nil, err
		}
		plan := verifyPlan(found, asOf)
		if in.DryRun {
			return verifiedAs(ctx, env, plan, found, began)
		}
		if err := in.Agrees(plan, "channel", "repaired"); err != nil {
			return nil, err
		}
		options.DryRun = false
	}
	found, err := attach.Verify(ctx, env.DB, options)
	if err != nil {
		return nil, err
	}
	return verifiedAs(ctx, env, nil, found, began)
}

func verifiedAs(ctx context.Context, env *operation.Env, plan *operation.Plan, found attach.Drift, began time.Time) (*Verified, error) {
	took := time.Since(began).Seconds()
	unlisted, err := attach.UnlistedPlatforms(ctx, env.DB)
	return &Verified{plan, found, took, unlisted}, err
}

func notePlatforms(p *text.Doc, unlisted []string) {
	if len(unlisted) > 0 {
		p.Note("no audience can name these platforms of channels: %s; allowed values: the rows of belfry.platforms, to which "+
			"you may INSERT more", strings.Join(unlisted, ", "))
	}
}

func verifyPlan(d attach.Drift, asOf time.Time) *operation.Plan {
	p := &operation.Plan{Selection: "the attached relation", AsOf: asOf, Count: differs(d), Outcomes: []operation.Outcome{}}
	for _, o := range []operation.Outcome{
		{Of: "rows without a channel", Outcome: "created", Count: d.Missing},
		{Of: "rows with a different channel", Outcome: "updated", Count: d.Different},
		{Of: "channels without a row", Outcome: "deactivated", Count: d.Strays},
	} {
		if o.Count > 0 {
			p.Outcomes = append(p.Outcomes, o)
		}
	}
	return p
}

func verifiedText(p *text.Doc, _ verifyInput, out *Verified) {
	repaired := ""
	if out.Plan == nil && !out.None() {
		repaired = "; all repaired"
	}
	p.Line("%s compared in %s: %s without a channel, %s with a different channel, %s without a row%s", text.Counted(out.Rows, "row"),
		operation.SecondsSpan(&out.TookSeconds),
		text.Count(out.Missing), text.Count(out.Different), text.Counted(out.Strays, "channel"), repaired)
	if out.Unusable > 0 {
		p.Note("%s skipped: the external id does not have 1 to 200 characters", text.Counted(out.Unusable, "row"))
	}
	notePlatforms(p, out.UnlistedPlatforms)
	if out.Plan != nil {
		out.Plan.Note(p)
	}
}

// progressOf returns a function that reports the progress over a table.
func progressOf(env *operation.Env, done string, began time.Time) func(attach.Drift) {
	return func(d attach.Drift) {
		rate := float64(d.Rows) / max(time.Since(began).Seconds(), 0.001)
		env.Progressf("%s %s, %s/s", text.Counted(d.Rows, "row"), done, text.Grouped(int64(rate)))
	}
}

package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// adoptInput is the input of `adopt`.
type adoptInput struct {
	DryRun bool   `flag:"dry-run" help:"only show the waiting messages"`
	Place  string `flag:"place" help:"record this name: only relays with this delivery.place deliver"`
	operation.Act
}

// Adoption is an adopted database, or a database to adopt, and its waiting messages.
type Adoption struct {
	outbox.Installation

	Changed bool    `json:"changed"` // by this act
	Backlog Backlog `json:"backlog"`
}

func adoptOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "adopt", Short: "Deliver messages from a database that was restored, copied or moved",
		Long: `Deliver messages from a database that was restored from a dump, copied or moved.

The database records the server (its system identifier, if the server provides it) and the
database (its oid) in which belfry was created. Elsewhere no relay delivers messages,
because a copy would send the messages of the original to the same people. Waiting relays
log it, belfry doctor fails, and belfry run --deliver ends with exit code 78. Jobs still
run. Promotion of a standby does not change the place; a restored dump, CREATE DATABASE …
TEMPLATE and pg_upgrade do. To distinguish a copy of the server's files from the original,
set delivery.place in the relays and record it here by --place: relays with a different
place, or none, wait as well. docs/operations.md has the details.

The command shows the original place, the present place and the waiting messages, and asks
for confirmation at a terminal, but not with --json. If more than 1,000 messages wait, the
confirmation is their number. With --yes, or the confirmation, relays resume immediately.
To prevent the delivery of waiting messages, abort or recall their jobs first.`,
		SQL: `SELECT belfry.adopt('ann', 'moved to the new server');
To stop delivery again: UPDATE belfry.installation SET database_oid = NULL;`,
		Example: `  belfry adopt
  belfry adopt --yes --reason "moved to the new server"
  belfry adopt --place production --reason "delivery.place is set"`,
		Role: operation.Admin, Changes: true, Events: "belfry.events",
		Confirm: operation.Confirming(func(ctx context.Context, env *operation.Env, in adoptInput) (operation.Question, error) {
			found, err := adoptable(ctx, env)
			if err != nil || in.done(found) || in.DryRun {
				return operation.Question{}, err
			}
			return operation.Question{About: found, Text: "Adopt it?", If: "relays are to deliver messages from here"}.ToMany(found.messages()), nil
		}),
	}, adopt, adoptionText)
}

func (in adoptInput) Plans() bool { return in.DryRun }

// done reports whether the database is adopted already and the place recorded.
func (in adoptInput) done(a *Adoption) bool {
	return a.Adopted && (in.Place == "" || in.Place == a.Name)
}

// Affected returns the installation, with the time of its last adoption.
func (a *Adoption) Affected(string) operation.Affected {
	return operation.Affected{N: 1, Event: operation.EventKind{Subject: operation.SubjectInstallation, Name: "", Kind: "adopted", Lifted: ""}}
}

// adoptable returns the effect of an adoption.
func adoptable(ctx context.Context, env *operation.Env) (out *Adoption, err error) {
	out = new(Adoption)
	if out.Installation, err = outbox.ReadInstallation(ctx, env.DB); err != nil {
		return nil, err
	}
	if out.Backlog, err = ReadBacklog(ctx, env.DB); err != nil {
		return nil, err
	}
	return out, nil
}

func adopt(ctx context.Context, env *operation.Env, in adoptInput) (*Adoption, error) {
	out, err := adoptable(ctx, env)
	if err != nil || in.done(out) || in.DryRun {
		return out, err
	}
	if out.Installation, err = Adopt(ctx, env.DB, in.Place, in.By(env)); err != nil {
		return nil, err
	}
	out.Changed = true
	return out, nil
}

// messages returns the number of waiting messages, as far as they are counted.
func (a *Adoption) messages() int64 {
	n := a.Backlog.Activities
	for _, age := range a.Backlog.Ages {
		n += age.Messages
	}
	return n
}

func adoptionText(p *text.Doc, in adoptInput, out *Adoption) {
	switch {
	case out.Changed && in.Place != "":
		p.Line("adopted: relays whose delivery.place is %s deliver from %s, and send:", out.Name, out.Here)
	case out.Changed:
		p.Line("adopted: relays deliver from %s, and send:", out.Here)
	case out.Adopted:
		p.Line("nothing to adopt: belfry was made or adopted here, in %s", out.Here)
		return
	default:
		p.Line("made on  %s", out.Made)
		p.Line("now on   %s", out.Here)
		p.Line("adopted, relays send:")
	}
	for _, line := range backlogLines(out.Backlog) {
		p.Line("  %s", line)
	}
}

// backlogLines describes the messages that relays would send.
func backlogLines(b Backlog) (lines []string) {
	for _, age := range b.Ages {
		when := "earlier"
		switch {
		case age.Within != nil && *age.Within <= time.Hour:
			when = "in the last hour"
		case age.Within != nil && *age.Within <= 24*time.Hour:
			when = "in the last 24 hours"
		case age.Within != nil:
			when = "in the last 7 days"
		}
		lines = append(lines, fmt.Sprintf("%s of %s enqueued %s", text.Counted(age.Messages, "message"), text.Counted(age.Jobs, "job"), when))
	}
	if b.Activities > 0 {
		lines = append(lines, text.Counted(b.Activities, "message")+" of activities")
	}
	if b.Unwalked > 0 {
		lines = append(lines, "the messages of "+text.Counted(b.Unwalked, "job")+" that are PENDING or RUNNING")
	}
	if b.Schedules > 0 {
		lines = append(lines, "the messages of "+text.Counted(b.Schedules, "schedule"))
	}
	if len(lines) == 0 {
		return []string{"no waiting messages"}
	}
	return lines
}

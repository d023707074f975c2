package delivery

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// adoptInput is the input of `adopt`.
type adoptInput struct {
	DryRun bool   `flag:"dry-run" help:"only show what would leave"`
	Place  string `flag:"place" help:"record this name: relays deliver whose delivery.place it is"`
	operation.Act
}

// Adoption is a database that was adopted, or would be, and what relays send from it then.
type Adoption struct {
	outbox.Installation

	Changed bool    `json:"changed"` // by this act
	Backlog Backlog `json:"backlog"`
}

func adoptOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "adopt", Short: "Let messages leave a database that was restored, copied or moved",
		Long: `Let messages leave a database that was restored from a dump, copied or moved.

The database knows on which server (its system identifier, where the server tells it)
and in which database (its oid) belfry was made. Anywhere else no relay takes a message:
a copy would send what the original sends, to the same people. Relays that wait say so
in their log, belfry doctor fails, and belfry run --deliver ends with exit code 78. Jobs
are walked all the same. A standby that was promoted is where it was; a restored dump,
CREATE DATABASE … TEMPLATE and pg_upgrade are not. A copy of the server's files cannot
be told from the original unless relays have a delivery.place, which place records here:
relays with another one, or none, wait as well. docs/operations.md says what that covers.

The command shows where belfry was made, where it is now, and what would leave, and asks
on a terminal; with --json it does not ask. If more than 1,000 messages wait, their number
is to be typed. With --yes, or that answer, relays go on at once, by themselves. To keep
what waits from being sent, abort or recall the jobs first.`,
		SQL: `SELECT belfry.adopt('ann', 'moved to the new server');
Back, so that nothing leaves: UPDATE belfry.installation SET database_oid = NULL;`,
		Example: `  belfry adopt
  belfry adopt --yes --reason "moved to the new server"
  belfry adopt --place production --reason "delivery.place is set"`,
		Role: operation.Admin, Changes: true, Events: "belfry.events",
		Confirm: operation.Confirming(func(ctx context.Context, env *operation.Env, in adoptInput) (operation.Question, error) {
			found, err := adoptable(ctx, env)
			if err != nil || in.done(found) || in.DryRun {
				return operation.Question{}, err
			}
			return operation.Question{About: found, Text: "Adopt it?", If: "messages are to leave from here, once a relay runs"}.ToMany(found.messages()), nil
		}),
	}, adopt, adoptionText)
}

func (in adoptInput) Plans() bool { return in.DryRun }

// done reports whether nothing is to be adopted or recorded.
func (in adoptInput) done(a *Adoption) bool {
	return a.Adopted && (in.Place == "" || in.Place == a.Name)
}

// Affected is the installation, since its last adoption.
func (a *Adoption) Affected(string) operation.Affected {
	return operation.Affected{N: 1, Event: operation.EventKind{Subject: operation.SubjectInstallation, Name: "", Kind: "adopted", Lifted: ""}}
}

// adoptable is what an adoption would do.
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

// messages is how many wait, as far as they are counted.
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
		p.Printf("adopted: relays whose delivery.place is %s deliver from %s, and send:\n  %s\n", out.Name, out.Here, strings.Join(backlogLines(out.Backlog), "\n  "))
	case out.Changed:
		p.Printf("adopted: relays deliver from %s, and send:\n  %s\n", out.Here, strings.Join(backlogLines(out.Backlog), "\n  "))
	case out.Adopted:
		p.Printf("nothing to adopt: belfry was made or adopted here, in %s\n", out.Here)
	default:
		p.Printf("made on  %s\nnow on   %s\nadopted, relays send:\n  %s\n", out.Made, out.Here, strings.Join(backlogLines(out.Backlog), "\n  "))
	}
}

// backlogLines say what a relay would send.
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
		lines = append(lines, "what "+text.Counted(b.Unwalked, "job")+" that are PENDING or RUNNING will write")
	}
	if b.Schedules > 0 {
		lines = append(lines, "what "+text.Counted(b.Schedules, "schedule")+" will enqueue")
	}
	if len(lines) == 0 {
		return []string{"nothing that waits now"}
	}
	return lines
}

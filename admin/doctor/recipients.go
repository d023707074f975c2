package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/attach"
	"github.com/belfryhq/belfry/internal/text"
)

// Contract is how channels.relation keeps its contract.
type Contract struct {
	Relation string           `json:"relation"`
	Faults   []channels.Fault `json:"faults"`
	// Attached is the table that belfry.channels follows. It is null if no table is attached or if
	// channels.relation is another relation.
	Attached *attach.Status `json:"attached"`
}

func checkOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "channels check", Short: "Check channels.relation against the contract", Role: operation.Viewer,
		Long: `Check the table or view of channels.relation against the contract: which columns
of which types, unique, indexed. Every fault is named with its remedy. Exit code 1
when a job could not walk the relation, or when an attached table has changed so that
it cannot be followed; warnings do not count.

What the database knows of a relation that can be walked is brought in step: by it
belfry.send_external finds channels, and a radius is refused where there is no location.
A process that serves the HTTP API does so when it begins, not when it is asked.`,
	}, checkContract, contractText)
}

func checkContract(ctx context.Context, env *operation.Env, _ operation.None) (*Contract, error) {
	faults, err := faultsOf(ctx, env)
	if err != nil {
		return nil, err
	}
	out := &Contract{Relation: env.Channels.Relation(), Faults: faults}
	if fatalFaults(faults) > 0 {
		return out, nil
	}
	if env.InStep != nil {
		if err := env.InStep(ctx); err != nil {
			return out, err
		}
	}
	if out.Relation == channels.DefaultRelation {
		err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
			out.Attached, err = attach.Read(ctx, tx)
			return err
		})
	}
	return out, err
}

// faultsOf returns the faults of channels.relation and of the attached table.
func faultsOf(ctx context.Context, env *operation.Env) (faults []channels.Fault, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		faults, err = env.Channels.Check(ctx, tx)
		if err != nil || !env.Channels.Own() || fatalFaults(faults) > 0 {
			return err
		}
		attached, err := attach.Read(ctx, tx)
		faults = append(faults, attached.Faults()...)
		return err
	})
	return faults, err
}

// Verdict says that no job could walk the relation.
func (c *Contract) Verdict() error {
	if n := fatalFaults(c.Faults); n > 0 {
		return fmt.Errorf("%s does not keep the contract: %s", c.Relation, text.Counted(n, "fault"))
	}
	return nil
}

func contractText(p *text.Doc, _ operation.None, out *Contract) {
	for _, f := range out.Faults {
		p.Printf("%-8s %s\n", healthOf(f), faultText(out.Relation, f))
		if f.Remedy != "" {
			p.Printf("%-8s -> %s\n", "", f.Remedy)
		}
	}
	if out.Verdict() != nil {
		return
	}
	p.Printf("%s keeps the contract\n", out.Relation)
	if out.Attached != nil && out.Attached.FilledAt != nil {
		p.Note("belfry.channels follows %s since %s, %s", out.Attached.Relation, p.Clock(out.Attached.AttachedAt), verified(p.Times, out.Attached))
	}
}

func verified(times text.Times, a *attach.Status) string {
	if a.VerifiedAt == nil {
		return "never verified"
	}
	return "verified " + times.Clock(*a.VerifiedAt)
}

func fatalFaults(faults []channels.Fault) (n int64) {
	for _, f := range faults {
		if f.Fatal {
			n++
		}
	}
	return n
}

func healthOf(f channels.Fault) Health {
	if f.Fatal {
		return HealthFailed
	}
	return HealthWarning
}

func faultText(relation string, f channels.Fault) string {
	if f.Column == "" {
		return relation + ": " + f.Problem
	}
	return relation + "." + f.Column + ": " + f.Problem
}

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

// Contract lists violations of the contract by channels.relation.
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
		Long: `Check the table or view of channels.relation against the contract: columns, types, unique
keys and indexes. Each fault has a remedy. The exit code is 1 if a job could not walk the
relation, or if an attached table has changed so that it cannot be followed; warnings do
not count.

For a valid relation the command also updates the record in the database, with which
belfry.send_external finds channels and a radius is rejected if there is no location. A
process that serves the HTTP API updates it when it starts, not by this operation.`,
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

// Verdict returns an error if no job could walk the relation.
func (c *Contract) Verdict() error {
	if n := fatalFaults(c.Faults); n > 0 {
		return fmt.Errorf("%s violates the contract: %s", c.Relation, text.Counted(n, "fault"))
	}
	return nil
}

func contractText(p *text.Doc, _ operation.None, out *Contract) {
	for _, f := range out.Faults {
		p.Line("%s %s", paddedStatus(healthOf(f)), faultText(out.Relation, f))
		if f.Remedy != "" {
			p.Line("%-8s -> %s", "", f.Remedy)
		}
	}
	if out.Verdict() != nil {
		return
	}
	p.Line("%s fulfills the contract", out.Relation)
	if out.Attached != nil && out.Attached.FilledAt != nil {
		p.Note("belfry.channels follows %s since %s, %s", out.Attached.Relation, out.Attached.AttachedAt, verified(out.Attached))
	}
}

func verified(a *attach.Status) text.Line {
	if a.VerifiedAt == nil {
		return text.Sprintf("never verified")
	}
	return text.Sprintf("verified %s", *a.VerifiedAt)
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

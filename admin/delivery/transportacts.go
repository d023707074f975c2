package delivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// rebuildTransport starts a new push of QUEUED messages, and compares their count with the plan.
func rebuildTransport(ctx context.Context, env *operation.Env, in transportAct) (*TransportDone, error) {
	plan, by, err := planRebuild(ctx, env)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		return &TransportDone{Plan: plan}, nil
	}
	n, err := RebuildQueues(ctx, env.DB, in.By(env), func(queued int64) error {
		plan.Count = queued
		return in.Agrees(plan, "message", pushedAgain)
	})
	if err != nil {
		return nil, err
	}
	return &TransportDone{Messages: n, By: by}, nil
}

// planRebuild returns the messages to push again, and the relay.
func planRebuild(ctx context.Context, env *operation.Env) (plan *operation.Plan, by string, err error) {
	plan, states, err := planQueues(ctx, env, pushedAgain)
	if err != nil {
		return nil, "", err
	}
	for _, q := range states {
		if q.LeadsUntil != nil {
			by = q.Dispatcher
		}
	}
	for i := range plan.Outcomes {
		plan.Outcomes[i].Detail = pushedBy(by)
	}
	return plan, by, nil
}

// planQueues returns a plan of all QUEUED messages.
func planQueues(ctx context.Context, env *operation.Env, outcome string) (*operation.Plan, []QueueState, error) {
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	states, err := CountQueues(ctx, env.DB)
	p := &operation.Plan{Selection: "all that is queued", AsOf: asOf, Outcomes: []operation.Outcome{}}
	for _, q := range states {
		if p.Count += q.Queued; q.Queued > 0 {
			p.Outcomes = append(p.Outcomes, operation.Outcome{Of: "messages of the queue " + q.Name, Outcome: outcome, Count: q.Queued})
		}
	}
	return p, states, err
}

// pushedBy returns the relay that pushes again, and when.
func pushedBy(relay string) string {
	if relay == "" {
		return "by the next relay that works on a carrier"
	}
	return "by " + relay + " within ten seconds"
}

func rebuiltText(p *text.Doc, _ transportAct, done *TransportDone) {
	if done.Plan != nil {
		done.Plan.Text(p, "message", pushedAgain)
		return
	}
	p.Line("%s to be pushed again, %s", text.Counted(done.Messages, "message"), pushedBy(done.By))
}

// drainTransport takes all messages back and empties the carrier.
func drainTransport(ctx context.Context, env *operation.Env, in transportAct) (*TransportDone, error) {
	busy := carrierFree(ctx, env)
	if in.DryRun {
		plan, err := planDrain(ctx, env, busy)
		if err != nil {
			return nil, err
		}
		return &TransportDone{Plan: plan}, nil
	}
	if busy != nil {
		return nil, busy
	}
	if in.Plan != nil { // no relay pushes, so that the number cannot grow
		plan, _, err := planQueues(ctx, env, drained)
		if err == nil {
			err = in.Agrees(plan, "message", drained)
		}
		if err != nil {
			return nil, err
		}
	}
	done := new(TransportDone)
	var err error
	done.Messages, err = TakeBackQueued(ctx, env.DB, in.By(env), func(taken int64) {
		env.Progressf("taken back so far: %s", text.Counted(taken, "message"))
	})
	if err != nil {
		return done, err
	}
	if err := carrierFree(ctx, env); err != nil { // a relay has started meanwhile
		return done, err
	}
	states, err := QueueStates(ctx, env.DB)
	if err != nil {
		return done, err
	}
	for _, q := range states {
		if q.Queued > 0 {
			return done, operation.Conflict(
				"%s of the queue %s are locked by another session and were not taken back; repeat `belfry transport drain`",
				text.CountedTo(q.Queued, QueueCounts, "message"), q.Name)
		}
	}
	if env.Carrier.Open == nil {
		return done, nil
	}
	broker, err := env.Carrier.Open()
	if err != nil {
		return done, err
	}
	if err := errors.Join(broker.Empty(ctx), broker.Close()); err != nil {
		return done, &operation.UnavailableError{Err: fmt.Errorf("the carrier is not emptied, which loses nothing: %w", err)}
	}
	done.Emptied = true
	return done, RecordEmptied(ctx, env.DB, env.Carrier.Transport, in.By(env))
}

// planDrain returns the effect of a drain. It is nothing while relays use a carrier.
func planDrain(ctx context.Context, env *operation.Env, busy error) (*operation.Plan, error) {
	if held := new(operation.HeldError); busy != nil && !errors.As(busy, &held) {
		return nil, busy
	}
	plan, _, err := planQueues(ctx, env, drained)
	if err != nil {
		return nil, err
	}
	if env.Carrier.Open != nil {
		o := operation.Outcome{Of: "ids in the carrier at " + env.Carrier.Server, Outcome: "emptied"}
		broker, err := env.Carrier.Open()
		if err != nil {
			return nil, err
		}
		inside, err := insideCarrier(ctx, broker)
		if err != nil {
			o.Unknown, o.Detail = true, err.Error()
		}
		for _, q := range inside {
			o.Count += q.Ready + q.Later + q.Taken + q.Dead
		}
		plan.Outcomes = append(plan.Outcomes, o)
	}
	if busy != nil {
		plan.Count = 0
		for i := range plan.Outcomes {
			plan.Outcomes[i].Outcome, plan.Outcomes[i].Detail = "left", busy.Error()
		}
	}
	return plan, nil
}

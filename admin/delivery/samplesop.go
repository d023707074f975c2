package delivery

import (
	"context"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox/samples"
)

// samplesInput is the input of `samples`.
type samplesInput struct {
	Kind  sampleKind      `arg:"KIND" is:"lane, job or sender"`
	Name  string          `flag:"name" label:"NAME" help:"only this lane, job or sender (default: all of the kind together)"`
	Since *operation.Past `flag:"since" label:"TIME" help:"begin of the first step (default 1h)"`
	Until *operation.Past `flag:"until" label:"TIME" help:"end of the last step (default: now)"`
	Step  operation.Age   `flag:"step" label:"DURATION" default:"1m" help:"length of a step, whole minutes (default 1m)"`
}

// sampleKind is the kind of a subject.
type sampleKind samples.Kind

// UnmarshalText reads a kind.
func (k *sampleKind) UnmarshalText(text []byte) error {
	switch *k = sampleKind(text); samples.Kind(*k) {
	case samples.Lane, samples.Job, samples.Sender:
		return nil
	}
	return &operation.NotAllowedError{Allowed: "lane, job, sender"}
}

// Choices returns the kinds.
func (sampleKind) Choices() []string {
	return []string{string(samples.Lane), string(samples.Job), string(samples.Sender)}
}

func samplesOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "samples", Short: "Show figures per minute of a lane, a job or a sender", Role: operation.Viewer,
		Long: `Show the figures that runners and relays store once a minute: rows written, messages sent,
failed and deferred, the longest queue, and the 95th percentile of the calls, for steps of
equal length, at most 500. The figures of lanes are shown to operators only, and viewers
and authors see no figures of jobs to a radius.`,
		Example: `  belfry samples sender --name fcm
  belfry samples job --name 17 --since 6h --step 5m --json
  belfry samples sender --since 24h --step 30m`,
	}, readSamples, samplesText)
}

func readSamples(ctx context.Context, env *operation.Env, in samplesInput) (list operation.List[samples.Point], err error) {
	kind := samples.Kind(in.Kind)
	if !env.Role.ReadsContents() && kind != samples.Sender {
		id, err := strconv.ParseInt(in.Name, 10, 64)
		if kind != samples.Job || err != nil {
			return list, &operation.DeniedError{Operation: "samples of " + in.Name + " " + string(kind), Has: env.Role, Needs: operation.Operator}
		}
		if err := env.MayLocate(ctx, "samples", id); err != nil {
			return list, err
		}
	}
	to := env.Time().Add(time.Minute)
	if until := in.Until.Before(env); until != nil {
		to = *until
	}
	from := to.Add(-time.Hour)
	if since := in.Since.Before(env); since != nil {
		from = *since
	}
	step := time.Duration(in.Step)
	n := (to.Truncate(time.Minute).Sub(from.Truncate(time.Minute)) + step - 1) / step
	switch {
	case step%time.Minute != 0:
		return list, operation.Invalid("step", "%s is not allowed; allowed values: whole minutes", text.Short(step))
	case n < 1:
		return list, operation.Invalid("until", "is not after the begin")
	case n > samples.MostPoints:
		return list, operation.Invalid("step", "makes %s steps; allowed values: at most %d", text.Grouped(int64(n)), samples.MostPoints)
	}
	list.Items, err = samples.Series(ctx, env.DB, kind, in.Name, from, to, step)
	return list, err
}

func samplesText(p *text.Doc, _ samplesInput, out operation.List[samples.Point]) {
	t := text.NewTable("AT", ">ROWS", ">SENT", ">FAILED", ">DEFERRED", ">QUEUE", ">P95")
	for _, s := range out.Items {
		t.Add(s.At, s.RowsWritten, s.Sent, s.Failed, s.Deferred, s.QueueDepth, strconv.FormatInt(s.P95MS, 10)+" ms")
	}
	p.Table(t)
}

package enqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	// maxRequests is the maximum number of requests, because the response is stored with its
	// Idempotency-Key.
	maxRequests = 500
	// maxProblems is the maximum number of reported problems.
	maxProblems = 20
)

// requests are the requests of `jobs enqueue`, each an object with the fields of `enqueue`.
type requests []json.RawMessage

// UnmarshalText reads a JSON array of objects, or a sequence of objects, such as one per line.
func (r *requests) UnmarshalText(text []byte) error {
	var list []json.RawMessage
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("[")) {
		if err := config.ParseJSON(text, &list); err != nil {
			return fmt.Errorf("is not JSON: %w", err)
		}
		*r = list
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var one json.RawMessage
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("request %d is not JSON: %w", len(list), err)
		}
		list = append(list, one)
	}
	*r = list
	return nil
}

// Each returns the operation whose fields a request has, without the fields of the whole.
func (requests) Each() operation.Operation {
	return enqueueOperation().WithoutParams(func(p operation.Param) bool {
		return p.Local || slices.Contains([]string{"preview", "confirm_count"}, p.Name)
	})
}

// read parses the requests. Its error lists problems by index and field.
func (r requests) read(now time.Time) ([]enqueueInput, error) {
	var bad operation.InvalidError
	one := r.Each()
	list, keys := make([]enqueueInput, len(r)), make(map[string]int)
	for i, raw := range r {
		in, err := readRequest(one, raw, now)
		for _, p := range problemsOf(err) {
			bad.Add(requestParam(i, p.Param), "%s", p.Text)
		}
		if in.IdempotencyKey != "" {
			if first, twice := keys[in.IdempotencyKey]; twice {
				bad.Add(requestParam(i, "idempotency_key"), "is also the key of %s; use a different key for each", requestParam(first, ""))
			}
			keys[in.IdempotencyKey] = i
		}
		list[i] = in
	}
	if more := len(bad.Problems) - maxProblems; more > 0 {
		bad.Problems = append(bad.Problems[:maxProblems], operation.Problem{Param: "jobs", Text: "there are " + text.Counted(int64(more), "more problem") + " like these"})
	}
	return list, bad.OrNil()
}

// readRequest parses one request.
func readRequest(one operation.Operation, raw json.RawMessage, now time.Time) (in enqueueInput, err error) {
	fields, err := operation.FieldsOf(raw)
	if err != nil {
		return in, operation.Invalid("", "is not a JSON object: %s", err)
	}
	var bad operation.InvalidError
	names := make([]string, len(one.Params()))
	for i, p := range one.Params() {
		names[i] = p.Name
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		i := slices.Index(names, name)
		if i < 0 {
			bad.Add(text.OneLine(name, 60), "is not known; allowed values: %s%s", strings.Join(names, ", "), keys.Hint(name, names))
			continue
		}
		if err := one.Params()[i].SetJSON(&in, fields[name]); err != nil {
			bad.Add(name, "%s", err)
		}
	}
	if len(bad.Problems) > 0 {
		return in, &bad
	}
	return in, in.Check(one, now)
}

// problemsOf returns the problems of an InvalidError, or the text of another error.
func problemsOf(err error) []operation.Problem {
	var bad *operation.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return bad.Problems
	}
	return []operation.Problem{{Param: "", Text: err.Error()}}
}

// requestParam returns the path of a field of a request, such as jobs[3].title.
func requestParam(i int, field string) string {
	name := fmt.Sprintf("jobs[%d]", i)
	if field != "" {
		name += "." + field
	}
	return name
}

// enqueueManyInput is the input of `jobs enqueue`.
type enqueueManyInput struct {
	Jobs requests `flag:"from" name:"jobs" label:"FILE" file:"true" required:"true" help:"requests, up to 500: objects with the fields of enqueue over HTTP, as a JSON array or one per line" allowed:"JSON arrays of up to 500 objects, or objects one per line"`
	operation.PlanFlags
}

func (in enqueueManyInput) Check(_ operation.Operation, now time.Time) error {
	if n := len(in.Jobs); n < 1 || n > maxRequests {
		return operation.Invalid("jobs", "has %s; allowed values: 1 to %d", text.Counted(int64(n), "request"), maxRequests)
	}
	_, err := in.Jobs.read(now)
	return err
}

// enqueuedMany is the result of several requests.
type enqueuedMany struct {
	Plan *operation.Plan `json:"plan,omitempty"` // if set, nothing was enqueued
	// Jobs are the requests' jobs, in their order.
	Jobs []enqueuedOne `json:"jobs"`
	// Remarks are probable mistakes in the requests.
	Remarks []string `json:"remarks,omitempty"`
}

// enqueuedOne is the result of one request.
type enqueuedOne struct {
	IDs     []int64    `json:"ids"` // one for each type
	GroupID *uuid.UUID `json:"group_id,omitempty"`
	// Before reports that they were enqueued before, with the same idempotency key.
	Before bool `json:"before,omitempty"`
}

func (e enqueuedMany) Affected(string) operation.Affected {
	a := operation.Affected{Noun: "job", Plan: e.Plan}
	for _, one := range e.Jobs {
		a.N += int64(len(one.IDs))
	}
	return a
}

func enqueueManyOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs enqueue", Short: "Request many bulk notifications at once, all or none", Usage: "--from FILE", Role: operation.Author, Changes: true, Deadline: PreviewDeadline,
		Confirm: operation.Confirming(confirmManyLate),
		Long: `Request up to 500 bulk notifications in one transaction: all of them, or none. Each is
an object with the fields of ` + "`enqueue`" + ` over HTTP, which are its flags with _ for -, such as
type (a list), category, title, everyone, at and idempotency_key. Several types make a
group. FILE has a JSON array of them, or one per line. The output is the ids in the order
of the requests, one per line.

Errors name the request, from 0, and the field. A request with an idempotency key that was
enqueued before changes nothing and returns the ids of the first request. If each request
has a key, the whole can be repeated.

--dry-run enqueues nothing, and shows for each request whether it would be enqueued and
its number of channels. --plan fails if the number of new jobs has changed.`,
		Example: `  belfry jobs enqueue --from monday.jsonl --dry-run
  belfry jobs enqueue --from monday.jsonl
  echo '{"type": ["push"], "category": "popular_content", "title": "This week", "everyone": true}' | belfry jobs enqueue --from -`,
	}, enqueueMany, enqueuedManyText)
}

// confirmManyLate requests a confirmation of times in the past.
func confirmManyLate(ctx context.Context, env *operation.Env, in enqueueManyInput) (operation.Question, error) {
	list, err := in.Jobs.read(env.Time())
	if err != nil || in.DryRun {
		return operation.Question{}, err
	}
	var asked operation.Question
	var reach int64
	for i, one := range list {
		q, err := confirmLate(ctx, env, one)
		if err != nil {
			return operation.Question{}, err
		}
		if q.Why == "" {
			continue
		}
		if reach += one.reach(ctx, env); asked.Why == "" {
			asked = operation.Question{Why: requestParam(i, "") + ": " + q.Why, Text: requestParam(i, "") + ": " + q.Why + ". Enqueue all?", If: q.If}
		}
	}
	return asked.ToMany(reach), nil
}

func enqueueMany(ctx context.Context, env *operation.Env, in enqueueManyInput) (out enqueuedMany, err error) {
	list, err := in.Jobs.read(env.Time())
	if err != nil {
		return out, err
	}
	asked := make([]job.Request, len(list))
	for i, one := range list {
		audience, err := one.Audience()
		if err != nil {
			return out, err
		}
		if err := env.Role.MayFind(audience); err != nil {
			return out, operation.Invalid(requestParam(i, "radius"), "%s", problemsOf(err)[0].Text)
		}
		asked[i] = job.Request{Types: one.Types, Spec: one.spec(env, audience)}
	}
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return out, err
	}
	var fresh int64
	var seen []job.Requested
	made, err := env.Enqueuer().EnqueueAll(ctx, asked, func(made []job.Requested) error {
		seen, fresh = made, freshOf(made)
		switch {
		case in.Plan != nil && fresh != in.Plan.Count:
			return operation.Unexpected(fresh, in.Plan.Count, "job", "enqueued", asOf)
		case in.DryRun:
			return operation.ErrPlanned
		}
		return nil
	})
	switch {
	case errors.Is(err, operation.ErrPlanned):
		out.Plan = planRequests(ctx, env, asked, seen, fresh, asOf)
		out.Jobs = []enqueuedOne{}
		return out, nil
	case err != nil:
		return out, manyRefused(err, asked)
	}
	for i, r := range made {
		one := enqueuedOne{GroupID: r.Jobs[0].GroupID, Before: r.Before[0]}
		for k, j := range r.Jobs {
			one.IDs = append(one.IDs, j.ID)
			if r.Before[k] {
				out.Remarks = append(out.Remarks, fmt.Sprintf("%s: job %d was enqueued before, at %s, with the same idempotency key; it is %s%s",
					requestParam(i, ""), j.ID, text.LocalClock(j.CreatedAt), j.Status, list[i].differing(j)))
			}
		}
		out.Jobs = append(out.Jobs, one)
		if asked[i].Spec.Audience.Kind == channels.KindChannels {
			for _, remark := range unknownChannels(ctx, env, asked[i].Spec.Audience) {
				out.Remarks = append(out.Remarks, requestParam(i, "")+": "+remark)
			}
		}
	}
	return out, nil
}

// freshOf counts the new jobs.
func freshOf(made []job.Requested) (n int64) {
	for _, r := range made {
		for _, before := range r.Before {
			if !before {
				n++
			}
		}
	}
	return n
}

// manyRefused attributes an error of the database to a request and a field, and adds the next step if
// the outcome is unknown.
func manyRefused(err error, asked []job.Request) error {
	var at *job.RequestError
	if errors.As(err, &at) {
		var bad operation.InvalidError
		for _, p := range problemsOf(enqueueRefused(at.Err, job.Spec{IdempotencyKey: "-"})) {
			bad.Add(requestParam(at.Index, p.Param), "%s", p.Text)
		}
		if errors.As(at.Err, new(*job.InvalidError)) {
			return &bad
		}
		if errors.Is(err, job.ErrKeyHeld) {
			return &operation.HeldError{Err: err}
		}
		return err
	}
	keyless := slices.ContainsFunc(asked, func(r job.Request) bool { return r.Spec.IdempotencyKey == "" })
	if errors.Is(err, job.ErrUnreachable) && keyless {
		return operation.Advise(err, "either all jobs or none may have been enqueued; check `belfry jobs list` before you repeat the request (an idempotency_key in each request makes that safe)")
	}
	return err
}

// planRequests returns the outcome of each request with its number of channels, which is unknown if
// counting takes too long.
func planRequests(ctx context.Context, env *operation.Env, asked []job.Request, made []job.Requested, fresh int64, asOf time.Time) *operation.Plan {
	plan := &operation.Plan{Selection: text.Counted(int64(len(asked)), "request"), AsOf: asOf, Count: fresh}
	counted := make(map[string]operation.Outcome)
	for i, r := range asked {
		o := operation.Outcome{Of: fmt.Sprintf("%s (%s)", requestParam(i, ""), strings.Join(r.Types, ", ")), Outcome: "enqueued"}
		if made[i].Before[0] {
			o.Outcome, o.Detail = "left", fmt.Sprintf("job %d has its idempotency key", made[i].Jobs[0].ID)
			plan.Outcomes = append(plan.Outcomes, o)
			continue
		}
		o.Detail = r.Spec.Title
		audience := r.Spec.Audience.String()
		count, known := counted[audience]
		if !known {
			c, err := countOf(ctx, env, r.Spec.Audience)
			if count.Unknown = err != nil; err == nil {
				count.Count, count.AtMost = c.Channels, c.AtMost
			}
			counted[audience] = count
		}
		o.Count, o.AtMost, o.Unknown = count.Count, count.AtMost, count.Unknown
		plan.Outcomes = append(plan.Outcomes, o)
	}
	return plan
}

func enqueuedManyText(p *text.Doc, _ enqueueManyInput, out enqueuedMany) {
	if out.Plan != nil {
		out.Plan.Text(p, "job", "enqueued")
		return
	}
	for _, one := range out.Jobs {
		for _, id := range one.IDs {
			p.Line("%s", text.Ref("job", id))
		}
	}
	for _, remark := range out.Remarks {
		p.Note("%s", remark)
	}
}

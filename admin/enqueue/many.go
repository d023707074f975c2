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

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// maxRequests is the maximum number of requests, because the response is stored with its Idempotency-Key.
const maxRequests = 500

// requests are the requests of `jobs enqueue`, each an object with the fields of `enqueue`.
type requests []json.RawMessage

// UnmarshalText reads a JSON array of objects, or a sequence of objects, such as one per line.
func (r *requests) UnmarshalText(text []byte) error {
	*r = requests{}
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var one json.RawMessage
		list := requests{}
		err := d.Decode(&one)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && one[0] == '[':
			err = json.Unmarshal(one, (*[]json.RawMessage)(&list))
		default:
			list = requests{one}
		}
		if err != nil {
			return fmt.Errorf("is not JSON after %d requests: %w", len(*r), err)
		}
		*r = append(*r, list...)
	}
}

// Each returns the operation whose fields a request has, without the fields of the whole.
func (requests) Each() operation.Operation {
	return enqueueOperation().WithoutParams(func(p operation.Param) bool {
		return p.Local || slices.Contains([]string{"preview", "confirm_count"}, p.Name)
	})
}

// read parses the requests. Its error is about the first invalid one.
func (r requests) read(now time.Time) ([]enqueueInput, error) {
	one := r.Each()
	list, indexes := make([]enqueueInput, len(r)), make(map[string]int)
	for i, raw := range r {
		err := readRequest(one, raw, &list[i], now)
		key := list[i].IdempotencyKey
		if first, twice := indexes[key]; err == nil && twice && key != "" {
			err = operation.Invalid("idempotency_key", "is also the key of jobs[%d]; use a different key for each", first)
		}
		if err != nil {
			return nil, inRequest(i, err)
		}
		indexes[key] = i
	}
	return list, nil
}

// readRequest parses one request into in.
func readRequest(one operation.Operation, raw json.RawMessage, in *enqueueInput, now time.Time) error {
	fields, err := operation.FieldsOf(raw)
	if err != nil {
		return operation.Invalid("", "is not a JSON object: %s", err)
	}
	var names []string
	for _, p := range one.Params() {
		names = append(names, p.Name)
		if value, given := fields[p.Name]; given {
			if err := p.SetJSON(in, value); err != nil {
				return operation.Invalid(p.Name, "%s", err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(names, name) {
			return operation.Invalid(text.OneLine(name, 60), "is not known; allowed values: %s%s", strings.Join(names, ", "), keys.Hint(name, names))
		}
	}
	return in.Check(one, now)
}

// inRequest names the request of an error, such as jobs[3].title.
func inRequest(i int, err error) error {
	at := fmt.Sprintf("jobs[%d]", i)
	var bad *operation.InvalidError
	if !errors.As(err, &bad) {
		return operation.Invalid(at, "%s", err)
	}
	var named operation.InvalidError
	for _, p := range bad.Problems {
		named.Add(strings.TrimSuffix(at+"."+p.Param, "."), "%s", p.Text)
	}
	return &named
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
		Name: "jobs enqueue", Short: "Request many bulk notifications at once, all or none", Usage: "--from FILE",
		Role: operation.Author, Changes: true, Deadline: content.PreviewDeadline,
		Confirm: operation.Confirming(confirmManyLate),
		Long: `Request up to 500 bulk notifications in one transaction: all of them, or none. Each is
an object with the fields of ` + "`enqueue`" + ` over HTTP, which are its flags with _ for -, such as
type (a list), category, title, everyone, at and idempotency_key. Several types make a
group. FILE has a JSON array of them, or one per line. The output is the ids in the order
of the requests, one per line.

An error names the first invalid request, from 0, and its field. A request with an
idempotency key that was enqueued before changes nothing and returns the ids of the first
request. If each request has a key, the whole can be repeated.

--dry-run enqueues nothing, and shows the number of new jobs; ` + "`enqueue --preview`" + ` counts the
channels of one request. --plan fails if the number of new jobs has changed.`,
		Example: `  belfry jobs enqueue --from monday.jsonl --dry-run
  belfry jobs enqueue --from monday.jsonl
  echo '{"type": ["push"], "category": "popular_content", "title": "This week", "everyone": true}' | belfry jobs enqueue --from -`,
	}, enqueueMany, enqueuedManyText)
}

// confirmManyLate requests a confirmation if the time of a request is in the past.
func confirmManyLate(ctx context.Context, env *operation.Env, in enqueueManyInput) (operation.Question, error) {
	list, err := in.Jobs.read(env.Time())
	if err != nil || in.DryRun {
		return operation.Question{}, err
	}
	for i, one := range list {
		q, err := confirmLate(ctx, env, one)
		if err != nil || q.Why != "" {
			q.Why = fmt.Sprintf("jobs[%d]: %s", i, q.Why)
			q.Text = q.Why + ". Enqueue all?"
			return q, err
		}
	}
	return operation.Question{}, nil
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
			return out, inRequest(i, err)
		}
		asked[i] = job.Request{Types: one.Types, Spec: one.spec(env, audience)}
	}
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return out, err
	}
	var fresh int64
	made, err := env.Enqueuer().EnqueueAll(ctx, asked, func(made []job.Requested) error {
		fresh = freshOf(made)
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
		return enqueuedMany{Plan: &operation.Plan{Selection: text.Counted(int64(len(asked)), "request"), AsOf: asOf, Count: fresh},
			Jobs: []enqueuedOne{}}, nil
	case err != nil:
		return out, manyRefused(err, asked)
	}
	for _, r := range made {
		one := enqueuedOne{GroupID: r.Jobs[0].GroupID, Before: r.Before[0]}
		for _, j := range r.Jobs {
			one.IDs = append(one.IDs, j.ID)
		}
		out.Jobs = append(out.Jobs, one)
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
	keyless := slices.ContainsFunc(asked, func(r job.Request) bool { return r.Spec.IdempotencyKey == "" })
	switch {
	case errors.As(err, new(*job.InvalidError)) && errors.As(err, &at):
		return inRequest(at.Index, enqueueRefused(at.Err, job.Spec{}))
	case errors.Is(err, job.ErrKeyHeld):
		return &operation.HeldError{Err: err}
	case errors.Is(err, job.ErrUnreachable) && keyless:
		return operation.Advise(err,
			"either all jobs or none may have been enqueued; check `belfry jobs list` before you repeat the request (an "+
				"idempotency_key in each request makes that safe)")
	}
	return err
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
}

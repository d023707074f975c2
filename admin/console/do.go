package console

import (
	"context"
	"net/url"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
)

// do runs an operation for the requester: api.Handler.Do makes every check.
func (h *handler) do(ctx context.Context, o operation.Operation, in any) (any, error) {
	out, err := h.api.Do(ctx, api.Call{Caller: h.caller, Operation: o, Input: in, Reserved: h.reserved})
	return out.Result, err
}

// answer is the result of an operation with its input.
type answer struct {
	operation.Operation

	in, out any
}

// query runs the read operation with a name. The answer is empty if the operation does not exist.
func (h *handler) query(name string, values url.Values) (answer, error) {
	return h.queryWithin(h.req.Context(), name, values)
}

func (h *handler) queryWithin(ctx context.Context, name string, values url.Values) (answer, error) {
	o, there := h.named(name)
	if !there {
		return answer{}, nil
	}
	in, faults := read(o, values)
	for param, fault := range faults {
		return answer{}, operation.Invalid(param, "%s", fault)
	}
	out, err := h.do(ctx, o, in)
	return answer{o, in, out}, err
}

// listOf returns the objects of a list. It is empty if the operation does not exist.
func listOf[T any](h *handler, name string, values url.Values) (operation.List[T], error) {
	a, err := h.query(name, values)
	list, _ := a.out.(operation.List[T])
	return list, err
}

// names returns the names of the objects of a list, or none if the list fails.
func (h *handler) names(list string) (values []string) {
	a, err := h.query(list, nil)
	if err != nil || a.out == nil {
		return nil
	}
	suggestions, err := a.Suggestions(a.out, "")
	if err != nil {
		return nil
	}
	for _, s := range suggestions {
		values = append(values, s.Value)
	}
	return values
}

// doOnce runs an act of a form. A form that is sent twice has the same key, so that the act runs once.
func (h *handler) doOnce(o operation.Operation, in any) (any, error) {
	out, err := h.api.Do(h.req.Context(), api.Call{Caller: h.caller, Operation: o, Input: in, Key: keyOf(h.req)})
	return out.Result, err
}

// resultOf returns a result without its receipt.
func resultOf(out any) any {
	if acted, is := out.(operation.Acted); is {
		return acted.Result
	}
	return out
}

// stream runs an operation that is a stream: each gets its items.
func (h *handler) stream(ctx context.Context, o operation.Operation, in any, each func(item any) error) (any, error) {
	return h.api.Stream(ctx, api.Call{Caller: h.caller, Operation: o, Input: in}, each, nil)
}

// question returns the question to confirm before an act; the zero value if there is none.
func (h *handler) question(o operation.Operation, in any) (operation.Question, error) {
	ask, asks := o.Asking()
	if !asks {
		return operation.Question{}, nil
	}
	out, err := h.do(h.req.Context(), ask, in)
	question, _ := out.(operation.Question)
	return question, err
}

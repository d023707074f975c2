package console

import (
	"context"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
)

// do runs an operation for the requester: api.Handler.Do holds every check.
func (v *visit) do(ctx context.Context, o admin.Operation, in any) (any, error) {
	out, err := v.api.Do(ctx, api.Call{Caller: v.caller, Operation: o, Input: in})
	return out.Result, err
}

// doOnce runs an act of a form. A form that is sent twice has the same key, so that the act runs once.
func (v *visit) doOnce(o admin.Operation, in any) (any, error) {
	out, err := v.api.Do(v.req.Context(), api.Call{Caller: v.caller, Operation: o, Input: in, Key: keyOf(v.req)})
	return out.Result, err
}

// stream runs an operation that is a stream: each gets its items.
func (v *visit) stream(ctx context.Context, o admin.Operation, in any, each func(item any) error) (any, error) {
	return v.api.Stream(ctx, api.Call{Caller: v.caller, Operation: o, Input: in}, each, nil)
}

// question returns the question to confirm before an act; the zero value if there is none.
func (v *visit) question(o admin.Operation, in any) (admin.Question, error) {
	ask, asks := o.Asking()
	if !asks {
		return admin.Question{}, nil
	}
	out, err := v.do(v.req.Context(), ask, in)
	question, _ := out.(admin.Question)
	return question, err
}

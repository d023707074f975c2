package operation

import (
	"context"
	"reflect"

	"github.com/belfryhq/belfry/internal/text"
)

// DefineStream returns an operation with a sequence of results. run passes each Item to each, and returns the
// final result; an Out of None has no text. If each returns an error, run returns it. tell returns a function
// that renders the items of one stream and may have state; a nil tell means that items are available as CSV
// or JSON only. line renders the final result. A stream has no deadline unless o.Deadline specifies one: each
// of its steps has its own.
func DefineStream[In, Item, Out any](
	o Operation, run func(ctx context.Context, env *Env, in In, each func(Item) error) (Out, error),
	tell func(In) func(*text.Doc, Item), line func(*text.Doc, In, Out),
) Operation {
	if o.Deadline == 0 {
		o.Deadline = -1
	}
	rows := o.Rows
	o.Rows = ""
	o = Define(o, func(ctx context.Context, env *Env, in In) (Out, error) {
		return run(ctx, env, in, func(item Item) error {
			if env.each == nil {
				return nil
			}
			return env.each(item)
		})
	}, line)
	o.item = reflect.TypeFor[Item]()
	if o.Rows = rows; rows != "" {
		o.records, o.listed = recordsOf(o, o.item)
	} else {
		o.records = recordsOfItems(o.item)
	}
	if tell == nil {
		return o
	}
	o.tell = func(in any) func(*text.Doc, any) {
		given, ok := in.(*In)
		must(ok, "%s takes a %T, got %T", o.Name, given, in)
		say := tell(*given)
		return func(p *text.Doc, item any) {
			if one, is := item.(Item); is {
				say(p, one)
			}
		}
	}
	return o
}

// Item returns the type of a stream's items, or nil if the operation is no stream.
func (o Operation) Item() reflect.Type { return o.item }

// Stream runs a stream. It passes the items to each in order; an error of each ends the stream. It returns
// the final result, which may be nil. A stream ends without an error when ctx ends.
func (o Operation) Stream(ctx context.Context, env *Env, in any, each func(item any) error) (any, error) {
	own := *env
	own.each = func(item any) error { return each(complete(own.Redact(item))) }
	out, err := o.Run(ctx, &own, in)
	if _, nothing := out.(None); nothing {
		out = nil
	}
	return out, err
}

// Teller returns a function that renders the items of one stream, or nil if they have no text.
func (o Operation) Teller(in any) func(p *text.Doc, item any) {
	if o.tell == nil {
		return nil
	}
	return o.tell(in)
}

// HasText reports whether the result, or the items of a stream, can be rendered as text.
func (o Operation) HasText() bool { return o.item == nil || o.tell != nil }

// Lines returns the JSON documents of an item for a format with one document per line: the elements of a
// list, or the item itself.
func Lines(item any) []any {
	v := reflect.ValueOf(item)
	if v.Kind() != reflect.Slice {
		return []any{item}
	}
	lines := make([]any, v.Len())
	for i := range lines {
		lines[i] = v.Index(i).Interface()
	}
	return lines
}

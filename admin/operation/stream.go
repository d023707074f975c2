package operation

import (
	"context"
	"fmt"
	"reflect"

	"github.com/belfryhq/belfry/internal/text"
)

// DefineStream returns an operation whose result comes piece by piece: run hands each Item to
// each, and returns what there is to say at the end; an Out of None says nothing. Once each has
// returned an error, run returns it. tell makes what tells the items of one stream to a person,
// and may remember what it has told; nil: it is read as CSV or JSON alone. text tells the end. A stream has no deadline, unless
// o.Deadline says one: each of its steps has.
func DefineStream[In, Item, Out any](
	o Operation, run func(ctx context.Context, env *Env, in In, each func(Item) error) (Out, error),
	tell func(In) func(*text.Doc, Item), line func(*text.Doc, In, Out),
) Operation {
	if o.Deadline == 0 {
		o.Deadline = -1
	}
	o = Define(o, func(ctx context.Context, env *Env, in In) (Out, error) {
		return run(ctx, env, in, func(item Item) error {
			if env.each == nil {
				return nil
			}
			return env.each(item)
		})
	}, line)
	o.item = reflect.TypeFor[Item]()
	o.records = recordsOfItems(o.item)
	if tell == nil {
		return o
	}
	o.tell = func(in any) func(*text.Doc, any) {
		given, ok := in.(*In)
		if !ok {
			panic(fmt.Sprintf("%s takes a %T, got %T", o.Name, given, in))
		}
		say := tell(*given)
		return func(p *text.Doc, item any) {
			if one, is := item.(Item); is {
				say(p, one)
			}
		}
	}
	return o
}

// Item is the type of a stream's items; nil: the operation is no stream.
func (o Operation) Item() reflect.Type { return o.item }

// Stream is Run of a stream: each gets its items, one after the other, and an error of each
// ends it. The result is what is said at the end; nil: nothing. A stream ends without an error
// when ctx does.
func (o Operation) Stream(ctx context.Context, env *Env, in any, each func(item any) error) (any, error) {
	own := *env
	own.each = func(item any) error { return each(complete(own.Shown(item))) }
	out, err := o.Run(ctx, &own, in)
	if _, nothing := out.(None); nothing {
		out = nil
	}
	return out, err
}

// Teller makes what tells the items of one stream to a person; nil: nothing does.
func (o Operation) Teller(in any) func(p *text.Doc, item any) {
	if o.tell == nil {
		return nil
	}
	return o.tell(in)
}

// Told reports whether there is a text of the result, or of a stream's items, for a person.
func (o Operation) Told() bool { return o.item == nil || o.tell != nil }

// Lines are the JSON documents of an item where each has a line: those in it, if it is a list.
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

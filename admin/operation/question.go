package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/text"
)

// Asking is the operation that answers with what a person has to agree to before o is run: for
// a client without a database. False: there is nothing to agree to.
func (o Operation) Asking() (Operation, bool) {
	if o.Confirm == nil {
		return Operation{}, false
	}
	ask := o
	ask.Name = o.Name + " question"
	ask.Short = "What a person should agree to before: " + o.Short
	ask.Long, ask.Example, ask.Confirm = "Nothing is done. An empty text is no question.", "", nil
	ask.outputs = []reflect.Type{reflect.TypeFor[Question]()}
	ask.run = func(ctx context.Context, env *Env, in any) (any, error) { return o.Confirm(ctx, env, in) }
	ask.read = func(result []byte, _ string) (any, error) {
		var told struct {
			Question

			About json.RawMessage `json:"about"`
		}
		err := json.Unmarshal(result, &told)
		if err == nil && told.About != nil {
			told.Question.About, err = o.read(told.About, "")
		}
		return told.Question, err
	}
	ask.text = func(*text.Doc, any, any) {}
	return ask, true
}

// WithQuestions adds to operations those that answer what has to be agreed to before.
func WithQuestions(list []Operation) []Operation {
	var all []Operation
	for _, o := range list {
		all = append(all, o)
		if ask, asks := o.Asking(); asks {
			all = append(all, ask)
		}
	}
	return all
}

// Affected returns nothing: a question changes nothing.
func (Question) Affected(string) Affected { return Affected{Nothing: true} }

// ToldError is an error by its kind and its text: one that another process told, or that an
// operation tells itself.
type ToldError struct {
	Of   errkind.Kind
	Text string
}

// Error is the text.
func (e *ToldError) Error() string { return e.Text }

// Kind returns the kind that the other process reported.
func (e *ToldError) Kind() errkind.Kind { return e.Of }

// Conflict is an error of the state of things.
func Conflict(format string, args ...any) error {
	return &ToldError{errkind.Conflict, fmt.Sprintf(format, args...)}
}

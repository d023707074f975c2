package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// Asking returns an operation that returns the question of o, for clients without a database. It returns
// false if o has none.
func (o Operation) Asking() (Operation, bool) {
	if o.Confirm == nil {
		return Operation{}, false
	}
	ask := o
	ask.Name = o.Name + " question"
	ask.Short = "Return the confirmation question of: " + o.Short
	ask.Long, ask.Example, ask.Confirm = "Nothing is done. An empty text means that no confirmation is required.", "", nil
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

// WithQuestions adds the operations of Asking to a list.
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

// Affected reports that a question changes nothing.
func (Question) Affected(string) Affected { return Affected{Nothing: true} }

// ToldError is an error with a kind and a text, such as an error from another process.
type ToldError struct {
	Of   db.Kind
	Text string
}

// Error returns the text.
func (e *ToldError) Error() string { return e.Text }

// Kind returns the kind.
func (e *ToldError) Kind() db.Kind { return e.Of }

// Conflict returns an error about the current state.
func Conflict(format string, args ...any) error {
	return &ToldError{db.KindConflict, fmt.Sprintf(format, args...)}
}

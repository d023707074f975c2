package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// Role is what somebody may do; each may do what those before it may.
type Role int

// The roles.
const (
	Viewer   Role = iota + 1 // looks
	Author                   // writes jobs, and neither releases nor stops them
	Operator                 // stops, corrects and resumes
	Admin                    // changes what belfry may do at all
)

// String is the name by which a role is given.
func (r Role) String() string {
	names := roleNames()
	if r < Viewer || int(r) > len(names) {
		return "no role"
	}
	return names[r-1]
}

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roleNames(), string(text))
	if i < 0 {
		return &NotAllowedError{strings.Join(roleNames(), ", ") + keys.Hint(string(text), roleNames())}
	}
	*r = Role(i + 1)
	return nil
}

// Choices are the roles' names.
func (Role) Choices() []string { return roleNames() }

// ScanText reads a role of the database.
func (r *Role) ScanText(v pgtype.Text) error { return r.UnmarshalText([]byte(v.String)) }

// MarshalText writes a role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func roleNames() []string { return []string{"viewer", "author", "operator", "admin"} }

// Need is what an operation needs of the database before it begins.
type Need int

// The needs.
const (
	NeedSchema        Need = iota // a server that answers, with the schema of this version
	NeedServer                    // a server that answers, whatever its schema is
	NeedNothing                   // nothing yet: what it does first works without an answer
	NeedConfiguration             // no database at all
)

// Operation is one thing that an operator can do. Define makes one.
type Operation struct {
	// Name is noun and verb, or a verb alone.
	Name string
	// Short is a sentence without its full stop, Long the help with its paragraphs; {keys}
	// in it is where the keys of KEY=VALUE are listed. Example is lines of shell.
	Short, Long, Example string
	// SQL is what does the same by SQL, where docs/sql.md or the page of the subject has a way.
	// The help ends with it.
	SQL string
	// Usage is how the parameters are written where their list does not say it:
	// "{ID... | --group GROUP}".
	Usage string
	// Events says where an act is kept, for the help of --reason: "the lane's events".
	Events string
	// Role is the least that may do it.
	Role Role
	// Changes tells that it changes something: a standby will not do.
	Changes bool
	// Secret tells that the result has something that is shown once and kept nowhere.
	Secret bool
	// Shared tells of a stream that what it looks at is looked at for all of them together
	// (Watches): one more costs the database nothing.
	Shared bool
	// Stops tells that it stops what is written or sent, or lets it go on. A server does it on
	// connections that no other request takes.
	Stops bool
	// Need is what the database has to be.
	Need Need
	// Rows is the field of the JSON that lists, of a result that is more than a list; ".": the
	// result is the one row of a table.
	Rows string
	// Nothing is what there is to say of a stream that had no items: "the job has no messages".
	Nothing string
	// Offers are the fields of a list's rows that make an offer of each: what it is called by,
	// and what is said of it. It is what parameters with the tag values name. See Offered.
	Offers string
	// Deadline bounds it; 0: half a minute. Negative: it goes in bounded steps, and as
	// many of them as there are.
	Deadline time.Duration
	// Confirm says what a person has to agree to before it is run; nil: nothing. It is
	// the client's to ask, with no deadline. See Confirming.
	Confirm func(ctx context.Context, env *Env, in any) (Question, error)

	params  []Param
	input   reflect.Type
	outputs []reflect.Type
	item    reflect.Type                             // of a stream; nil: it is none
	tell    func(in any) func(p *text.Doc, item any) // of a stream
	run     func(ctx context.Context, env *Env, in any) (any, error)
	read    func(result []byte, next string) (any, error)
	text    func(p *text.Doc, in, out any)
	records *text.Records                  // nil: it lists nothing
	listed  func(result reflect.Value) any // of a result that is no list
}

// Question is what a person has to agree to. The zero value is none.
type Question struct {
	Why  string `json:"why"`  // nothing is done without asking: "--at is an hour ago"; "": nothing to add
	Text string `json:"text"` // "Take back all that is queued?"
	If   string `json:"if"`   // what is agreed to, after "if": "all that is queued is to be taken back"
	// Count is what a person types instead of yes: to how many something is sent, if they are
	// many. 0: a yes will do. See TypedAbove.
	Count int64 `json:"count,omitempty"`
	// About is a result that is shown before; nil: nothing is. Who is not shown it as text is
	// not asked.
	About any `json:"about,omitempty"`
}

// TypedAbove is to how many something may be sent on a yes. Of more the number is typed, so that
// it was read.
const TypedAbove = 1000

// ToMany is the question when so many are sent to.
func (q Question) ToMany(n int64) Question {
	if n > TypedAbove {
		q.Count = n
	}
	return q
}

// Confirming makes an Operation's Confirm of a function of its input.
func Confirming[In any](ask func(context.Context, *Env, In) (Question, error)) func(context.Context, *Env, any) (Question, error) {
	return func(ctx context.Context, env *Env, in any) (Question, error) {
		given, ok := in.(*In)
		if !ok {
			return Question{}, fmt.Errorf("the question is about a %T, got %T", given, in)
		}
		return ask(ctx, env, *given)
	}
}

// DefaultDeadline bounds an operation that says nothing else.
const DefaultDeadline = 30 * time.Second

// longest bounds, for who waits for it, an operation that goes in bounded steps.
const longest = 5 * time.Minute

// Limit is how long a server lets it run, and a client waits for it: its Deadline, or five minutes.
func (o Operation) Limit() time.Duration {
	if o.Deadline <= 0 {
		return longest
	}
	return o.Deadline
}

// Define returns an operation with an input of type In and results of type Out, which text
// tells to a person. It panics if a field's tags or type cannot be a parameter.
func Define[In, Out any](o Operation, run func(context.Context, *Env, In) (Out, error), line func(*text.Doc, In, Out)) Operation {
	if o.SQL != "" {
		o.Long = strings.TrimSpace(o.Long + "\n\nThe same by SQL: " + o.SQL)
	}
	o.input, o.outputs = reflect.TypeFor[In](), resultTypes[Out]()
	o.params = paramsOf(o, o.input)
	o.run = func(ctx context.Context, env *Env, in any) (any, error) {
		given, ok := in.(*In)
		if !ok {
			return nil, fmt.Errorf("%s takes a %T, got %T", o.Name, given, in)
		}
		return run(ctx, env, *given)
	}
	o.read = readResult[Out](o)
	o.records, o.listed = recordsOf(o)
	o.text = func(p *text.Doc, in, out any) {
		given, isIn := in.(*In)
		result, isOut := out.(Out)
		if isIn && isOut {
			line(p, *given, result)
		}
	}
	if o.Changes {
		for _, t := range o.outputs {
			mustBeObject(o, t)
		}
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	return o
}

// readResult makes a result of its JSON, without its receipt.
func readResult[Out any](o Operation) func(result []byte, next string) (any, error) {
	return func(result []byte, next string) (any, error) {
		var out Out
		if err := json.Unmarshal(result, &out); err != nil {
			return nil, fmt.Errorf("the result of %s: %w", o.Name, err)
		}
		if list, is := any(&out).(interface{ setNextPage(next string) }); is {
			list.setNextPage(next)
		}
		return out, nil
	}
}

// Noun is the first word of the name, if there are two.
func (o Operation) Noun() string {
	if noun, _, two := cutLast(o.Name); two {
		return noun
	}
	return ""
}

// Verb is the last word of the name.
func (o Operation) Verb() string {
	_, verb, _ := cutLast(o.Name)
	return verb
}

// Discards reports whether it removes something, so that no later act brings it back as it was.
func (o Operation) Discards() bool {
	return slices.Contains([]string{"detach", "discard", "drain", "drop", "forget", "prune", "recall", "remove", "revoke"}, o.Verb())
}

func cutLast(name string) (before, last string, found bool) {
	if i := strings.LastIndexByte(name, ' '); i >= 0 {
		return name[:i], name[i+1:], true
	}
	return "", name, false
}

// Params are the parameters, in the order of the input's fields.
func (o Operation) Params() []Param { return o.params }

// NewInput returns a pointer to an input with the defaults.
func (o Operation) NewInput() any {
	in := reflect.New(o.input)
	for _, p := range o.params {
		if p.Default == "" {
			continue
		}
		if err := p.set(in.Elem(), p.Default); err != nil {
			panic(fmt.Sprintf("%s: default of %s: %v", o.Name, p.Name, err))
		}
	}
	return in.Interface()
}

// Results are the types of which a result has the JSON of one.
func (o Operation) Results() []reflect.Type { return o.outputs }

// Allowed returns a *DeniedError if a role may not do it.
func (o Operation) Allowed(role Role) error {
	if role < o.Role {
		return &DeniedError{o.Name, role, o.Role}
	}
	return nil
}

// checked is an input with parameters that do not go together with everything.
type checked interface {
	Check(o Operation, now time.Time) error
}

// Check says what is wrong with an input that can be told without a database. Run does so
// first; a client that has to open one may ask before. now is the clock of the process.
func (o Operation) Check(in any, now time.Time) error {
	if err := o.missing(in); err != nil {
		return err
	}
	if c, is := in.(checked); is {
		if err := c.Check(o, now); err != nil {
			return err
		}
	}
	if err := o.checkPlan(in); err != nil {
		return err
	}
	return checkPrecondition(in)
}

// Run does it, if the Env's role may; the result and the error have what the role may read
// (see mask.go). The input is one of NewInput. A result that is not nil
// is worth showing, though there is an error as well; of an act it is an Acted, with the
// receipt. An act that may have taken effect though the database went silent is an
// *UnknownOutcomeError.
func (o Operation) Run(ctx context.Context, env *Env, in any) (any, error) {
	if err := o.Allowed(env.Role); err != nil {
		return nil, err
	}
	if err := o.Check(in, env.Time()); err != nil {
		return nil, err
	}
	asked := env.Time()
	out, err := o.run(ctx, env, in)
	if o.Changes {
		if env.Watches != nil {
			env.Watches.Acted()
		}
		err = UnlessUnknown(stale(ctx, env, in, err))
	}
	if err = env.Told(err); err != nil && (out == nil || reflect.ValueOf(out).IsZero()) {
		return nil, err
	}
	out = complete(env.Shown(out))
	switch {
	case Plans(in):
		err = errors.Join(err, o.sign(in, out))
	case o.Changes:
		out = receipted(ctx, env, o, asked, out)
	}
	return out, err
}

// ReadResult makes a result of Run of its JSON and of how the page after it begins.
func (o Operation) ReadResult(result []byte, next string) (any, error) {
	out, err := o.read(result, next)
	if err != nil || !o.Changes {
		return out, err
	}
	return withReceipt(o, out, result)
}

// Verdict is what is to be said of a result that is as it was asked for, and tells of
// something that is not as it should be; nil: nothing. The command line ends with it, once
// the result is shown.
func Verdict(out any) error {
	if judged, is := out.(interface{ Verdict() error }); is {
		return judged.Verdict()
	}
	return nil
}

// Text tells a result of Run to a person.
func (o Operation) Text(p *text.Doc, in, out any) {
	acted, is := out.(Acted)
	if !is {
		o.text(p, in, out)
		return
	}
	o.text(p, in, acted.Result)
	acted.text(p, o.Verb())
}

// missing reports the required parameters that were not given, all of them.
func (o Operation) missing(in any) error {
	var bad InvalidError
	v := reflect.ValueOf(in).Elem()
	for _, p := range o.params {
		if p.Required && p.field(v).IsZero() {
			bad.Add(p.Name, "is required%s", allowedText(cmp.Or(p.Allowed, strings.Join(p.choices, ", ")), "; "))
		}
	}
	return bad.OrNil()
}

// WithoutParams returns the operation without the parameters that drop reports.
func (o Operation) WithoutParams(drop func(Param) bool) Operation {
	o.params = slices.DeleteFunc(slices.Clone(o.params), drop)
	return o
}

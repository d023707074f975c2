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

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// Role is a set of permissions. Each role includes the permissions of the previous one.
type Role int

// The roles.
const (
	Viewer   Role = iota + 1 // reads
	Author                   // creates jobs, but neither releases nor stops them
	Operator                 // stops, corrects and resumes
	Admin                    // changes permissions and limits
)

// String returns the name of the role.
func (r Role) String() string {
	names := roleNames()
	if r < Viewer || int(r) > len(names) {
		return "no role"
	}
	return names[r-1]
}

// UnmarshalText parses the name of a role.
func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roleNames(), string(text))
	if i < 0 {
		return &NotAllowedError{strings.Join(roleNames(), ", ") + keys.Hint(string(text), roleNames())}
	}
	*r = Role(i + 1)
	return nil
}

// Choices returns the names of the roles.
func (Role) Choices() []string { return roleNames() }

// ScanText parses a role from the database.
func (r *Role) ScanText(v pgtype.Text) error { return r.UnmarshalText([]byte(v.String)) }

// MarshalText returns the name of the role.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func roleNames() []string { return []string{"viewer", "author", "operator", "admin"} }

// Need is the required state of the database.
type Need int

// The needs.
const (
	NeedSchema        Need = iota // a reachable server with the schema of this version
	NeedServer                    // a reachable server with any schema
	NeedNothing                   // no connection at first: the operation begins with steps that need none
	NeedConfiguration             // no database at all
)

// Operation is one thing that an operator can do. Define returns one.
type Operation struct {
	// Name is a noun and a verb, or a verb alone.
	Name string
	// Short is a sentence without a full stop. Long is the help, in which {keys} is replaced by the keys of
	// KEY=VALUE. Example contains lines of shell.
	Short, Long, Example string
	// SQL is the equivalent in SQL, if docs/sql.md or the page of the subject documents one. The help ends
	// with it.
	SQL string
	// Usage overrides the generated synopsis of the parameters, such as "{ID... | --group GROUP}".
	Usage string
	// Events names the log that stores the act, for the help of --reason: "the lane's events".
	Events string
	// Role is the lowest role that is allowed to run the operation.
	Role Role
	// Changes marks an operation that writes. It requires a primary.
	Changes bool
	// Secret marks a result with a secret that is shown once and not stored.
	Secret bool
	// Shared marks a stream whose polls are shared (Broadcaster), so that another one does not burden the
	// database.
	Shared bool
	// Stops marks an operation that stops or resumes jobs or deliveries. A server runs it on reserved
	// connections.
	Stops bool
	// StopsAll marks the operations of Stops that concern everything. A server keeps one of the reserved
	// connections for them.
	StopsAll bool
	// Need is the required state of the database.
	Need Need
	// Rows is the field of the JSON that lists, of a result that is more than a list; ".": the
	// result is the one row of a table.
	Rows string
	// Nothing is the text for a stream without items: "the job has no messages".
	Nothing string
	// Suggests are fields of a list's rows for suggestions: the field with the value, then fields that describe
	// it. The tag values of a parameter names the list. See Suggestions.
	Suggests string
	// Deadline bounds a run; 0 means 30 seconds. A negative deadline means that the operation runs in any
	// number of bounded steps.
	Deadline time.Duration
	// Confirm returns the question that a person answers before the operation runs. It may be nil. The client
	// asks, without a deadline. See Confirming.
	Confirm func(ctx context.Context, env *Env, in any) (Question, error)

	params  []Param
	input   reflect.Type
	outputs []reflect.Type
	item    reflect.Type                             // of a stream, or nil
	tell    func(in any) func(p *text.Doc, item any) // of a stream
	run     func(ctx context.Context, env *Env, in any) (any, error)
	read    func(result []byte, next string) (any, error)
	text    func(p *text.Doc, in, out any)
	records *text.Records                  // nil if the result is no list
	listed  func(result reflect.Value) any // of a result that contains a list
}

// Question is a question that a person answers before an operation runs. The zero value means that none is
// needed.
type Question struct {
	Why  string `json:"why"`  // the reason for the question, such as "--at is an hour ago"; may be empty
	Text string `json:"text"` // "Take back all that is queued?"
	If   string `json:"if"`   // the confirmed action, after "if": "all that is queued is to be taken back"
	// Count is the number of recipients, which a person types instead of yes. 0 means that yes is enough. See
	// TypedAbove.
	Count int64 `json:"count,omitempty"`
	// About is a result that is shown before the question. It may be nil. A client that does not render it as
	// text does not ask.
	About any `json:"about,omitempty"`
}

// TypedAbove is the number of recipients above which a person types the number, to prove that they read it.
const TypedAbove = 1000

// ToMany returns the question with the number of recipients, if it must be typed.
func (q Question) ToMany(n int64) Question {
	if n > TypedAbove {
		q.Count = n
	}
	return q
}

// Confirming adapts a function of an input for Operation.Confirm.
func Confirming[In any](ask func(context.Context, *Env, In) (Question, error)) func(context.Context, *Env, any) (Question, error) {
	return func(ctx context.Context, env *Env, in any) (Question, error) {
		given, ok := in.(*In)
		if !ok {
			return Question{}, fmt.Errorf("the question is about a %T, got %T", given, in)
		}
		return ask(ctx, env, *given)
	}
}

// DefaultDeadline is the deadline of operations without one.
const DefaultDeadline = 30 * time.Second

// longest bounds an operation in bounded steps for a caller that waits.
const longest = 5 * time.Minute

// Limit returns how long a server runs the operation and a client waits for it: its Deadline, or five
// minutes.
func (o Operation) Limit() time.Duration {
	if o.Deadline <= 0 {
		return longest
	}
	return o.Deadline
}

// Define returns an operation with inputs of type In and results of type Out, which line renders as text. It
// panics if a field's tags or type cannot be a parameter.
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
	o.records, o.listed = recordsOf(o, o.outputs[0])
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

// readResult returns a parser for the JSON of a result, without its receipt.
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

// Noun returns the name without its last word. It is empty for a single word.
func (o Operation) Noun() string {
	if noun, _, two := cutLast(o.Name); two {
		return noun
	}
	return ""
}

// Verb returns the last word of the name.
func (o Operation) Verb() string {
	_, verb, _ := cutLast(o.Name)
	return verb
}

// Discards reports whether the operation removes something permanently.
func (o Operation) Discards() bool {
	return slices.Contains([]string{"detach", "discard", "drain", "drop", "forget", "prune", "recall", "remove", "revoke"}, o.Verb())
}

func cutLast(name string) (before, last string, found bool) {
	if i := strings.LastIndexByte(name, ' '); i >= 0 {
		return name[:i], name[i+1:], true
	}
	return "", name, false
}

// Params returns the parameters in the order of the input's fields.
func (o Operation) Params() []Param { return o.params }

// NewInput returns a pointer to an input with the defaults.
func (o Operation) NewInput() any {
	in := reflect.New(o.input)
	for _, p := range o.params {
		if p.Default == "" {
			continue
		}
		err := p.set(in.Elem(), p.Default)
		must(err == nil, "%s: default of %s: %v", o.Name, p.Name, err)
	}
	return in.Interface()
}

// Results returns the types that the JSON of a result can have.
func (o Operation) Results() []reflect.Type { return o.outputs }

// Allowed returns a *DeniedError if the role is too low.
func (o Operation) Allowed(role Role) error {
	if role < o.Role {
		return &DeniedError{o.Name, role, o.Role}
	}
	return nil
}

// checked is an input with rules about combinations of parameters.
type checked interface {
	Check(o Operation, now time.Time) error
}

// Check returns the errors of an input that need no database to be found. Run calls it first; a client may
// call it before it connects. now is the time of the process.
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

// Run executes the operation, if the Env's role allows it. The result and the error are masked for the role
// (see mask.go). in is a value of NewInput. A non-nil result is shown even if there is also an error; the
// result of an act is an Acted, with the receipt. If the connection to the database was lost, an act may have
// taken effect and returns an *UnknownOutcomeError.
func (o Operation) Run(ctx context.Context, env *Env, in any) (any, error) {
	if err := o.Allowed(env.Role); err != nil {
		return nil, err
	}
	if err := o.Check(in, env.Time()); err != nil {
		return nil, err
	}
	asked := env.Time()
	out, err := o.run(ctx, env, in)
	if env.Role >= Operator {
		err = db.NameHolders(ctx, env.DB, err)
	}
	if o.Changes {
		if env.Broadcaster != nil {
			env.Broadcaster.Changed()
		}
		err = UnlessUnknown(stale(ctx, env, in, err))
	}
	_, list := out.(interface{ items() any }) // of an error, it has no items, and the text for none would be shown
	if err = env.RedactError(err); err != nil && (out == nil || list || reflect.ValueOf(out).IsZero()) {
		return nil, err
	}
	out = complete(env.Redact(out))
	switch {
	case Plans(in):
		err = errors.Join(err, o.sign(in, out))
	case o.Changes:
		out = receipted(ctx, env, o, asked, out)
	}
	return out, err
}

// ReadResult parses the JSON of a result of Run. next is the paging parameter of the next page.
func (o Operation) ReadResult(result []byte, next string) (any, error) {
	out, err := o.read(result, next)
	if err != nil || !o.Changes {
		return out, err
	}
	return withReceipt(o, out, result)
}

// Verdict returns an error if a successful operation found a problem, such as a failed check. The command
// line exits with it after showing the result.
func Verdict(out any) error {
	if judged, is := out.(interface{ Verdict() error }); is {
		return judged.Verdict()
	}
	return nil
}

// Text renders a result of Run.
func (o Operation) Text(p *text.Doc, in, out any) {
	acted, is := out.(Acted)
	if !is {
		o.text(p, in, out)
		return
	}
	o.text(p, in, acted.Result)
	acted.text(p, o.Verb())
}

// missing returns an error with all required parameters that were not given.
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

// WithoutParams returns the operation without the parameters for which drop returns true.
func (o Operation) WithoutParams(drop func(Param) bool) Operation {
	o.params = slices.DeleteFunc(slices.Clone(o.params), drop)
	return o
}

package operation

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Precondition is the expected version of the object of an act, like If-Match of HTTP.
type Precondition struct {
	// Versions are the accepted versions. An empty list accepts no version.
	Versions []int64
	// Exists accepts every version of an object that exists.
	Exists bool
}

// VersionFlag is the precondition among the parameters of an act on one object.
type VersionFlag struct {
	IfVersion *int64 `flag:"if-version" label:"N" min:"0" help:"only if this is still the version that --json shows"`

	header *Precondition // of If-Match; nil if the request has none
}

// SetPrecondition sets the precondition of a request.
func (e *VersionFlag) SetPrecondition(p Precondition) { e.header = &p }

// Precondition returns the precondition of an input; nil accepts any version.
func (e VersionFlag) Precondition() *Precondition {
	if e.IfVersion != nil {
		return &Precondition{Versions: []int64{*e.IfVersion}}
	}
	return e.header
}

// Resource is the object of an act. The zero value represents several objects.
type Resource struct {
	Subject, Name string           // of the object's events
	Show          text.CommandCell // shows the object
	// NotFound returns the error of an object that does not exist. Nil means that the act creates it.
	NotFound func(ctx context.Context, env *Env) error
}

// conditional is the input of an act on one object, whose version may be a precondition.
type conditional interface {
	Precondition() *Precondition
	Resource() Resource
}

// conditionable is a conditional input whose precondition a header may set.
type conditionable interface {
	conditional
	SetPrecondition(p Precondition)
}

// ApplyPrecondition adds the precondition of a request's If-Match to an input. It returns an error if the
// input already has one, or supports none.
func ApplyPrecondition(in any, p Precondition) error {
	c, is := in.(conditionable)
	switch {
	case !is:
		return errors.New("this operation does not support a precondition; leave it out")
	case c.Precondition() != nil:
		return errors.New("If-Match and if_version are the same precondition; give one of the two")
	}
	c.SetPrecondition(p)
	return nil
}

// Conditional reports whether an operation supports a precondition.
func (o Operation) Conditional() bool {
	_, is := o.NewInput().(conditionable)
	return is
}

// checkPrecondition rejects a precondition of a plan, and of an act on several objects.
func checkPrecondition(in any) error {
	c, is := in.(conditional)
	if !is || c.Precondition() == nil {
		return nil
	}
	if Plans(in) {
		return Invalid("if_version", "excludes dry_run; give one of the two")
	}
	if c.Resource().Subject == "" {
		return Invalid("if_version", "requires a single job; give one id, and no group")
	}
	return nil
}

// ActBy returns the actor, the reason, and the version that the input expects.
func ActBy(env *Env, in interface {
	conditional
	By(env *Env) job.Act
}) job.Act {
	who := in.By(env)
	if p := in.Precondition(); p != nil {
		r := in.Resource()
		who.If = &job.Precondition{Subject: r.Subject, Name: r.Name, Versions: p.Versions, Exists: p.Exists}
	}
	return who
}

// ActSince is a change of an object since the caller read it.
type ActSince struct {
	Version int64     `json:"version"` // the version after it
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	Fields  []string  `json:"fields"` // the changed fields; empty if the kind is specific enough
}

// StaleError reports that the object of an act has changed since the caller read it. Nothing was
// done.
type StaleError struct {
	Thing   string     // "job 17"
	Missing bool       // the object does not exist
	Changes []ActSince // newest first; empty if the object never had the expected version
}

// Error implements error.
func (e *StaleError) Error() string { return e.Line().String() }

// Line returns the changes with their actors and times.
func (e *StaleError) Line() text.Line {
	switch {
	case e.Missing:
		return text.Sprintf("there is no %s; nothing was done", e.Thing)
	case len(e.Changes) == 0:
		return text.Sprintf("%s has another version; nothing was done", e.Thing)
	}
	acts := make([]text.Line, len(e.Changes))
	for i, c := range e.Changes {
		reason := ""
		if c.Reason != "" {
			reason = " (" + text.OneLine(c.Reason, 80) + ")"
		}
		acts[i] = text.Sprintf("%s%s by %s at %s%s", c.Kind, fieldsText(c.Fields), c.Actor, c.At, reason)
	}
	return text.Sprintf("%s was changed since: %s; nothing was done", e.Thing, text.Join(acts, "; "))
}

// Kind returns db.KindStale.
func (*StaleError) Kind() db.Kind { return db.KindStale }

func fieldsText(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return " " + strings.Join(fields, ", ")
}

// mostActs bounds StaleError.Changes.
const mostActs = 10

// stale returns the error of an act whose object was changed since the caller read it, with the
// changes. Other errors stay as they are.
func stale(ctx context.Context, env *Env, in any, err error) error {
	var found *db.StaleError
	c, is := in.(conditional)
	if !is || !errors.As(err, &found) {
		return err
	}
	r := c.Resource()
	if found.Missing && r.NotFound != nil {
		return r.NotFound(ctx, env)
	}
	changed := &StaleError{Thing: strings.TrimSpace(found.Subject + " " + found.Name), Missing: found.Missing}
	if found.Missing {
		return changed
	}
	versions := c.Precondition().Versions
	seen, most := int64(0), mostActs
	if len(versions) > 0 {
		seen = slices.Max(versions)
	}
	if seen >= found.Version || len(versions) == 0 { // the version that the caller read is unknown: return the newest change
		seen, most = 0, 1
	}
	events, listErr := env.Jobs.ActsSince(ctx, found.Subject, found.Name, seen, most)
	if listErr != nil { // return the error without the changes
		events = nil
	}
	for _, event := range events {
		changed.Changes = append(changed.Changes, ActSince{event.ID, event.At.UTC(), event.Kind, event.Actor, event.Reason, differing(event)})
	}
	return &AdvisedError{changed, text.Sprintf("see %s", r.Show)}
}

// differing returns the names of the fields that a change changed.
func differing(event job.ControlEvent) []string {
	var detail struct{ After map[string]json.RawMessage }
	if event.Kind != job.EventChanged || json.Unmarshal(event.Detail, &detail) != nil {
		return []string{}
	}
	return slices.Sorted(maps.Keys(detail.After))
}

// Versioned is a result that shows one object with its version. A result that may show several
// objects returns false for them.
type Versioned interface {
	ResourceVersion() (version int64, one bool)
}

// Versioned reports whether results show one object with its version.
func (o Operation) Versioned() bool {
	return slices.ContainsFunc(o.outputs, func(t reflect.Type) bool { return t.Implements(reflect.TypeFor[Versioned]()) })
}

// VersionOf returns the version of the object that a result shows; false if it shows none, or
// several.
func VersionOf(out any) (version int64, one bool) {
	if acted, is := out.(Acted); is {
		out = acted.Result
	}
	if v, is := out.(Versioned); is {
		return v.ResourceVersion()
	}
	return 0, false
}

// SubjectInstallation is the subject of the events of halts and adoptions.
const SubjectInstallation = "installation"

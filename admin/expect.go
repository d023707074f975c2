package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// Match is of which version a thing has to be for an act on it: what If-Match says.
type Match struct {
	// Versions are those that will do. None: none will.
	Versions []int64
	// Exists asks only that there is such a thing.
	Exists bool
}

// expects is the part of an act's input that says what the caller has seen.
type expects struct {
	IfVersion *int64 `flag:"if-version" label:"N" min:"0" help:"do it only if this is still the version, as --json shows it: nobody has changed it since"`

	match *Match
}

func (e *expects) give(m Match) { e.match = &m }

// matched is what the thing has to be; nil: anything.
func (e expects) matched() *Match {
	if e.IfVersion != nil {
		return &Match{Versions: []int64{*e.IfVersion}}
	}
	return e.match
}

// expecting is an input of an act on one thing, by the subject and the name of its events.
type expecting interface {
	give(m Match)
	matched() *Match
	thing() (subject, name string)
}

// GiveMatch says of which version the thing has to be that an input is about. An error says why
// that cannot be said of it.
func GiveMatch(in any, m Match) error {
	e, is := in.(expecting)
	switch {
	case !is:
		return errors.New("this act is not on one thing that has a version; leave it out")
	case e.matched() != nil:
		return errors.New("if_version says the same; give one of the two")
	}
	e.give(m)
	return nil
}

// Expects reports whether an operation takes a Match.
func (o Operation) Expects() bool {
	_, is := o.NewInput().(expecting)
	return is
}

// expectable says what is wrong with an input that says of which version its thing has to be.
func expectable(in any) error {
	e, is := in.(expecting)
	if !is || e.matched() == nil {
		return nil
	}
	if Plans(in) {
		return invalid("if_version", "is for the act and not for its plan; leave one of the two out")
	}
	if _, name := e.thing(); name == "" && !isLimits(e) {
		return invalid("if_version", "is for one job; give one id, and no group")
	}
	return nil
}

func isLimits(e expecting) bool {
	subject, _ := e.thing()
	return subject == subjectLimits
}

// The subjects of things that have versions, beside those of package job and outbox.
const (
	subjectJob      = "job"
	subjectCategory = "category"
	subjectLimits   = "limits"
)

func (r jobRef) thing() (subject, name string)   { return subjectJob, printer.Int(r.ID) }
func (in laneAct) thing() (subject, name string) { return job.SubjectLane, in.Lane }
func (in senderAct) thing() (subject, name string) {
	return delivery.SubjectSender, in.Sender
}
func (in senderChange) thing() (subject, name string)   { return delivery.SubjectSender, in.Sender }
func (r scheduleRef) thing() (subject, name string)     { return job.SubjectSchedule, r.Name }
func (in categoryChange) thing() (subject, name string) { return subjectCategory, in.Category }
func (limitsChange) thing() (subject, name string)      { return subjectLimits, "" }

// thing is the one job; of several, or a group, there is no name.
func (r jobsOrGroup) thing() (subject, name string) { //nolint:unparam // the others' subjects differ
	if len(r.IDs) != 1 || r.Group != nil {
		return subjectJob, ""
	}
	return subjectJob, printer.Int(r.IDs[0])
}

// holding returns the context of an act that is to hold to what its input says.
func holding(ctx context.Context, in any) context.Context {
	e, is := in.(expecting)
	if !is || e.matched() == nil {
		return ctx
	}
	subject, name := e.thing()
	m := e.matched()
	return db.Expecting(ctx, &db.Expectation{Subject: subject, Name: name, Versions: m.Versions, Exists: m.Exists})
}

// ActSince is an act that changed a thing since somebody saw it.
type ActSince struct {
	Version int64     `json:"version"` // that it made
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	Fields  []string  `json:"fields"` // that differ since; none where the kind says it all
}

// StaleError is an act on a thing that was changed since the caller saw it. Nothing was done.
type StaleError struct {
	Thing   string     // "job 17"
	Missing bool       // there is none
	Changes []ActSince // newest first; none: the version was never its own
}

// Error says what was changed, by whom and when.
func (e *StaleError) Error() string {
	switch {
	case e.Missing:
		return "there is no " + e.Thing + "; nothing was done"
	case len(e.Changes) == 0:
		return e.Thing + " has another version; nothing was done"
	}
	acts := make([]string, len(e.Changes))
	for i, c := range e.Changes {
		acts[i] = fmt.Sprintf("%s%s by %s at %s", c.Kind, fieldsText(c.Fields), c.Actor, printer.LocalClock(c.At))
		if c.Reason != "" {
			acts[i] += " (" + printer.OneLine(c.Reason, 80) + ")"
		}
	}
	return e.Thing + " was changed since: " + strings.Join(acts, "; ") + "; nothing was done"
}

// Kind returns errkind.Stale.
func (*StaleError) Kind() errkind.Kind { return errkind.Stale }

func fieldsText(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return " " + strings.Join(fields, ", ")
}

// mostActs is how many acts a StaleError tells.
const mostActs = 10

// stale tells what a thing that was found otherwise has become.
func stale(ctx context.Context, env *Env, in any, err error) error {
	var found *db.StaleError
	if !errors.As(err, &found) {
		return err
	}
	if _, makes := in.(interface{ creates() }); found.Missing && !makes {
		return notThere(ctx, env, found)
	}
	told := &StaleError{Thing: strings.TrimSpace(found.Subject + " " + found.Name), Missing: found.Missing}
	if found.Missing {
		return told
	}
	seen, most := int64(0), mostActs
	e, _ := in.(expecting)
	if m := e.matched(); len(m.Versions) > 0 {
		seen = slices.Max(m.Versions)
	}
	if seen >= found.Version || len(e.matched().Versions) == 0 { // what the caller saw is not known: the newest act
		seen, most = 0, 1
	}
	events, listErr := env.Jobs.ActsSince(ctx, found.Subject, found.Name, seen, most)
	if listErr != nil { // what is known is told
		events = nil
	}
	for _, event := range events {
		told.Changes = append(told.Changes, ActSince{event.ID, event.At.UTC(), event.Kind, event.Actor, event.Reason, differing(event)})
	}
	return advise(told, "look at it again: `belfry "+lookAt(found.Subject, found.Name)+"`")
}

// differing are the names of what a change changed.
func differing(event job.ControlEvent) []string {
	var detail struct{ After map[string]json.RawMessage }
	if event.Kind != job.EventChanged || json.Unmarshal(event.Detail, &detail) != nil {
		return []string{}
	}
	return slices.Sorted(maps.Keys(detail.After))
}

// lookAt is the command that shows a thing.
func lookAt(subject, name string) string {
	switch subject {
	case subjectJob, job.SubjectSchedule:
		return subject + "s show " + name
	case subjectCategory:
		return "categories list"
	case subjectLimits:
		return "limits list"
	}
	return subject + "s list"
}

// notThere is the error of an act on what there is not, as without an expectation.
func notThere(ctx context.Context, env *Env, e *db.StaleError) error {
	switch e.Subject {
	case job.SubjectSchedule:
		return scheduleProblem(fmt.Errorf("schedule %s: %w", e.Name, schedule.ErrNotFound))
	case subjectCategory:
		return noSuchCategory(ctx, env, e.Name)
	}
	return noSuchJob(fmt.Errorf("job %s: %w", e.Name, job.ErrNotFound))
}

// Versioned reports whether results show one thing with its version.
func (o Operation) Versioned() bool {
	return slices.ContainsFunc(o.outputs, func(t reflect.Type) bool {
		if t == reflect.TypeFor[actedJobs]() { // where it was one job
			return true
		}
		_, known := VersionOf(reflect.Zero(t).Interface())
		return known
	})
}

// VersionOf is the version of the one thing that a result shows; false: it shows none, or
// several.
func VersionOf(out any) (version int64, known bool) {
	switch r := out.(type) {
	case Acted:
		return VersionOf(r.Result)
	case job.Job:
		return r.Version, true
	case jobReport:
		return r.Version, true
	case actedJobs:
		if r.Plan != nil || len(r.Jobs) != 1 {
			return 0, false
		}
		return r.Jobs[0].Version, true
	case approval:
		return r.Version, true
	case retriedSkipped:
		return r.Version, true
	case job.Lane:
		return r.Version, true
	case Sender:
		return r.Version, true
	case schedule.Schedule:
		return r.Version, true
	case keptSchedule:
		return r.Version, true
	case channels.Category:
		return r.Version, true
	case job.Limits:
		return r.Version, true
	}
	return 0, false
}

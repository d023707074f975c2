package operation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// InvalidError reports invalid input. Nothing was done.
type InvalidError struct {
	Problems []Problem
	// Err is the underlying error, such as a missing object. It may be nil.
	Err error
}

func (e *InvalidError) Unwrap() error { return e.Err }

// Kind returns the kind of Err, such as db.KindNotFound, or db.KindInvalid without one.
func (e *InvalidError) Kind() db.Kind {
	if e.Err != nil {
		return db.KindOf(e.Err)
	}
	return db.KindInvalid
}

// Problem is one fault of an input.
type Problem struct {
	// Param is the name of the parameter. It is empty for a combination of parameters.
	Param string
	// Text is markup (text.Parse). It describes the fault and the allowed values, and may suggest a value.
	Text string
}

// Error returns one line for each problem.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Text
		if p.Param != "" {
			lines[i] = p.Param + ": " + p.Text
		}
	}
	return strings.Join(lines, "\n  ")
}

// Add appends a problem of a parameter.
func (e *InvalidError) Add(param, format string, args ...any) {
	e.Problems = append(e.Problems, Problem{param, fmt.Sprintf(format, args...)})
}

// OrNil returns nil if there is no problem.
func (e *InvalidError) OrNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Invalid returns an error about one parameter.
func Invalid(param, format string, args ...any) error {
	e := new(InvalidError)
	e.Add(param, format, args...)
	return e
}

// Refused converts an error of the database about a value into an error of the input. Its message begins with
// the table and the column; columns maps columns to parameters with other names.
func Refused(err error, columns map[string]string) error {
	var bad *job.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	return RefusedText(bad.Message, bad.Hint, columns)
}

// RefusedColumn is Refused for errors that no parameter causes. The text names the column.
func RefusedColumn(bad *job.InvalidError) error {
	text := strings.TrimPrefix(bad.Message, "belfry.jobs.")
	if bad.Hint != "" && !strings.Contains(text, bad.Hint) {
		text += "\n  " + bad.Hint
	}
	return Invalid("", "%s", text)
}

// RefusedText returns an error for a message of the database. columns maps columns to parameters.
func RefusedText(message, hint string, columns map[string]string) error {
	param, text := "", message
	if place, problem, ok := strings.Cut(message, ": "); ok && strings.HasPrefix(place, "belfry.") && !strings.Contains(place, " ") {
		parts := strings.SplitN(place, ".", 3) // the path within a JSON column follows it: jobs.variants.ko
		param, text = parts[len(parts)-1], problem
	}
	if name, known := columns[param]; known {
		param = name
	}
	if hint != "" && !strings.Contains(text, hint) {
		text += "\n  " + hint
	}
	return Invalid(param, "%s", text)
}

// AdvisedError is an error with the next step.
type AdvisedError struct {
	Err  error
	Next text.Line
}

// Error implements error.
func (a *AdvisedError) Error() string { return a.Err.Error() + "; " + a.Next.String() }

// Line returns the cells of the error.
func (a *AdvisedError) Line() text.Line { return text.Sprintf("%s; %s", text.OfError(a.Err), a.Next) }

func (a *AdvisedError) Unwrap() error { return a.Err }

// Advise adds the next step to an error, in markup (text.Parse).
func Advise(err error, next string) error { return &AdvisedError{err, text.Parse(next)} }

// UnavailableError reports a server other than the database that does not answer. A retry may succeed.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }

// Kind returns db.KindUnavailable.
func (*UnavailableError) Kind() db.Kind   { return db.KindUnavailable }
func (e *UnavailableError) Unwrap() error { return e.Err }

// HeldError reports an object that another process has locked. The act was not done, or only in part; a retry
// may succeed later.
type HeldError struct{ Err error }

func (e *HeldError) Error() string { return e.Err.Error() }

// Kind returns db.KindHeld.
func (*HeldError) Kind() db.Kind   { return db.KindHeld }
func (e *HeldError) Unwrap() error { return e.Err }

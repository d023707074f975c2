package operation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// InvalidError is input that cannot be used. Nothing was done.
type InvalidError struct {
	Problems []Problem
	// Err is what the packages below call it, such as a thing that does not exist; may be nil.
	Err error
}

func (e *InvalidError) Unwrap() error { return e.Err }

// Kind returns the kind of Err, such as errkind.NotFound, or errkind.Invalid without one.
func (e *InvalidError) Kind() errkind.Kind {
	if e.Err != nil {
		return errkind.Of(e.Err)
	}
	return errkind.Invalid
}

// Problem is one thing that is wrong with an input.
type Problem struct {
	// Param is the name of the parameter; empty: several together.
	Param string
	// Text says what is wrong and what is allowed, and hints at what was meant.
	Text string
}

// Error lists every problem, a line each.
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

// Refused makes what the database refused a matter of the input. Its message begins with
// the table and the column; columns says which parameter gives a column that has another
// name.
func Refused(err error, columns map[string]string) error {
	var bad *job.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	return RefusedText(bad.Message, bad.Hint, columns)
}

// RefusedColumn is refused where no parameter is at fault: the column is named in the text.
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
		parts := strings.SplitN(place, ".", 3) // what is within a column stands behind it: jobs.variants.ko
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

// AdvisedError is an error with what to do about it, in the words of the command line.
type AdvisedError struct {
	Err  error
	Next string
}

// Error is the error and the advice.
func (a *AdvisedError) Error() string { return a.Err.Error() + "; " + a.Next }

func (a *AdvisedError) Unwrap() error { return a.Err }

// Advise adds the next step to an error.
func Advise(err error, next string) error { return &AdvisedError{err, next} }

// UnavailableError is something beside the database that does not answer. Trying again may
// help.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }

// Kind returns errkind.Unavailable.
func (*UnavailableError) Kind() errkind.Kind { return errkind.Unavailable }
func (e *UnavailableError) Unwrap() error    { return e.Err }

// HeldError is something that others work on. Nothing was done, or not all; trying again
// later helps.
type HeldError struct{ Err error }

func (e *HeldError) Error() string { return e.Err.Error() }

// Kind returns errkind.Held.
func (*HeldError) Kind() errkind.Kind { return errkind.Held }
func (e *HeldError) Unwrap() error    { return e.Err }

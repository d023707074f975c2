package views

import (
	"context"
	"html/template"
	"net/url"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/internal/text"
)

// The operations that pages of this package and of the console use.
const (
	SendersOperation      = "senders list"
	SenderEventsOperation = "senders events"
	PersonOperation       = "channels show" // pages call a channel a person
	ErrorsOperation       = "dead-letters errors"
	LettersOperation      = "dead-letters list"
	CarrierOperation      = "transport status"
	JobOperation          = "jobs show"
	SamplesOperation      = "samples"
	CategoriesOperation   = "categories list"
)

// Site runs operations for the caller of a page.
type Site interface {
	// Query runs a read operation, or the plan of an act. The result is nil if the operation does not exist.
	Query(ctx context.Context, name string, values url.Values) (any, error)
	// Link returns the address of an operation's page with values. It is empty if the caller may not run the
	// operation, or if a value of the path is missing.
	Link(name string, values url.Values) string
	// Form returns the form of an act on the page, or nil if the caller may not run it. values are in its path, or
	// hidden. The name of its place leads the outcome back to it.
	Form(name, place string, values url.Values) *Form
	// Render renders a line, with links to the pages of commands.
	Render(l text.Line) template.HTML
}

// Request is a request for a page.
type Request struct {
	Site

	Zone    *time.Location // of the reader; nil means the server's
	Values  url.Values     // of the address
	Here    string         // the address, as the parameter BackParam takes it
	Outcome *Outcome       // of the form that led to the page; nil without one
}

// BackParam is the parameter of a page of an act with the address that the act leads back to.
const BackParam = "_back"

// PreviousPrefix begins the name of a hidden field with the value of a parameter when the form was made. A value that
// was not changed is not part of the act, and an emptied one is reset.
const PreviousPrefix = "_was_"

// Field is a hidden field of a form.
type Field struct{ Name, Value string }

// Form is a small form of an act on a page.
type Form struct {
	Action, Place string
	Hidden        []Field
	Outcome       *Outcome   // of this form; nil without one
	Values        url.Values // that were typed, if the form is shown again because of a fault
}

// Failed reports whether the form is shown again because of a fault.
func (f *Form) Failed() bool { return f.Outcome != nil && f.Outcome.Fault != "" }

// back sets the address that the act leads back to.
func (f *Form) back(address string) {
	for i := range f.Hidden {
		if f.Hidden[i].Name == BackParam {
			f.Hidden[i].Value = address
		}
	}
}

// Outcome is the result of an act of a form: a sentence, or a fault.
type Outcome struct {
	Place, Text string
	Fault       template.HTML
	Values      url.Values // that were typed, of a form with a fault
}

// At returns the outcome if it is of the form with a place, else nil.
func (o *Outcome) At(place string) *Outcome {
	if o == nil || o.Place != place {
		return nil
	}
	return o
}

// fault renders an error.
func (r Request) fault(err error) template.HTML { return r.Render(text.OfError(err)) }

// action returns a link to an act that the caller may run, or nothing.
func (r Request) action(name, label string, values url.Values) []parts.Link {
	to := r.Link(name, values)
	if to == "" {
		return nil
	}
	return []parts.Link{{Name: label, Link: to}}
}

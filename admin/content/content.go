package content

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/compose"
)

// Input is the content of messages, and their route.
type Input struct {
	Title    string     `flag:"title" label:"TITLE" help:"1 to 200 characters"`
	Body     string     `flag:"body" label:"TEXT" help:"up to 10,000 characters"`
	Data     JSONObject `flag:"data" label:"JSON" help:"further content as an object, up to 16,384 bytes" allowed:"JSON objects of up to 16384 bytes"`
	Variants JSONObject `flag:"variants" label:"JSON" file:"true" help:"titles and bodies by locale, such as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a file with it" allowed:"JSON objects of up to 131072 bytes, such as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a FILE with one"`
	Route    []string   `flag:"route" label:"MEDIA" values:"media" help:"media in the order in which they are tried, such as push,sms (default: the category's)"`
}

// PreviewDeadline bounds a preview, which reads every candidate.
const PreviewDeadline = compose.PreviewLimit

// SentEvents names the events of messages to one channel.
const SentEvents = "the channel's events"

// SendRefused attributes an error of the database to a parameter, and adds the next step if the outcome
// is unknown.
func SendRefused(err error, repeatable bool) error {
	var bad *job.InvalidError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &bad):
		return Refused(bad)
	case errors.Is(err, job.ErrKeyHeld):
		return &operation.HeldError{Err: err}
	case errors.As(err, &server) && db.ClassOf(err) == db.Invalid: // a value no column takes: a NUL, a number beyond every type
		text := server.Message
		if server.Detail != "" {
			text += "\n  " + server.Detail
		}
		return operation.Invalid("", "%s", text)
	case server != nil && db.ClassOf(err) != db.Unreachable:
		return err
	}
	// Without a response of the server the outcome is unknown.
	if !errors.Is(err, job.ErrUnreachable) {
		err = fmt.Errorf("%w: %w", job.ErrUnreachable, err)
	}
	if repeatable {
		return operation.Advise(err, "it may have been sent; it is safe to repeat the command with the same --idempotency-key")
	}
	return operation.Advise(err, "it may have been sent; an --idempotency-key makes it safe to repeat the command")
}

// Refused attributes an error of the database about a new job or activity to a parameter.
func Refused(bad *job.InvalidError) error {
	param, text := bad.Column, bad.Message
	if place, problem, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(place, "belfry.") {
		text = problem
		if parts := strings.SplitN(place, ".", 4); len(parts) == 4 && parts[2] == "variants" { // belfry.jobs.variants.ko.title
			text = parts[3] + ": " + problem
		}
		if bad.Column == "audience" {
			param = audienceParam(place)
		}
	}
	if param == "schedule_at" {
		param = "at"
	}
	if bad.Hint != "" && !strings.Contains(text, bad.Hint) {
		text += "\n  " + bad.Hint
	}
	return operation.Invalid(param, "%s", text)
}

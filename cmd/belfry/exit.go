package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
)

// code is an exit code. The values follow sysexits(3) where it has one, so that
// systemd, cron wrappers and Kubernetes can tell "try later" from "fix me".
type code int

const (
	codeDone          code = 0
	codeFailure       code = 1
	codeUsage         code = 2
	codeAborted       code = 4
	codeUnavailable   code = 69 // EX_UNAVAILABLE
	codeHeld          code = 75 // EX_TEMPFAIL
	codeConfiguration code = 78 // EX_CONFIG
)

// exitCodes documents every code once, for `belfry help exit-codes` and the reference.
var exitCodes = []struct {
	code    code
	meaning string
}{
	{codeDone, "done. run: everything it ran was PROCESSED, or nothing was due; a job that EXPIRED and a lane that is paused are said and no failure. daemon and relay: stopped by a signal."},
	{codeFailure, "failure. run: a job FAILED, or it was interrupted before everything due was done; the job is handed back and the next run goes on from its cursor; or a schedule could not be taken over or fired. doctor: a check failed. jobs audit: the rows of a job differ from the job's counters."},
	{codeUsage, "usage: a flag, an argument or a value given with one is wrong. Nothing was done."},
	{codeAborted, "run: a job it ran was aborted by an operator. run --deliver: or it aborted a job, because a sender failed too many of its messages in a row (abort_after)."},
	{codeUnavailable, "the database is unreachable, refuses connections, or is a standby and the command writes. Trying again may help. abort: with abort.cache the job may be flagged there all the same, which the message says; repeat it to have it recorded. transport: the carrier does not answer. daemon and relay: another process listens where metrics.listen says; daemon and serve: where api.listen says."},
	{codeHeld, "run: another runner holds the lane, nothing was run; or belfry is halted, and belfry unhalt ends it. run, daemon and relay: a living process has the name that runner.name or delivery.name gives. transport drain: relays work on a carrier. migrate, and --migrate: another session held a lock for longer than --lock-timeout, or 30 seconds. Trying again later helps."},
	{codeConfiguration, "the configuration is wrong, the server refuses user, password or database, the database's encoding is not UTF8, a pooler is in statement mode, or this belfry may not use the schema's version. Nothing was done, and trying again does not help. run --deliver: the database is a copy or was moved, and belfry adopt has to say that messages may leave it; jobs were run all the same."},
}

// exitError is an error that decides the exit code.
type exitError struct {
	code code
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error of the caller's making: bad flags or arguments.
func usagef(format string, args ...any) error {
	return &exitError{codeUsage, fmt.Errorf(format, args...)}
}

// errInterrupted is the cause of a context that a signal cancelled. Some functions return
// the cause of a context that has ended, others its error: both are context.Canceled.
var errInterrupted error = interruption{}

type interruption struct{}

func (interruption) Error() string        { return "interrupted by a signal" }
func (interruption) Is(target error) bool { return target == context.Canceled }

// codeOf decides the exit code of a command that returned err.
func codeOf(err error) code {
	var exit *exitError
	var problems *config.Error
	switch {
	case err == nil:
		return codeDone
	case errors.Is(err, context.Canceled): // by a signal, whatever it cut short
		return codeFailure
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, new(*operation.UnavailableError)), errors.As(err, new(*job.FlaggedError)): // for whatever reason
		return codeUnavailable
	case errors.As(err, new(*operation.HeldError)), errors.As(err, new(*lifecycle.NameInUseError)), errors.As(err, new(*migrations.HeldError)):
		return codeHeld
	case errors.As(err, new(*operation.InvalidError)):
		return codeUsage
	case errors.As(err, &problems):
		if problems.FlagsOnly() {
			return codeUsage
		}
		return codeConfiguration
	case node.LoginRefused(err), errors.Is(err, migrations.ErrOlder), errors.Is(err, migrations.ErrNewer),
		errors.As(err, new(*node.ConfigError)), errors.As(err, new(*node.UnfitError)), errors.Is(err, db.ErrStatementPooling):
		return codeConfiguration
	case errors.Is(err, pgserver.ErrNotInstalled), errors.As(err, new(*node.BusyError)), errors.As(err, new(*node.ConnectError)),
		node.Unreachable(err):
		return codeUnavailable
	default:
		return codeFailure
	}
}

// explain turns an error into what the person at the terminal reads.
func explain(ctx context.Context, err error) string {
	var invalid *job.InvalidError
	var server *pgconn.PgError
	var exit *exitError
	switch {
	case errors.As(err, &invalid):
		return withHint(err.Error(), invalid.Hint)
	case db.KindOf(err) == db.KindForbidden && !errors.Is(err, db.ErrRowSecurity) && errors.As(err, &server) && server.Hint == "":
		return withHint(err.Error(), "`belfry roles --for …` prints the GRANTs that a role needs; `belfry doctor` names those that this one lacks.")
	case db.Lost(err):
		return db.Explain(err).Error()
	case db.ClassOf(err) == db.ReadOnly:
		return withHint(err.Error(), "point database.url at the primary, or name both hosts; where it is the primary, the role's transactions are read-only, and `belfry doctor` has the remedy.")
	case errors.As(err, &server):
		return withHint(err.Error(), server.Hint)
	case errors.As(err, &exit): // it has the words of its command
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errInterrupted):
		return errInterrupted.Error()
	}
	return err.Error()
}

func withHint(text, hint string) string {
	if hint == "" || strings.Contains(text, hint) {
		return text
	}
	return text + "\n  " + hint
}

package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNotFound reports that there is no job, or no group, with the given id.
	ErrNotFound = errors.New("no such job")
	// ErrUnreachable reports that the database did not answer: the connection was
	// refused, lost or timed out. What was being committed at that moment may or may
	// not be; the job's row says.
	ErrUnreachable = errors.New("database unreachable")
	// errMoved reports that a chunk's guard matched no row. The job's row says why.
	errMoved = errors.New("the job moved under the run")
	// errRunOver reports that the job is not this run's any more: aborted, taken over
	// under a higher fence, or deleted. The chunk in progress was rolled back.
	errRunOver = errors.New("the run is over")
)

// InvalidError is bad input that the database refused. Nothing was written.
type InvalidError struct {
	Column  string // the column of belfry.jobs at fault
	Message string // names the column and the allowed values
	Hint    string // how to get what was probably wanted; may be empty
}

// Error returns the message and the hint.
func (e *InvalidError) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// WrongStatusError reports an operator's act on a job whose status does not allow
// it. Nothing changed.
type WrongStatusError struct {
	JobID  int64
	Act    string // "abort", "resume" or "retry"
	Status Status // what the job is
}

// Error names the job, what it is and what the act needs.
func (e *WrongStatusError) Error() string {
	needs := map[string]string{"abort": "PENDING or RUNNING", "resume": "ABORTED", "retry": "FAILED"}[e.Act]
	return fmt.Sprintf("job %d is %s; %s needs a job that is %s", e.JobID, e.Status, e.Act, needs)
}

// SQLSTATE codes that decide something here.
const (
	codeCheckViolation  = "23514"
	codeNotNull         = "23502"
	codeUniqueViolation = "23505"
	codeBadText         = "22021" // a NUL or invalid UTF-8
	codeQueryCanceled   = "57014" // statement_timeout, or an administrator
)

// mapError translates a PostgreSQL error by SQLSTATE, schema and constraint into
// this package's errors and leaves any other error as it is.
func mapError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		invalid := pg.Code == codeCheckViolation || pg.Code == codeNotNull || pg.Code == codeBadText
		if invalid && (pg.SchemaName == "belfry" || pg.Code == codeBadText) {
			return &InvalidError{Column: pg.ColumnName, Message: pg.Message, Hint: pg.Hint}
		}
		if disconnected(pg) {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return err
	case connectionLost(err):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// laneTaken reports that another runner claimed a job of the same lane first (I4).
func laneTaken(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeUniqueViolation && pg.ConstraintName == "jobs_one_running_per_lane"
}

func timedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeQueryCanceled
}

// retryable reports whether the same chunk may succeed when it is tried again:
// serialisation failures, deadlocks, timeouts, lost connections, a server that
// shuts down or starts up, and resources that run out and come back. Everything
// else (data exceptions, constraint violations, missing relations, a Writer's own
// errors) fails the same way each time.
func retryable(err error) bool {
	if errors.Is(err, ErrUnreachable) || errors.Is(err, errMoved) || connectionLost(err) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "55006", codeQueryCanceled, "25P03", "25P04":
		return true
	}
	return disconnected(pg) || strings.HasPrefix(pg.Code, "53") || strings.HasPrefix(pg.Code, "58")
}

// disconnected reports a server that ends, refuses or has lost the connection.
func disconnected(pg *pgconn.PgError) bool {
	if strings.HasPrefix(pg.Code, "08") {
		return true
	}
	switch pg.Code {
	case "57P01", "57P02", "57P03", "57P05", "53300":
		return true
	}
	return false
}

// connectionLost reports an error of the connection itself rather than of the
// server's answer.
func connectionLost(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
}

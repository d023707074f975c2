package main

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// A command whose outcome is unknown says how to repeat it; bad input is no such thing.
func TestSendProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err        error
		repeatable bool
		code       code
		text       string
	}{
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, false, codeUnavailable, "it may have been sent; --idempotency-key makes repeating safe"},
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, true, codeUnavailable, "it may have been sent; repeating it with the same --idempotency-key is safe"},
		{context.DeadlineExceeded, false, codeUnavailable, "it may have been sent"},
		{&pgconn.PgError{Code: "23514", SchemaName: "belfry", ColumnName: "title", Message: "belfry.activities.title: is blank; allowed values: texts"}, false, codeUsage, "--title: is blank; allowed values: texts"},
		{&pgconn.PgError{Code: "23514", SchemaName: "app", Message: "somebody's own check"}, false, codeFailure, "send: "},
		{&pgconn.PgError{Code: "22003", Message: "out of range"}, false, codeUsage, "out of range"},
		{io.ErrUnexpectedEOF, true, codeUnavailable, "database unreachable: unexpected EOF; it may have been sent"},
		{context.Canceled, false, codeFailure, "it may have been sent"},
	} {
		got := sendProblem(c.err, c.repeatable)
		require.ErrorContains(t, got, c.text)
		require.Equal(t, c.code, codeOf(got), c.text)
	}
}

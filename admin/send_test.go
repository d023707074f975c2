package admin_test

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/job"
)

// An act whose outcome is unknown says how to repeat it; bad input is no such thing.
func TestSend_SaysHowToRepeatWhatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err        error
		repeatable bool
		kind       admin.Kind
		text       string
	}{
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, false, admin.Unavailable, "it may have been sent; --idempotency-key makes repeating safe"},
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, true, admin.Unavailable, "it may have been sent; repeating it with the same --idempotency-key is safe"},
		{context.DeadlineExceeded, false, admin.Unavailable, "it may have been sent"},
		{&job.InvalidError{Column: "title", Message: "belfry.activities.title: is blank; allowed values: texts"}, false, admin.Invalid, "title: is blank; allowed values: texts"},
		{&job.InvalidError{Column: "variants", Message: "belfry.activities.variants.ko.titel: is not allowed"}, false, admin.Invalid, "variants: ko.titel: is not allowed"},
		{&pgconn.PgError{Code: "23514", SchemaName: "app", Message: "somebody's own check"}, false, admin.Conflict, "somebody's own check"},
		{&pgconn.PgError{Code: "22003", Message: "out of range", Detail: "of a bigint"}, false, admin.Invalid, "out of range\n  of a bigint"},
		{io.ErrUnexpectedEOF, true, admin.Unavailable, "database unreachable: unexpected EOF; it may have been sent"},
	} {
		got := admin.SendRefused(c.err, c.repeatable)
		require.ErrorContains(t, got, c.text)
		require.Equal(t, c.kind, admin.KindOf(got), c.text)
	}
}

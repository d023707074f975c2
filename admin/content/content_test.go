package content_test

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// An act whose outcome is unknown says how to repeat it; bad input is no such thing.
func TestSend_SaysHowToRepeatWhatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err        error
		repeatable bool
		kind       db.Kind
		text       string
	}{
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, false, db.KindUnavailable, "it may have been sent; an --idempotency-key makes it safe to repeat the command"},
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, true, db.KindUnavailable, "it may have been sent; it is safe to repeat the command with the same --idempotency-key"},
		{context.DeadlineExceeded, false, db.KindUnavailable, "it may have been sent"},
		{&job.InvalidError{Column: "title", Message: "belfry.activities.title: is blank; allowed values: texts"}, false, db.KindInvalid, "title: is blank; allowed values: texts"},
		{&job.InvalidError{Column: "variants", Message: "belfry.activities.variants.ko.titel: is not allowed"}, false, db.KindInvalid, "variants: ko.titel: is not allowed"},
		{&pgconn.PgError{Code: "23514", SchemaName: "app", Message: "somebody's own check"}, false, db.KindConflict, "somebody's own check"},
		{&pgconn.PgError{Code: "22003", Message: "out of range", Detail: "of a bigint"}, false, db.KindInvalid, "out of range\n  of a bigint"},
		{io.ErrUnexpectedEOF, true, db.KindUnavailable, "database unreachable: unexpected EOF; it may have been sent"},
	} {
		got := content.SendRefused(c.err, c.repeatable)
		require.ErrorContains(t, got, c.text)
		require.Equal(t, c.kind, db.KindOf(got), c.text)
	}
}

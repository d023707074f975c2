package enqueue_test

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// An act whose outcome is unknown says how to repeat it; bad input is no such thing.
func TestSend_SaysHowToRepeatWhatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err        error
		repeatable bool
		kind       errkind.Kind
		text       string
	}{
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, false, errkind.Unavailable, "it may have been sent; an --idempotency-key makes it safe to repeat the command"},
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, true, errkind.Unavailable, "it may have been sent; it is safe to repeat the command with the same --idempotency-key"},
		{context.DeadlineExceeded, false, errkind.Unavailable, "it may have been sent"},
		{&job.InvalidError{Column: "title", Message: "belfry.activities.title: is blank; allowed values: texts"}, false, errkind.Invalid, "title: is blank; allowed values: texts"},
		{&job.InvalidError{Column: "variants", Message: "belfry.activities.variants.ko.titel: is not allowed"}, false, errkind.Invalid, "variants: ko.titel: is not allowed"},
		{&pgconn.PgError{Code: "23514", SchemaName: "app", Message: "somebody's own check"}, false, errkind.Conflict, "somebody's own check"},
		{&pgconn.PgError{Code: "22003", Message: "out of range", Detail: "of a bigint"}, false, errkind.Invalid, "out of range\n  of a bigint"},
		{io.ErrUnexpectedEOF, true, errkind.Unavailable, "database unreachable: unexpected EOF; it may have been sent"},
	} {
		got := enqueue.SendRefused(c.err, c.repeatable)
		require.ErrorContains(t, got, c.text)
		require.Equal(t, c.kind, errkind.Of(got), c.text)
	}
}

// What is sent to somebody by an operation is an event with who sent it to which channel, once, and
// without what it says; what the application sends is none. Who is forgotten is in no event.
func TestSend_IsAnEvent(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	events := func() string {
		return d.One(`SELECT coalesce(string_agg(concat_ws(' ', name, kind, actor, detail - 'session_user'), '; ' ORDER BY id), '') FROM belfry.events WHERE subject = 'channel'`)
	}
	require.Empty(t, events())
	for range 2 {
		require.NoError(t, d.Run("send", "external_id", "u3", "title", "Hello u3", "idempotency_key", "order-17"))
	}
	sent := `3 sent_to ann@host {"activity": -2, "category": "activity"}`
	require.Equal(t, sent, events(), "once for its key")
	require.NoError(t, d.Run("jobs test-send", "id", "1", "to", "u3", "requested_by", "kim"))
	require.Equal(t, sent+`; 3 sent_to kim {"test_of": 1, "activity": -4, "category": "operator_notice"}`, events())
	require.Error(t, d.Run("send", "external_id", "u3", "title", "Hello", "category", "nonsense"))
	require.Error(t, d.Run("jobs test-send", "id", "99", "to", "u3"))

	require.NoError(t, d.Run("events list", "of", "channel"))
	require.Regexp(t, `(?m)^20\S+ \S+ +kim +channel +3 +sent_to +activity -4, a test of job 1 *$`, d.Out)
	require.Regexp(t, `(?m)^20\S+ \S+ +ann@host +channel +3 +sent_to +activity -2 *$`, d.Out)
	require.NoError(t, d.Run("channels events", "channel", "3"))
	require.Contains(t, d.Out, "a test of job 1")
	require.Contains(t, d.Kept(), "events")
	require.NoError(t, d.Run("channels forget", "channel", "3"))
	require.Empty(t, d.Kept())
	require.Equal(t, "2", d.One(`SELECT count(*)::text FROM belfry.events WHERE kind = 'sent_to' AND name = ''`), "that it was done is kept")
}

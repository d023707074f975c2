package compose_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

// A message that may have been accepted is not called opted_out or capped, whatever
// holds by the time it is tried again: that would say that it never went out
// (invariant 4).
func TestCompose_WhatMayHaveBeenAcceptedEndsAsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ then, otherwise string }{
		{`SELECT belfry.opt_out(2)`, "CANCELLED opted_out"},
		{`SELECT belfry.opt_out(2, 'operator_notice', 'sms')`, "CANCELLED opted_out"},
		{`UPDATE belfry.channels SET active = false WHERE id = 2`, "CANCELLED opted_out"},
		{`UPDATE belfry.channels SET addresses = '{}' WHERE id = 2`, "DEAD no_address"},
		{`UPDATE belfry.categories SET cap = 1, cap_window = '1 hour' WHERE name = 'operator_notice'`, "CANCELLED capped"},
		{`DELETE FROM belfry.channels WHERE id = 2`, "DEAD no_address"},
	} {
		before, id := b.job(t, nil), b.job(t, pgx.NamedArgs{"route": []string{"sms"}})
		b.sent(t, before, 2, "1 minute")
		m := b.claim(t, id, 2)
		m.Attempts = 1
		require.Equal(t, "send", what(b.composed(t, m)[0]))
		b.exec(t, c.then)
		require.Equal(t, c.otherwise, what(b.composed(t, m)[0]))
		m.Ambiguous = true
		got := b.composed(t, m)[0]
		require.Equal(t, "DEAD unknown", what(got), c.then)
		require.Equal(t, []any{outbox.Dead, 0, 1}, []any{got.Status, got.Step, got.Attempts})
		b.exec(t, `DELETE FROM belfry.opt_outs`)
		b.exec(t, `UPDATE belfry.categories SET cap = NULL, cap_window = NULL`)
		b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (2, 'u-2', 'web') ON CONFLICT DO NOTHING`)
		b.exec(t, `UPDATE belfry.channels SET active = true, addresses = '{"sms": "+822"}' WHERE id = 2`)
	}
}

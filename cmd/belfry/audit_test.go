package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

// An audit of millions says where it is, also where no terminal is.
func TestAudit_SaysHowFarItIs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	show := (&app{stderr: &out, now: func() time.Time { return now }}).newTicker()
	for range 50 {
		now = now.Add(100 * time.Millisecond)
		n := int64(now.Sub(show.began) / time.Millisecond * 100)
		show.tell("%s", comparing(outbox.AuditProgress{Channels: n, Rows: 3, Total: 1_000_000}, show.pace(n, 1_000_000)))
	}
	require.Equal(t, "200,000 / 1,000,000 channels and 3 rows compared, 20%, 100,000/s, 8s left\n"+
		"400,000 / 1,000,000 channels and 3 rows compared, 40%, 100,000/s, 6s left\n", out.String())

	// The total is an estimate.
	require.Equal(t, "200 channels and 1 row compared, 10/s", comparing(outbox.AuditProgress{Channels: 200, Rows: 1, Total: 100}, "10/s"))
	require.Equal(t, "200 channels and 1 row compared, 10/s", comparing(outbox.AuditProgress{Channels: 200, Rows: 1}, "10/s"))
}

package accounts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/accounts"
)

// A long audit reports its progress.
func TestAudit_SaysHowFarItIs(t *testing.T) {
	t.Parallel()
	say := accounts.AuditLines()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	require.Equal(t, "0 / 1,000,000 channels and 0 rows compared, 0%", say(now, accounts.AuditProgress{Total: 1_000_000}))
	require.Equal(t, "200,000 / 1,000,000 channels and 3 rows compared, 20%, 50,000/s, 16s left",
		say(now.Add(4*time.Second), accounts.AuditProgress{Channels: 200_000, Rows: 3, Total: 1_000_000}))

	// The total is an estimate.
	require.Equal(t, "200 channels and 1 row compared", accounts.AuditLines()(now, accounts.AuditProgress{Channels: 200, Rows: 1, Total: 100}))
	require.Equal(t, "200 channels and 1 row compared", accounts.AuditLines()(now, accounts.AuditProgress{Channels: 200, Rows: 1}))
}

// Rows of a stream come in slices that the receiver may retain, none lost and none twice.
func TestStream_RowsComeInBatches(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, accounts.StreamedRows, 2*accounts.StreamedRows + 3} {
		var batches [][]int
		add, end := accounts.InBatches(func(rows []int) error {
			batches = append(batches, rows)
			return nil
		})
		var want, got []int
		for i := range n {
			want = append(want, i)
			require.NoError(t, add(i))
		}
		require.NoError(t, end())
		for _, rows := range batches {
			require.NotEmpty(t, rows)
			require.LessOrEqual(t, len(rows), accounts.StreamedRows)
			got = append(got, rows...)
		}
		require.Equal(t, want, got)
	}
}

package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
)

func TestDrain_DeliversWhatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 1200)
	job := b.job(t, "default", 1, 1200)
	b.activity(t, 7)
	provider := &script{}
	stats := b.drain(t, config("r"), push(provider))
	require.Equal(t, map[string]int{"SENT": 1201}, b.statuses(t))
	require.Len(t, provider.all(), 1201)
	require.EqualValues(t, 1201, stats.Sent)
	require.EqualValues(t, 1201, stats.Claimed)
	require.Zero(t, stats.InHand)
	require.Empty(t, b.record(t, job), "a plain success is not recorded")
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, job))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
}

var _ = relay.Linear

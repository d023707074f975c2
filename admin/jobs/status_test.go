package jobs_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
)

func TestStatus_TellsWhatWasStopped(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.NoError(t, d.Run("status"))
	require.Equal(t, "belfry is not halted\n0 jobs running\n", d.Out)
	require.Empty(t, d.Notes)

	d.Enqueue("inbox")
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'a', heartbeat_at = now(), fence = 1, started_at = now()`)
	require.NoError(t, d.Run("lanes pause", "lane", "news"))
	require.NoError(t, d.Run("senders pause", "sender", "fcm"))
	require.NoError(t, d.Run("status"))
	require.Equal(t, "belfry is not halted\n1 job running\npaused lanes: news\npaused senders: fcm\n", d.Out)

	d.Exec(`UPDATE belfry.jobs SET abort_requested = true`)
	require.NoError(t, d.Run("halt", "reason", "wrong\nlink"))
	d.Env.Role = operation.Viewer
	require.NoError(t, d.Run("status"))
	require.Regexp(t, `^everything is halted since \S+ \S+ by ann@host: wrong link\n0 jobs running\n`, d.Out)
	require.Contains(t, d.Notes, "end the halt: `belfry unhalt`")
	var told operation.Status
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &told))
	require.Equal(t, "wrong\nlink", told.Reason)
	require.Equal(t, []string{"news"}, told.PausedLanes)
	require.Regexp(t, `^\d+\.\d+$`, told.Place)
	require.Regexp(t, `^everything is halted since `, told.HaltLine().String())
	require.Empty(t, operation.Status{}.HaltLine())
}

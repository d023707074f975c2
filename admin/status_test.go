package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
)

func TestStatus_TellsWhatWasStopped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run("status"))
	require.Equal(t, "belfry is not halted\n0 jobs running\n", d.out)
	require.Empty(t, d.notes)

	d.enqueue("inbox")
	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'a', heartbeat_at = now(), fence = 1, started_at = now()`)
	require.NoError(t, d.run("lanes pause", "lane", "news"))
	require.NoError(t, d.run("senders pause", "sender", "fcm"))
	require.NoError(t, d.run("status"))
	require.Equal(t, "belfry is not halted\n1 job running\npaused lanes: news\npaused senders: fcm\n", d.out)

	d.exec(`UPDATE belfry.jobs SET abort_requested = true`)
	require.NoError(t, d.run("halt", "reason", "wrong\nlink"))
	d.env.Role = admin.Viewer
	require.NoError(t, d.run("status"))
	require.Regexp(t, `^everything is halted since \S+ \S+ by ann@host: wrong link\n0 jobs running\n`, d.out)
	require.Contains(t, d.notes, "`belfry unhalt` ends it")
	var told admin.Status
	require.NoError(t, json.Unmarshal([]byte(d.json), &told))
	require.Equal(t, "wrong\nlink", told.Reason)
	require.Equal(t, []string{"news"}, told.PausedLanes)
	require.Regexp(t, `^\d+\.\d+$`, told.Place)
	require.Regexp(t, `^everything is halted since `, told.HaltText())
	require.Empty(t, admin.Status{}.HaltText())
}

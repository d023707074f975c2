package accounts_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
)

// One page shows the channel, its opt-outs, upcoming jobs, and the result of each job.
func TestPerson_IsShownWithEverythingAndWhy(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`UPDATE belfry.channels SET location = point(126.98, 37.57), locale = 'ko' WHERE id = 3`)
	d.Exec(`UPDATE belfry.message_rows SET status = 'DEAD', reason = 'permanent', last_error = 'no such token' WHERE job_id = 1 AND channel_id = 3`)
	d.Exec(`UPDATE belfry.notifications SET read_at = now() WHERE channel_id = 3`)
	d.Enqueue("inbox") // 3: upcoming
	require.NoError(t, d.Run("channels show", "external_id", "u3"))
	require.Regexp(t, `^channel +3\nexternal id +u3\nplatform +ios\nlocale +ko\ntime zone +unknown\nplace +37.57, 126.98\naddresses +push\ncreated +20`, d.Out)
	require.Regexp(t, `\n\ndoes not want:\nCATEGORY +MEDIUM +SINCE +REASON\nevery category +sms +20\S+ \S+ +asked for it\ninvalid address for push: SHA-256 0000`, d.Out)
	require.Regexp(t, `\nupcoming:\nJOB .*\n +3 .* PENDING +not_reached +is in the audience and its turn has not come; the job begins 20\S+ \S+\n`, d.Out)
	require.Regexp(t, `\n +-3 +20\S+ \S+ +activity +Kim likes your answer +activity +pending +has a message that is still to be sent; by push; next try 20\S+ \S+\n`, d.Out)
	require.Regexp(t, `\n +2 .* PROCESSED +read +has read the notification; read 20\S+ \S+\n`, d.Out)
	require.Regexp(t, `\n +1 .* PROCESSED +dead, permanent +has a message that could not be sent: a dead letter; the provider refused it permanently; by push; dead since 20\S+ \S+: no such token\n$`, d.Out)
	require.Equal(t, "to see each attempt of a message and each bypassed medium: `belfry dead-letters show --job JOB --channel 3`\n", d.Notes)

	require.NoError(t, d.Run("channels show", "channel", "3", "limit", "1"))
	require.Contains(t, d.Notes, "there are more: --before 0:-3 shows the next page\n")
	require.NoError(t, d.Run("channels show", "channel", "3", "limit", "1", "before", "0:-3"))
	require.Regexp(t, `^JOB .*\n +2 .*\n$`, d.Out, "who it is and what is to come stand on the first page")
	require.Equal(t, "there are more: --before 2:-3 shows the next page\n", d.Notes)
	require.NoError(t, d.Run("channels show", "channel", "3", "before", "1:-1"))
	require.Equal(t, "these jobs have no row of channel 3\n", d.Out)
}

// A viewer reads neither the external id nor contents, but all reasons.
func TestPerson_IsMasked(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	d.Exec(`UPDATE belfry.channels SET location = point(126.98, 37.57) WHERE id = 3`)
	d.Exec(`UPDATE belfry.message_rows SET status = 'DEAD', reason = 'permanent', last_error = 'no such token' WHERE job_id = 1 AND channel_id = 3`)
	for _, role := range []operation.Role{operation.Viewer, operation.Author} {
		d.Env.Role = role
		require.NoError(t, d.Run("channels show", "channel", "3"))
		for _, words := range []string{"u3", "Kim likes", "no such token", "37.57"} {
			require.NotContains(t, d.Out, words)
		}
		require.Contains(t, d.Out, "dead, permanent")
		require.Contains(t, d.Out, "Hello", "the title of a job is its name")
		require.Regexp(t, `external id +\[masked\]\n`, d.Out)
		require.Contains(t, d.JSON, `"title":"[masked]"`)
	}
}

// An unknown channel is an error. A deleted channel has its former history.
func TestPerson_MayBeGone(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.ErrorIs(t, d.Run("channels show", "channel", "99"), channels.ErrNoChannel)
	require.ErrorIs(t, d.Run("channels show", "external_id", "nobody"), channels.ErrNoChannel)
	var bad *operation.InvalidError
	require.ErrorAs(t, d.Run("channels show"), &bad)
	require.ErrorAs(t, d.Run("channels show", "channel", "1", "external_id", "u1"), &bad)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
	require.NoError(t, d.Run("channels show", "channel", "1"))
	require.Regexp(t, `channel 1 has no opt-outs\n\njobs and single messages:\nno job has begun, and no single message was sent to channel 1\n$`, d.Out)

	d = admintest.Crowd(t)
	d.Exec(`DELETE FROM belfry.channels WHERE id = 3`)
	d.Enqueue("inbox")
	require.NoError(t, d.Run("channels show", "channel", "3"))
	require.Regexp(t, `^channel +3, deleted\n`, d.Out)
	require.NotContains(t, d.Out, "to come")
	var shown struct {
		Gone    bool
		History []struct {
			JobID   int64 `json:"job_id"`
			Deleted bool  `json:"channel_deleted"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &shown))
	require.True(t, shown.Gone)
	require.Len(t, shown.History, 3)
	require.True(t, shown.History[1].Deleted)
}

package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

func TestLinkTo_ReturnsThePageOfACommand(t *testing.T) {
	t.Parallel()
	c := New(nil, "/x", admin.Operations(), api.Environment{})
	c.role, c.zone = operation.Operator, time.UTC
	for _, test := range []struct {
		command text.CommandCell
		want    string
	}{
		{text.Command("resume", 17), "/x/resume?id=17"},
		{text.Command("abort", 17, 18), "/x/abort?id=17&id=18"},
		{text.Command("jobs show", 17), "/x/jobs/17"},
		{text.Command("jobs set", 17).Set("expires_at", "default"), "/x/jobs/17/set?expires_at=default"},
		{text.Command("jobs list").Flag("status", "RUNNING").Flag("limit", 5), "/x/jobs?limit=5&status=RUNNING"},
		{text.Command("jobs watch"), "/x/"},
		{text.Command("lanes resume", "two words"), "/x/lanes/two%20words/resume"},
		{text.Command("dead-letters redrive").Flag("all"), "/x/dead-letters/redrive?all=on"},
		{text.Command("dead-letters redrive").Flag("job", 17).Flag("dry-run"), "/x/dead-letters/redrive?job=17"},
		{text.Command("unhalt"), "/x/unhalt"},
		{text.Command("channels segment list"), "/x/channels/segment"},
		{text.Command("schedules add").Usage("NAME …"), "/x/new/schedules/add"},
		{text.Command("jobs show").Usage("ID"), ""},
		{text.Command("run").Flag("deliver"), ""},       // no operation
		{text.Command("jobs list").Flag("nothing"), ""}, // no parameter
		{text.Command("channels forget", 3), ""},        // not allowed
		{text.Command("lanes pause", "VIP").Flag("reason", "too many"), "/x/lanes/VIP/pause?reason=too+many"},
	} {
		require.Equal(t, test.want, c.linkTo(test.command), test.command)
	}
	require.Equal(t, `see <a class="command" href="/x/jobs/17">show job 17</a> &lt;b&gt;, <code>x</code>, external id, <time datetime="2026-11-24T18:30:00+00:00">2026-11-24 18:30:00+00:00</time>`,
		string(c.html(text.Sprintf("%s, %s", text.Parse("see `belfry jobs show 17` <b>, `x`, --external-id"), time.Date(2026, 11, 24, 18, 30, 0, 0, time.UTC)))))
}

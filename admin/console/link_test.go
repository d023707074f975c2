package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

func TestAdvice_IsALinkToWhatItSays(t *testing.T) {
	t.Parallel()
	c := New(nil, "/x", admin.Operations(), api.Environment{})
	for line, to := range map[string]string{
		"resume 17":                             "/x/resume?id=17",
		"abort 17 18":                           "/x/abort?id=17&id=18",
		"jobs show 17":                          "/x/jobs/17",
		"jobs set 17 expires_at=default":        "/x/jobs/17/set?expires_at=default",
		"jobs list --status RUNNING":            "/x/jobs?status=RUNNING",
		"jobs list --status=RUNNING --limit 5":  "/x/jobs?limit=5&status=RUNNING",
		"jobs watch":                            "/x/",
		"lanes resume 'two words'":              "/x/lanes/two%20words/resume",
		"dead-letters list --job 17":            "/x/dead-letters?job=17",
		"unhalt":                                "/x/unhalt",
		"channels segment list":                 "/x/channels/segment",
		"jobs show ID":                          "", // a word to be filled in
		"jobs show":                             "", // it says not which
		"run --deliver":                         "", // a command that is no operation
		"jobs list --nothing":                   "",
		"":                                      "",
		"jobs list --status":                    "",
		"lanes pause VIP --reason \"too many\"": "/x/lanes/VIP/pause?reason=too+many",
	} {
		require.Equal(t, to, c.advised(line), line)
	}
	require.Equal(t, "/x/jobs/17/set?expires_at=default", c.linkTo(text.Command("jobs set", 17).Set("expires_at", "default")))
	require.Equal(t, `see <a class="command" href="/x/jobs/17">belfry jobs show 17</a> &lt;b&gt;, <code>x</code>, <time datetime="2026-11-24T18:30:00+00:00">2026-11-24 18:30:00+00:00</time>`,
		string(c.inline("see `belfry jobs show 17` <b>, `x`, 2026-11-24 18:30:00+00:00")))
}

package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Once an author's job went before all others of its lane: belfry's role in the database may UPDATE
// jobs, so no limit of it bound who asked over HTTP.
func TestEnqueue_AuthorsAreBoundByLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, each := range []struct{ path, before, after, location string }{
		{"/enqueue", "", "", "body."},
		{"/enqueue", "", `, "preview": true`, "body."},
		{"/jobs/enqueue", `"jobs": [`, `]`, "body.jobs[0]."},
		{"/jobs/enqueue", `"dry_run": true, "jobs": [`, `]`, "body.jobs[0]."},
	} {
		ask := func(role, more string) answer {
			one := request("x", more)
			if each.before == "" {
				return b.call(t, role, "POST", each.path, one[:len(one)-1]+each.after+"}")
			}
			return b.call(t, role, "POST", each.path, "{"+each.before+one+each.after+"}")
		}
		b.exec(t, `UPDATE belfry.limits SET max_recipients = 5000, max_rows_per_second = 900`)
		for field, values := range map[string][2]string{
			"priority": {"1", "-10 to 0"}, "max_recipients": {"5001", "null (the ceiling), 1 to 5000"},
			"max_rows_per_second": {"901", "null (the runner's setting), 100 to 900"},
		} {
			refused := ask("author", `, "`+field+`": `+values[0])
			require.Equal(t, http.StatusUnprocessableEntity, refused.status, refused.text)
			require.Contains(t, refused.text, `"location":"`+each.location+field+`"`)
			require.Contains(t, refused.text, values[0]+" is beyond the ceiling for authors; allowed values: "+values[1])
			require.Equal(t, http.StatusOK, ask("operator", `, "`+field+`": `+values[0]).status)
		}
		got := ask("author", `, "priority": -1, "max_recipients": 5000, "max_rows_per_second": 900, "at": "2020-01-01T00:00:00Z", "deliver_at": "2020-01-02T00:00:00Z"`)
		require.Equal(t, http.StatusOK, got.status, got.text)
	}
	require.Equal(t, 2, b.count(t, `SELECT count(*) FROM belfry.jobs WHERE requested_by = 'the-author' AND schedule_at = created_at AND deliver_at = created_at AND max_rows_per_second = 900`))
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/enqueue", request("y", `, "at": "2040-01-01T00:00:00Z"`)).status)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/enqueue", request("z", `, "at": "2020-01-01T00:00:00Z"`)).status)
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM belfry.jobs WHERE title = 'y' AND schedule_at = '2040-01-01T00:00:00Z' AND max_recipients = 5000`))
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM belfry.jobs WHERE title = 'z' AND schedule_at = '2020-01-01T00:00:00Z' AND max_recipients IS NULL`))
	b.exec(t, `UPDATE belfry.limits SET priority = 10`)
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/enqueue", request("x", `, "priority": 10`)).status)
}

package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
)

// An incident is told as a whole, and without texts of people to whoever asks.
func TestIncident_TellsAllWithoutTextsOfPeople(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.as("ann", admin.Operator)
	d.exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 5) n`)
	require.NoError(t, d.run("lanes pause", "lane", "default", "reason", "before its time"))
	require.NoError(t, d.run("lanes resume", "lane", "default"))
	d.exec(`UPDATE belfry.events SET at = at - interval '1 hour'`)
	require.NoError(t, d.as("kim", admin.Operator).run("enqueue", "type", "inbox", "category", "operator_notice", "title", "Hello", "body", "For Mr Secret", "external_id", "u3"))
	require.NoError(t, d.run("jobs incident", "id", "1"))
	require.Contains(t, d.out, "job 1 has not run")
	require.Contains(t, d.out, "nothing was done to its lane, its category, senders or everything meanwhile")
	require.NotContains(t, d.out, "what it said before:")

	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r1', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = 1`)
	d.exec(`UPDATE belfry.jobs SET "cursor" = '2', bound = '9', chunks = 1, channels_read = 2, channels_matched = 2, rows_written = 2 WHERE id = 1`)
	d.as("ann", admin.Operator)
	require.NoError(t, d.run("lanes pause", "lane", "default", "reason", "they get it twice"))
	require.NoError(t, d.run("lanes pause", "lane", "other"))
	require.NoError(t, d.run("halt", "reason", "nobody knows why"))
	require.NoError(t, d.run("abort", "id", "1", "reason", "wrong text"))
	d.exec(`UPDATE belfry.jobs SET status = 'ABORTED' WHERE id = 1`)
	require.NoError(t, d.run("go"))
	require.NoError(t, d.run("lanes resume", "lane", "default"))
	require.NoError(t, d.as("lee", admin.Operator).run("resume", "id", "1", "edit", "on", "title", "Right", "body", "For Mr Hidden"))
	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r2', heartbeat_at = now(), fence = 2 WHERE id = 1`)
	d.exec(`UPDATE belfry.jobs SET status = 'FAILED', last_error = 'duplicate key of Mr Secret' WHERE id = 1`)
	require.NoError(t, d.run("jobs show", "id", "1"))
	require.Contains(t, d.out, "Mr Hidden", "an operator reads it elsewhere")

	require.NoError(t, d.as("lee", admin.Operator).run("jobs incident", "id", "1"))
	for _, words := range []string{"who acted:", "timeline:", "runs:", "what it said before:", "around it:", "Right", "wrong text", "they get it twice", "nobody knows why", "texts of people are masked"} {
		require.Contains(t, d.out+d.notes, words)
	}
	for _, text := range []string{d.out, d.json} {
		for _, secret := range []string{"Mr Secret", "Mr Hidden", `"u3"`, "u3", "before its time"} {
			require.NotContains(t, text, secret)
		}
	}
	var told admin.Incident
	require.NoError(t, json.Unmarshal([]byte(d.json), &told))
	require.True(t, told.Complete)
	require.Len(t, told.Runs.Runs, 2)
	acts := make(map[string]int)
	for _, a := range told.Actors {
		acts[a.Name] = a.Acts
		require.False(t, a.Last.Before(a.First))
	}
	require.Equal(t, 6, acts["ann"], "the lane and the halt twice, the abort as asked for and as done; another lane is another matter")
	require.Contains(t, acts, "kim")
	require.Contains(t, acts, "lee")
	var around []string
	for _, e := range told.Around {
		around = append(around, e.Subject+" "+e.Kind)
	}
	require.Equal(t, []string{"lane paused", "installation halted", "installation lifted", "lane resumed"}, around)

	// What is done after it has come to rest is none of it.
	require.NoError(t, d.run("lanes pause", "lane", "default", "reason", "another matter"))
	require.NoError(t, d.run("jobs incident", "id", "1"))
	require.NotContains(t, d.out, "another matter")
	require.NoError(t, json.Unmarshal([]byte(d.json), &told))
	require.Len(t, told.Around, 4)

	require.True(t, told.AroundComplete)
	d.exec(`INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'lane', 'default', 'paused', 'ann' FROM generate_series(1, 1000)`)
	require.NoError(t, d.run("jobs incident", "id", "1"))
	require.Contains(t, d.notes, "the newest 1,000 events of each were looked at, which do not reach back to its beginning")
	require.NoError(t, json.Unmarshal([]byte(d.json), &told))
	require.False(t, told.AroundComplete)

	require.ErrorContains(t, d.run("jobs incident", "id", "7"), "no such job")
	d.exec(`INSERT INTO belfry.job_events (job_id, kind, actor) SELECT 1, 'throttled', 'c' FROM generate_series(1, 10000)`)
	require.NoError(t, d.run("jobs incident", "id", "1"))
	require.Contains(t, d.notes, "first 10,000 events")
}

package admin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
)

// Before a job is there, it is said what it would collide with, when it would start, and when its
// lane is free; what is more urgent is in nobody's shadow.
func TestEnqueue_SaysWhatAJobWouldCollideWith(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Now = nil
	d.finished("push", "default", 30)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'a', now() + interval '1 hour'), ('push', 'operator_notice', 'b', now() + interval '100 minutes')`)
	now, err := d.env.Jobs.Now(t.Context())
	require.NoError(t, err)
	type lane struct {
		StartsAt, FreeAt *time.Time
		CollidesWith     []string
		Collisions       int
		Held, Unknown    string
	}
	look := func(more ...string) lane {
		t.Helper()
		d.enqueue("push", append([]string{"preview", "on"}, more...)...)
		var out struct {
			Lane struct {
				StartsAt     *time.Time `json:"starts_at"`
				FreeAt       *time.Time `json:"free_at"`
				CollidesWith []string   `json:"collides_with"`
				Collisions   int
				Held         string
				Unknown      string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(d.json), &out))
		return lane(out.Lane)
	}
	in := func(at *time.Time) time.Duration { return at.Sub(now).Round(time.Minute) }

	o := look("at", "+70m")
	require.Equal(t, []string{"job 2", "job 3"}, o.CollidesWith, "it waits for one, and the other one waits for it")
	require.Equal(t, 90*time.Minute, in(o.StartsAt))
	require.Equal(t, 130*time.Minute, in(o.FreeAt), "for the half hour that it takes")
	require.Regexp(t, `lane +collides in lane default with job 2, job 3: starts 20[-0-9:+ ]+; the lane is free for 30m0s from 20`, d.out)
	o = look("at", "+70m", "priority", "5")
	require.Equal(t, []string{"job 2", "job 3"}, o.CollidesWith)
	require.Equal(t, 70*time.Minute, in(o.StartsAt), "the other one is handed back for it")
	o = look("at", "+10m")
	require.Empty(t, o.CollidesWith)
	require.Nil(t, o.FreeAt)
	require.Regexp(t, "lane +default: collides with nothing that is known; `belfry timetable --lane default` shows it", d.out)
	require.Empty(t, look("at", "+70m", "lane", "night").CollidesWith)

	d.exec(`SELECT belfry.pause_lane('night', 'ann', 'x')`)
	require.Equal(t, "lane night is paused", look("lane", "night").Held)
	require.NoError(t, d.run("jobs preview", "id", "2"))
	require.NotContains(t, d.json, `"lane"`, "it is there already")
}

// Requests collide with each other, too.
func TestEnqueueMany_SaysWhatCollides(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Now = nil
	d.finished("push", "default", 30)
	var requests []string
	for _, in := range []string{"+1h", "+80m", "+3h"} {
		requests = append(requests, fmt.Sprintf(`{"type": ["push"], "category": "operator_notice", "title": "Hello", "everyone": true, "at": %q}`, in))
	}
	require.NoError(t, d.run("jobs enqueue", "jobs", "["+strings.Join(requests, ",")+"]", "dry_run", "on"))
	var out struct{ Plan admin.Plan }
	require.NoError(t, json.Unmarshal([]byte(d.json), &out))
	require.Regexp(t, `^Hello; collides in lane default with jobs\[1\]: starts 20`, out.Plan.Outcomes[0].Detail)
	require.Regexp(t, `^Hello; collides in lane default with jobs\[0\]: starts 20.*; the lane is free for 30m0s from 20`, out.Plan.Outcomes[1].Detail)
	require.Equal(t, "Hello", out.Plan.Outcomes[2].Detail)
	require.Empty(t, d.timetable().Entries, "it was a plan")
}

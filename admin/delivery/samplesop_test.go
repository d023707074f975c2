package delivery_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/outbox/samples"
)

func TestSamples_AreOfASubjectAndATime(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Now = time.Now
	d.Exec(`INSERT INTO belfry.samples (kind, name, at, sent, failed) SELECT 'sender', 'fcm', date_trunc('minute', now()) - g * interval '1 minute', 10, 1 FROM generate_series(1, 30) g`)
	d.Exec(`INSERT INTO belfry.samples (kind, name, at, rows_written) VALUES ('job', '1', date_trunc('minute', now()), 7)`)
	require.NoError(t, d.Run("samples", "kind", "sender", "name", "fcm", "since", "2h", "step", "10m"))
	var out []samples.Point
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &out))
	require.InDelta(t, 13, len(out), 1)
	var sent, failed int64
	for _, p := range out {
		sent, failed = sent+p.Sent, failed+p.Failed
	}
	require.Equal(t, []int64{300, 30}, []int64{sent, failed})
	require.NoError(t, d.Run("samples", "kind", "job", "name", "1"))
	require.Contains(t, d.Out, " 7 ")
	for _, bad := range [][]string{{"kind", "job", "step", "90s"}, {"kind", "job", "since", "30d"},
		{"kind", "job", "since", "2026-01-02T00:00:00Z", "until", "2026-01-01T00:00:00Z"}} {
		require.Error(t, d.Run("samples", bad...), bad)
	}
}

// The rows of a lane or of a job to a radius reveal who is inside.
func TestSamples_OfRowsAreNotForEverybody(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('inbox', 'operator_notice', 'Near', '{"kind": "radius", "latitude": 37, "longitude": 127, "radius_m": 1000}'), ('inbox', 'operator_notice', 'All', '{"kind": "everyone"}')`)
	for role, allowed := range map[operation.Role]bool{operation.Viewer: false, operation.Author: false, operation.Operator: true, operation.Admin: true} {
		d.Env.Role = role
		require.NoError(t, d.Run("samples", "kind", "sender"), role)
		require.NoError(t, d.Run("samples", "kind", "job", "name", "2"), role)
		for _, of := range [][]string{{"kind", "job", "name", "1"}, {"kind", "job"}, {"kind", "lane", "name", "default"}, {"kind", "job", "name", "*"}} {
			require.Equal(t, allowed, d.Run("samples", of...) == nil, "%s %v", role, of)
		}
	}
}

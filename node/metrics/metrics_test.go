package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/inbox/live"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// senders are those of a test.
func senders() []relay.SenderConfig {
	return []relay.SenderConfig{{Name: "fcm", Medium: "push"}, {Name: "apns", Medium: "push"}, {Name: "text", Medium: "sms"}}
}

// full is what a daemon that delivers shows, with each of its metrics set.
func full(t *testing.T) (*Metrics, func(job.Progress), outbox.Observer) {
	t.Helper()
	m := New(Build{"v1.2.3", "abc", "go1.26"})
	runs, observer := m.Runner([]string{"inbox", "push"}), m.Relay(senders())
	m.RelayStats(func() relay.Stats {
		return relay.Stats{Claimed: 7, Recovered: 2, InFlight: 3, Senders: []relay.SenderStats{{Name: "fcm", Waiting: 4, Calling: 1, Breaker: "half_open", Paused: true}}}
	})
	pool := dbtest.Reused(t, 2).Pool
	m.Database(pool, job.NewOutage(zerolog.Nop()))
	m.API([]string{"jobs list"}, func() int { return 3 })(Request{Operation: "jobs list", Method: "GET", Status: 200, Took: time.Millisecond})
	m.Inbox(func() live.Stats {
		return live.Stats{Open: 5, Sent: map[string]int64{"new": 6, "reload": 1}, Ended: map[string]int64{"too_slow": 2}}
	})
	m.Poller(time.Second, NewHealth(time.Second), nil)
	c := m.Collector(time.Hour, pool, carrier{}, senders(), nil, zerolog.Nop())
	var values []sample
	for i, d := range collected() {
		value := float64(i)
		if i > 0 { // the first is when that was
			values = append(values, sample{d.name, d.labels, &value})
		}
	}
	c.parts[0].keep(values, time.Now())
	return m, runs, observer
}

// value is that of a series of a counter or a gauge, as `name{label="value"}`; false: there is none.
func (m *Metrics) value(t *testing.T, series string) (float64, bool) {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case name != series:
			case one.GetHistogram() != nil:
				return float64(one.GetHistogram().GetSampleCount()), true
			case one.GetCounter() != nil:
				return one.GetCounter().GetValue(), true
			default:
				return one.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// shows requires values of series.
func (m *Metrics) shows(t *testing.T, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		got, ok := m.value(t, series)
		require.True(t, ok, "no series %s", series)
		require.InDelta(t, value, got, 1e-9, series)
	}
}

// Names, types and texts are as Prometheus wants them, also where nothing was counted yet.
func TestMetrics_AreCleanToPromlint(t *testing.T) {
	t.Parallel()
	m, runs, observer := full(t)
	at := time.Now()
	runs(job.Progress{Event: job.EventClaimed, Job: job.Job{Type: "push", Fence: 1, ScheduleAt: at, StartedAt: &at}})
	runs(job.Progress{Event: job.EventThrottled, Job: job.Job{Type: "push", Throttle: "foreground", ThrottledMS: 5}})
	runs(job.Progress{Event: "chunk", Job: job.Job{Type: "push"}, Rows: 1, Elapsed: time.Second})
	observer.Called("fcm", []sender.Result{{Class: sender.Accepted}}, time.Second)
	observer.Rebuilt(outbox.Bulk)
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	shown := make(map[string]string)
	for _, f := range families {
		shown[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	for _, d := range m.known {
		require.Equal(t, d.kind, shown[d.name], "%s: docs/metrics.md says otherwise", d.name)
	}
	for name := range shown {
		require.Regexp(t, "^(belfry|go|process|promhttp)_", name)
	}
}

func TestMetrics_CountRuns(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	observe := m.Runner([]string{"inbox", "push"})
	m.shows(t, map[string]float64{
		`belfry_job_runs_total{outcome="failed",type="push"}`: 0, // an alert sees the first one
		`belfry_job_takeovers_total{type="inbox"}`:            0, `belfry_rows_written_total{type="inbox"}`: 0, `belfry_job_claims_total{type="inbox"}`: 0,
	})
	due := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	started := due.Add(3 * time.Second)
	j := job.Job{Type: "push", Fence: 1, ScheduleAt: due, StartedAt: &started, ThrottledMS: 100}
	step := func(event string, rows int64, took time.Duration) {
		observe(job.Progress{Event: event, Job: j, Rows: rows, Elapsed: took})
	}
	step(job.EventClaimed, 0, 0)
	m.shows(t, map[string]float64{`belfry_job_running`: 1, `belfry_job_start_lag_seconds{type="push"}`: 1})
	step("chunk", 500, 20*time.Millisecond)
	step("chunk", 7, 0) // of one recipient that is tried again
	j.Throttle, j.ThrottledMS = "foreground", 600
	step(job.EventThrottled, 0, 0)
	j.ThrottledMS = 2600
	step("chunk", 20, 30*time.Millisecond)
	j.Throttle, j.ThrottledMS = "", 3600
	step(job.EventReleased, 0, 0)
	step(job.EventInterrupted, 0, 0)
	j.Fence, j.ThrottledMS = 2, 9000 // another run in between
	step(job.EventClaimed, 0, 0)
	step(job.EventAborted, 0, 0)
	j.Fence = 3
	step(job.EventResumed, 0, 0)
	step("lost", 0, 0)
	m.shows(t, map[string]float64{
		`belfry_job_claims_total{type="push"}`:                     2,
		`belfry_job_takeovers_total{type="push"}`:                  1,
		`belfry_job_runs_total{outcome="interrupted",type="push"}`: 1,
		`belfry_job_runs_total{outcome="aborted",type="push"}`:     1,
		`belfry_job_runs_total{outcome="lost",type="push"}`:        1,
		`belfry_job_runs_total{outcome="processed",type="push"}`:   0,
		`belfry_rows_written_total{type="push"}`:                   527,
		`belfry_chunk_duration_seconds{type="push"}`:               2,
		`belfry_job_start_lag_seconds{type="push"}`:                1,
		`belfry_job_throttles_total{rule="foreground"}`:            1,
		`belfry_job_throttled_seconds_total{rule="foreground"}`:    3.5,
		`belfry_job_running`:                                       0,
	})
}

// What a message was routed by, or a client answers, is bounded by what is configured.
func TestMetrics_CountMessagesByBoundedLabels(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	o := m.Relay(senders())
	m.shows(t, map[string]float64{`belfry_dead_letters_total{reason="exhausted"}`: 0, `belfry_provider_call_duration_seconds{sender="apns"}`: 0})
	o.Recorded(outbox.Recording{Recorded: outbox.RecordedSent, Medium: "push"}, 40)
	o.Recorded(outbox.Recording{Recorded: outbox.RecordedSent, Medium: "push"}, 2)
	o.Recorded(outbox.Recording{Recorded: outbox.RecordedRetried, Medium: "carrier_pigeon"}, 1)
	o.Recorded(outbox.Recording{Recorded: outbox.RecordedDead, Medium: "sms", Reason: outbox.ReasonPermanent}, 3)
	o.Recorded(outbox.Recording{Recorded: outbox.RecordedDead, Reason: outbox.ReasonNoAddress}, 1)
	o.Called("text", []sender.Result{{Class: sender.Accepted}, {Class: sender.Retryable, Code: "503"}, {Class: "odd"}, {}}, 70*time.Millisecond)
	o.Rebuilt(outbox.Activities)
	m.shows(t, map[string]float64{
		`belfry_messages_recorded_total{medium="push",outcome="sent"}`:     42,
		`belfry_messages_recorded_total{medium="other",outcome="retried"}`: 1,
		`belfry_messages_recorded_total{medium="sms",outcome="dead"}`:      3,
		`belfry_messages_recorded_total{medium="none",outcome="dead"}`:     1,
		`belfry_dead_letters_total{reason="permanent"}`:                    3,
		`belfry_dead_letters_total{reason="no_address"}`:                   1,
		`belfry_provider_results_total{result="accepted",sender="text"}`:   1,
		`belfry_provider_results_total{result="retryable",sender="text"}`:  1,
		`belfry_provider_results_total{result="unknown",sender="text"}`:    2,
		`belfry_provider_call_duration_seconds{sender="text"}`:             1,
		`belfry_carrier_rebuilds_total{queue="activities"}`:                1,
	})
}

func TestMetrics_ReadWhatTheProcessKnows(t *testing.T) {
	t.Parallel()
	m, _, _ := full(t)
	m.shows(t, map[string]float64{
		`belfry_messages_claimed_total`: 7, `belfry_messages_recovered_total`: 2, `belfry_messages_in_flight`: 3,
		`belfry_sender_queue_messages{sender="fcm"}`: 4, `belfry_sender_calls{sender="fcm"}`: 1, `belfry_sender_paused{sender="fcm"}`: 1,
		`belfry_sender_breaker_state{sender="fcm",state="half_open"}`: 1, `belfry_sender_breaker_state{sender="fcm",state="closed"}`: 0,
		`belfry_inbox_streams`: 5, `belfry_inbox_events_total{type="new"}`: 6, `belfry_inbox_events_total{type="reload"}`: 1,
		`belfry_inbox_streams_ended_total{reason="too_slow"}`: 2,
		`belfry_pool_max_connections`:                         2, `belfry_database_away`: 0, `belfry_database_outages_total`: 0,
		`belfry_build_info{commit="abc",go_version="go1.26",version="v1.2.3"}`: 1,
	})
	_, ok := m.value(t, `belfry_pool_connections{state="idle"}`)
	require.True(t, ok)
}

func TestMetrics_CountRequests(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	count := m.API([]string{"jobs list", "jobs watch"}, func() int { return 3 })
	m.shows(t, map[string]float64{
		`belfry_api_requests_total{code="5xx",operation="jobs list"}`: 0, // an alert sees the first one
		`belfry_api_requests_total{code="5xx",operation="none"}`:      0,
		`belfry_api_streams`: 3,
	})
	for _, a := range []Request{
		{Operation: "jobs list", Method: "GET", Status: 200}, {Operation: "jobs list", Method: "GET", Status: 304}, {Operation: "jobs list", Method: "HEAD", Status: 200},
		{Operation: "jobs watch", Method: "GET", Status: 200, Stream: true}, {Method: "FORGED", Status: 401}, {Method: "GET"},
	} {
		count(a)
	}
	m.shows(t, map[string]float64{
		`belfry_api_requests_total{code="2xx",operation="jobs list"}`:  2,
		`belfry_api_requests_total{code="3xx",operation="jobs list"}`:  1,
		`belfry_api_requests_total{code="2xx",operation="jobs watch"}`: 1,
		`belfry_api_requests_total{code="4xx",operation="none"}`:       1,
		`belfry_api_requests_total{code="none",operation="none"}`:      1,
		`belfry_api_request_duration_seconds{method="GET"}`:            3, // a stream lasts as long as it is read
		`belfry_api_request_duration_seconds{method="other"}`:          2,
	})
	_, forged := m.value(t, `belfry_api_request_duration_seconds{method="FORGED"}`)
	require.False(t, forged, "whoever asks makes no label")
}

const docs = "../../docs/metrics.md"

// docs/metrics.md has each metric, with its type, labels and meaning, and no other.
func TestDocs_TheTableHasEachMetric(t *testing.T) {
	t.Parallel()
	m, _, _ := full(t)
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range m.known {
		labels := ""
		if len(d.labels) > 0 {
			labels = "`" + strings.Join(d.labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", d.name, d.kind, labels, d.help)
	}
	const begin, end = "<!-- metrics -->\n", "<!-- end of metrics -->"
	text, err := os.ReadFile(docs)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	is, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *dbtest.Rewrite {
		require.NoError(t, os.WriteFile(docs, []byte(before+begin+table.String()+end+after), 0o600))
		return
	}
	require.Equal(t, table.String(), is, "go test ./node/metrics -run TestDocs -rewrite")
}

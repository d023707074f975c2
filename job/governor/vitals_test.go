package governor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// judged is what the governor makes of one probe, with no other check than c's.
type judged struct {
	g   Governor
	now time.Time
}

func judging(h HealthConfig) *judged {
	h.Enabled, h.Interval = true, 2*time.Second
	s := still()
	s.Health = h
	return &judged{g: New(s, nil), now: time.Unix(1_900_000_000, 0)}
}

// probe lets an interval pass, gives the governor the vitals, and returns how long
// it pauses and why.
func (j *judged) probe(t *testing.T, v Vitals) (time.Duration, Throttle) {
	t.Helper()
	j.now = j.now.Add(2 * time.Second)
	require.True(t, j.g.ProbeDue(j.now))
	require.False(t, j.g.ProbeDue(j.now), "the next one is due an interval later")
	j.g.Judge(j.now, v)
	return j.g.Pause(j.now)
}

func ptr[T any](v T) *T { return &v }

// A lagging standby pauses the run, until the lag is well below the limit twice.
func TestVitals_ReplicaLagPauses(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{ReplicaLag: 10 * time.Second})
	lag := func(d time.Duration) Vitals { return Vitals{ReplicaLag: &d} }
	wait, why := j.probe(t, lag(10*time.Second))
	require.Zero(t, wait)
	require.Empty(t, why)
	wait, why = j.probe(t, lag(12*time.Second))
	require.Equal(t, 2*time.Second, wait)
	require.Equal(t, Throttle{"replica_lag", "12s, allowed 10s"}, why)
	for _, d := range []time.Duration{9 * time.Second, 7 * time.Second, 9 * time.Second, 7 * time.Second} {
		wait, why = j.probe(t, lag(d))
		require.Positive(t, wait, "neither ill nor well")
		require.Equal(t, ruleReplicaLag, why.Rule)
	}
	wait, why = j.probe(t, lag(0))
	require.Zero(t, wait)
	require.Empty(t, why)
}

// A probe that fails or sees nothing leaves the verdict as it is, but not permanently.
func TestVitals_NoNewsChangesNothingForAWhile(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{ReplicaLag: 10 * time.Second})
	_, why := j.probe(t, Vitals{ReplicaLag: ptr(time.Minute)})
	require.Equal(t, ruleReplicaLag, why.Rule)
	for range 15 {
		wait, why := j.probe(t, Vitals{Hidden: []string{ruleReplicaLag}})
		require.Positive(t, wait)
		require.Equal(t, ruleReplicaLag, why.Rule)
	}
	wait, why := j.probe(t, Vitals{})
	require.Zero(t, wait)
	require.Empty(t, why)
}

// The user's number pauses the run above its limit; 0 is a limit like any other.
func TestVitals_QueryPauses(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{Query: "SELECT 1", QueryMax: 0})
	_, why := j.probe(t, Vitals{Query: ptr(0.0)})
	require.Empty(t, why)
	wait, why := j.probe(t, Vitals{Query: ptr(1.5)})
	require.Positive(t, wait)
	require.Equal(t, Throttle{"query", "1.5, allowed 0"}, why)
	_, why = j.probe(t, Vitals{QueryError: errNoNumber})
	require.Equal(t, ruleQuery, why.Rule)
	j.probe(t, Vitals{Query: ptr(0.0)})
	_, why = j.probe(t, Vitals{Query: ptr(-1.0)})
	require.Empty(t, why)
}

// Requested checkpoints count over a minute; a counter that goes back begins again.
func TestVitals_CheckpointsSlow(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{Checkpoints: 2})
	at := func(count, bytes int64) Vitals { return Vitals{Checkpoints: &count, WALBytes: &bytes} }
	_, why := j.probe(t, at(100, 0))
	require.Empty(t, why, "what was before the run does not count")
	_, why = j.probe(t, at(102, 50e6))
	require.Empty(t, why)
	wait, why := j.probe(t, at(103, 100e6))
	require.Zero(t, wait, "slow, not paused")
	require.Equal(t, Throttle{"checkpoints", "3 requested in a minute, allowed 2; WAL 25.0 MB/s"}, why)
	for range 20 {
		_, why = j.probe(t, at(103, 100e6))
		require.Equal(t, ruleCheckpoints, why.Rule)
	}
	for range 15 {
		_, why = j.probe(t, at(103, 100e6))
	}
	require.Empty(t, why, "a minute later")
	_, why = j.probe(t, at(5, 0))
	require.Empty(t, why)
}

// What belfry's own relays do is taken off the server's count, as what the run does.
func TestVitals_RelaysAreNoOthers(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{Transactions: 50})
	var all, relays int64
	pass := func(others, ofRelays int64) Throttle { // in the two seconds since the last probe
		all, relays = all+others+ofRelays, relays+ofRelays
		_, why := j.probe(t, Vitals{Transactions: ptr(all), OfRelays: relays, RecentBackends: ptr(0)})
		return why
	}
	relays = 1_000_000 // before anything was seen
	require.Empty(t, pass(0, 0))
	require.Empty(t, pass(60, 2000))
	require.Empty(t, pass(2060, 0), "what a relay has told of already is reported a second later")
	require.Equal(t, Throttle{"foreground", "55 foreign transactions/s, allowed 50"}, pass(110, 2000))
	relays = 0 // they have ended
	require.Equal(t, Throttle{"foreground", "60 foreign transactions/s, allowed 50"}, pass(2120, 0))
	require.Equal(t, "60 foreign transactions/s, allowed 50", pass(120, 0).Detail)
}

// Of several rules the one that asks for most is told and followed.
func TestVitals_TheStrongestRuleCounts(t *testing.T) {
	t.Parallel()
	j := judging(HealthConfig{Checkpoints: 1, ReplicaLag: time.Second, Transactions: 50})
	_, why := j.probe(t, Vitals{Checkpoints: ptr(int64(0)), Transactions: ptr(int64(0)), RecentBackends: ptr(5)})
	require.Equal(t, ruleForeground, why.Rule)
	j.now = j.now.Add(-time.Second) // the second probe comes early
	_, why = j.probe(t, Vitals{Checkpoints: ptr(int64(9)), Transactions: ptr(int64(9999))})
	require.Equal(t, ruleCheckpoints, why.Rule)
	wait, why := j.probe(t, Vitals{Checkpoints: ptr(int64(9)), Transactions: ptr(int64(99999)), ReplicaLag: ptr(time.Minute)})
	require.Positive(t, wait)
	require.Equal(t, ruleReplicaLag, why.Rule)
}

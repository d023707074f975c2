package governor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// still are settings without health checks.
func still() Settings {
	return Settings{Chunk: DefaultChunkConfig(), DutyCycle: 1, Health: HealthConfig{Interval: 2 * time.Second}}
}

// watchful are settings with the default health checks.
func watchful() Settings {
	s := still()
	s.Health = DefaultConfig().Health
	return s
}

// server is a machine of a known speed: a chunk costs a fixed time and a time per
// key, times what its load makes of it.
type server struct {
	now      time.Time
	fixed    time.Duration
	perKey   time.Duration
	slowdown float64
	others   float64 // transactions a second of others
	total    float64
	backends int
	chunks   []simulated
}

// simulated is one chunk.
type simulated struct {
	began, ended time.Time
	rows         int64
}

func newServer() *server {
	return &server{now: time.Unix(1_900_000_000, 0), fixed: 2 * time.Millisecond, perKey: 1300 * time.Nanosecond, slowdown: 1}
}

func (s *server) pass(d time.Duration) {
	s.now = s.now.Add(d)
	s.total += s.others * d.Seconds()
}

// walk runs chunks for a while, as a run does, and returns the rows written.
func (s *server) walk(g *Governor, d time.Duration, density float64) (rows int64) {
	for end := s.now.Add(d); s.now.Before(end); {
		if g.ProbeDue(s.now) {
			s.pass(time.Millisecond)
			g.Judge(s.now, s.vitals())
		}
		if wait, _ := g.Pause(s.now); wait > 0 {
			s.pass(wait)
			continue
		}
		read := g.Rows()
		n := int64(float64(read) * density)
		began := s.now
		took := time.Duration(float64(s.fixed+time.Duration(read)*s.perKey) * s.slowdown)
		s.pass(took)
		s.total++
		g.Observe(s.now, read, n, took)
		s.chunks = append(s.chunks, simulated{began, s.now, n})
		rows += n
	}
	return rows
}

func (s *server) vitals() Vitals {
	total, backends, lag, none := int64(s.total), s.backends, time.Duration(0), int64(0)
	return Vitals{Transactions: &total, RecentBackends: &backends, ReplicaLag: &lag, Checkpoints: &none}
}

// Against a machine of any constant speed the size settles where a chunk takes the
// target, or at its bound, and stays there.
func TestGovernor_SizeSettlesAtTheTarget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := still()
		perKey := time.Duration(rapid.IntRange(50, 5_000_000).Draw(t, "ns per key"))
		g := New(s, nil)
		now := time.Unix(0, 0)
		for range 30 {
			took := time.Duration(g.Rows()) * perKey
			now = now.Add(took)
			g.Observe(now, g.Rows(), int64(g.Rows()), took)
			require.GreaterOrEqual(t, g.Rows(), s.Chunk.MinRows)
			require.LessOrEqual(t, g.Rows(), s.Chunk.MaxRows)
		}
		want := min(max(int(s.Chunk.Target/perKey), s.Chunk.MinRows), s.Chunk.MaxRows)
		require.InEpsilon(t, want, g.Rows(), 0.05)
	})
}

func TestGovernor_OneOutlierAtMostHalvesOrDoubles(t *testing.T) {
	t.Parallel()
	s := still()
	s.Chunk = ChunkConfig{InitialRows: 1000, MinRows: 10, MaxRows: 100_000, Target: 100 * time.Millisecond}
	g, now := New(s, nil), time.Unix(0, 0)
	g.Observe(now, 1000, 1000, time.Minute)
	require.Equal(t, 500, g.Rows())
	g.Observe(now, 500, 500, 0)
	require.Equal(t, 1000, g.Rows())
	g.Observe(now, 999, 999, time.Minute) // a short page says nothing
	require.Equal(t, 1000, g.Rows())
	g.Shrink()
	require.Equal(t, 500, g.Rows())
}

// Over any window the rows of the chunks that began in it exceed the limit by one
// chunk at the most, whatever share of the keys matches.
func TestGovernor_KeepsTheRowsPerSecond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := still()
		s.MaxRowsPerSecond = rapid.IntRange(1, 300_000).Draw(t, "rate")
		g, m := New(s, nil), newServer()
		m.fixed = time.Duration(rapid.IntRange(0, 50).Draw(t, "fixed ms")) * time.Millisecond
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			m.slowdown = rapid.Float64Range(0.1, 10).Draw(t, "slowdown")
			m.walk(&g, 3*time.Second, rapid.Float64Range(0, 1).Draw(t, "density"))
		}
		var excess float64 // of the window up to this chunk that exceeds the limit most
		var largest int64
		for i, c := range m.chunks {
			if i > 0 {
				excess -= float64(s.MaxRowsPerSecond) * c.began.Sub(m.chunks[i-1].began).Seconds()
			}
			excess, largest = max(excess, 0)+float64(c.rows), max(largest, c.rows)
			require.LessOrEqual(t, excess, float64(largest)+1)
		}
	})
}

// A limit that the machine could exceed is reached, not just kept.
func TestGovernor_ReachesTheRowsPerSecond(t *testing.T) {
	t.Parallel()
	s := still()
	s.MaxRowsPerSecond = 50_000
	g, m := New(s, nil), newServer()
	rows := m.walk(&g, 20*time.Second, 0.7)
	require.InEpsilon(t, 50_000*20, rows, 0.02)
	_, why := g.Pause(m.now)
	require.Equal(t, Throttle{"max_rows_per_second", "50000 rows/s allowed"}, why)
}

// From any chunk's begin on, the time inside chunks keeps to its share, beyond one
// chunk.
func TestGovernor_KeepsTheDutyCycle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := still()
		s.DutyCycle = rapid.Float64Range(0.01, 1).Draw(t, "duty")
		g, m := New(s, nil), newServer()
		for range 3 {
			m.slowdown = rapid.Float64Range(0.1, 10).Draw(t, "slowdown")
			m.walk(&g, 5*time.Second, 1)
		}
		var excess, longest time.Duration // of the window up to this chunk that exceeds its share most
		for i, c := range m.chunks {
			if i > 0 {
				excess -= time.Duration(s.DutyCycle * float64(c.began.Sub(m.chunks[i-1].ended)))
			}
			took := c.ended.Sub(c.began)
			excess = max(excess, 0) + time.Duration((1-s.DutyCycle)*float64(took))
			longest = max(longest, took)
			require.LessOrEqual(t, excess, longest+time.Microsecond)
		}
	})
}

// Alone on a steady machine health checks cost nothing.
func TestGovernor_FullSpeedOnAnIdleServer(t *testing.T) {
	t.Parallel()
	free, governed := New(still(), nil), New(watchful(), nil)
	a, b := newServer(), newServer()
	require.GreaterOrEqual(t, float64(b.walk(&governed, 10*time.Second, 1)), 0.99*float64(a.walk(&free, 10*time.Second, 1)))
	_, why := governed.Pause(b.now)
	require.Empty(t, why)
}

// Others' transactions turn the run to small chunks within the interval of the
// probes and one more, and when they end it is at full speed again soon.
func TestGovernor_GivesWayToOthersAndComesBack(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.walk(&g, 10*time.Second, 1)
	require.Greater(t, g.Rows(), 10*smallRows)

	m.others, m.backends = 1000, 4
	m.walk(&g, 3*time.Second, 1)
	require.Equal(t, smallRows, g.Rows())
	_, why := g.Pause(m.now)
	require.Equal(t, ruleForeground, why.Rule)
	require.Contains(t, why.Detail, "foreign transactions/s, allowed 50")
	require.GreaterOrEqual(t, m.walk(&g, 10*time.Second, 1), int64(500_000), "goal: 50,000 rows/s")

	m.others, m.backends = 0, 0
	m.walk(&g, 7*time.Second, 1)
	require.Greater(t, g.Rows(), 10*smallRows)
	_, why = g.Pause(m.now)
	require.Empty(t, why)
}

// A run that starts beside others does so in small chunks.
func TestGovernor_StartsGentlyBesideOthers(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.others, m.backends = 1000, 4
	m.walk(&g, 5*time.Second, 1)
	for _, c := range m.chunks {
		require.LessOrEqual(t, c.rows, int64(smallRows))
	}
}

// The run's own transactions are not others': chunks as small as they get, at full
// speed, do not make it give way to itself.
func TestGovernor_DoesNotGiveWayToItself(t *testing.T) {
	t.Parallel()
	s := watchful()
	s.Chunk = ChunkConfig{InitialRows: 100, MinRows: 100, MaxRows: 100, Target: 100 * time.Millisecond}
	g, m := New(s, nil), newServer()
	m.walk(&g, 20*time.Second, 1)
	_, why := g.Pause(m.now)
	require.Empty(t, why)
	require.Greater(t, len(m.chunks), 9000)
}

// Chunks that all take longer than their unloaded time, whatever keeps the machine
// busy, shrink; they grow again when it is over.
func TestGovernor_ShrinksUnderContention(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.walk(&g, 10*time.Second, 1)
	m.slowdown = 3
	m.walk(&g, time.Second, 1)
	m.chunks = nil
	m.walk(&g, 10*time.Second, 1)
	small := 0
	for _, c := range m.chunks {
		if c.rows <= smallRows {
			small++
		}
	}
	require.Greater(t, small, len(m.chunks)*9/10)
	_, why := g.Pause(m.now)
	require.Equal(t, ruleChunkLatency, why.Rule)
	require.Contains(t, why.Detail, "times its unloaded time, allowed 1.3")

	m.slowdown = 1
	m.walk(&g, 2*againMost, 1)
	require.Greater(t, g.Rows(), 10*smallRows)
	_, why = g.Pause(m.now)
	require.Empty(t, why)
}

// One or two slow chunks are a hiccup.
func TestGovernor_AHiccupDoesNotThrottle(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.walk(&g, 5*time.Second, 1)
	for range 20 {
		full := g.Rows()
		for range slowRun - 1 {
			m.pass(time.Second / 2)
			g.Observe(m.now, full, int64(full), time.Second/2)
		}
		m.walk(&g, 2*time.Second, 1)
		_, why := g.Pause(m.now)
		require.Empty(t, why)
	}
}

// While small, slow chunks lengthen the rest and quick ones shorten it.
func TestGovernor_RestsAfterSlowSmallChunks(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.others, m.backends = 1000, 4
	m.walk(&g, 5*time.Second, 1)
	quick := m.walk(&g, 5*time.Second, 1)
	m.slowdown = 3
	busy := m.walk(&g, 500*time.Millisecond, 1)
	require.Less(t, busy*10, quick/2)
	require.Equal(t, restMost, g.contention.rest)
	m.slowdown = 1
	m.walk(&g, time.Second, 1)
	require.Equal(t, restLeast, g.contention.rest)
}

// Whatever happens to the machine, a run is at full speed again a known time after
// it has calmed down, and never stands still without a rule that pauses.
func TestGovernor_RecoversFromAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, m := New(watchful(), nil), newServer()
		m.walk(&g, 5*time.Second, 1)
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			m.slowdown = rapid.Float64Range(1, 5).Draw(t, "slowdown")
			m.others = float64(rapid.IntRange(0, 5000).Draw(t, "others"))
			require.Positive(t, m.walk(&g, time.Duration(rapid.IntRange(1000, 5000).Draw(t, "ms"))*time.Millisecond, 1))
		}
		m.slowdown, m.others = 1, 0
		m.walk(&g, 20*time.Second, 1)
		require.Greater(t, g.Rows(), 10*smallRows)
	})
}

// Events are written when the shown rule changes: a few a minute at the most.
func TestGovernor_ShowsFewChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l label
		now, began := time.Unix(1_900_000_000, 0), time.Unix(1_900_000_000, 0)
		changes, shown := 0, ""
		for range 2000 {
			now = now.Add(time.Duration(rapid.IntRange(1, 500).Draw(t, "ms")) * time.Millisecond)
			rule := rapid.SampledFrom([]string{"", ruleForeground, ruleChunkLatency, ruleReplicaLag}).Draw(t, "rule")
			if got := l.show(now, Throttle{Rule: rule}); got.Rule != shown {
				changes, shown = changes+1, got.Rule
			}
		}
		require.LessOrEqual(t, float64(changes), labelBurst+float64(now.Sub(began))/float64(labelRefill)+1)
	})
}

// Settings change from one chunk to the next.
func TestGovernor_ConfigureIsLive(t *testing.T) {
	t.Parallel()
	g, m := New(watchful(), nil), newServer()
	m.walk(&g, 5*time.Second, 1)
	s := watchful()
	s.Chunk.MaxRows = 700
	g.Configure(s)
	require.Equal(t, 700, g.Rows())
	s.DutyCycle = 0.5
	g.Configure(s)
	m.walk(&g, time.Second, 1)
	_, why := g.Pause(m.now)
	require.Equal(t, Throttle{"duty_cycle", "0.5 of the time in chunks"}, why)

	m.others, m.backends = 1000, 4
	s = watchful()
	g.Configure(s)
	m.walk(&g, 5*time.Second, 1)
	_, why = g.Pause(m.now)
	require.Equal(t, ruleForeground, why.Rule)
	s.Health.Enabled = false
	g.Configure(s)
	m.pass(time.Minute) // past labelRefill
	require.False(t, g.ProbeDue(m.now))
	wait, why := g.Pause(m.now)
	require.Zero(t, wait)
	require.Empty(t, why)
}

func TestLoadConfig_DefaultIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate("runner.load"))
}

// Every problem is told at once, with its key and the allowed values.
func TestLoadConfig_ValidateTellsEverything(t *testing.T) {
	t.Parallel()
	c := Config{MaxRowsPerSecond: -1, DutyCycle: 0, Health: HealthConfig{
		Interval: time.Millisecond, ChunkLatency: 1, Transactions: -1, ReplicaLag: -time.Second,
		Checkpoints: -1, Query: "\x00",
	}}
	require.EqualError(t, c.Validate("runner.load"), `runner.load.max_rows_per_second: -1 is not allowed; allowed are 0 (no limit) to 10000000
runner.load.duty_cycle: 0 is not allowed; allowed are 0.01 to 1
runner.load.health.interval: 1ms is not allowed; allowed are 100ms to 1m
runner.load.health.chunk_latency: 1 is not allowed; allowed are 0 (off) and 1.05 to 100
runner.load.health.transactions: -1 is not allowed; allowed are 0 (off) to 1000000000
runner.load.health.replica_lag: -1s is not allowed; allowed are 0s (off) to 24h
runner.load.health.checkpoints: -1 is not allowed; allowed are 0 (off) to 1000
runner.load.health.query: is not allowed; allowed are up to 10000 bytes without NUL`)
}

package governor

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Config limits the load of a run on the database. A job's own columns (max_rows_per_second, duty_cycle,
// health_checks) override it.
type Config struct {
	// MaxRowsPerSecond bounds the rows that a run writes; 0: no bound. A chunk is
	// written whole, so a second may see one chunk more.
	MaxRowsPerSecond int `mapstructure:"max_rows_per_second"`
	// DutyCycle is the share of time that a run may spend inside chunks, above 0 up to
	// 1; after a chunk the run rests for the remaining share.
	DutyCycle float64      `mapstructure:"duty_cycle"`
	Health    HealthConfig `mapstructure:"health"`
}

// ChunkConfig sets the number of keys of a chunk. The size adapts within its bounds, so that a chunk takes
// Target.
type ChunkConfig struct {
	InitialRows int           `mapstructure:"initial_rows"` // of a run's first chunk
	MinRows     int           `mapstructure:"min_rows"`
	MaxRows     int           `mapstructure:"max_rows"`
	Target      time.Duration `mapstructure:"target"` // begin to commit
}

// HealthConfig sets the checks by which a run notices that the database is busy
// with something else. All but ChunkLatency read the server's statistics every
// Interval.
type HealthConfig struct {
	Enabled bool `mapstructure:"enabled"`
	// Interval is the time between two probes of the server.
	Interval time.Duration `mapstructure:"interval"`
	// ChunkLatency is how many times its unloaded time a chunk may take before the run
	// turns to small chunks with rests between them; 0: off.
	ChunkLatency float64 `mapstructure:"chunk_latency"`
	// Transactions is how many transactions a second others may run, on the whole
	// server, before the run turns to small chunks, with rests between those that take
	// long; 0: off. Relays of this database are no others.
	Transactions int `mapstructure:"transactions"`
	// ReplicaLag is by how much a standby's replay may lag before the run pauses; 0: off.
	ReplicaLag time.Duration `mapstructure:"replica_lag"`
	// Checkpoints is how many checkpoints a minute may be requested, which is to say
	// forced by the amount of WAL, before the run slows down; 0: off.
	Checkpoints int `mapstructure:"checkpoints"`
	// Query returns one number; above QueryMax the run pauses. Empty: off.
	Query    string  `mapstructure:"query"`
	QueryMax float64 `mapstructure:"query_max"`
}

// DefaultConfig returns the values that config.yaml documents.
func DefaultConfig() Config {
	return Config{
		DutyCycle: 1,
		Health: HealthConfig{
			Enabled: true, Interval: 2 * time.Second, ChunkLatency: 1.3, Transactions: 50,
			ReplicaLag: 10 * time.Second, Checkpoints: 2,
		},
	}
}

// DefaultChunkConfig returns the values that config.yaml documents.
func DefaultChunkConfig() ChunkConfig {
	return ChunkConfig{InitialRows: 5000, MinRows: 100, MaxRows: 50000, Target: 100 * time.Millisecond}
}

// Validate returns every problem at once, each with its key path under prefix, or
// nil.
func (c Config) Validate(prefix string) error {
	var problems []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s.%s: %s", prefix, key, fmt.Sprintf(format, args...)))
		}
	}
	h := c.Health
	check(c.MaxRowsPerSecond >= 0 && c.MaxRowsPerSecond <= MostRowsPerSecond, "max_rows_per_second",
		"%d is not allowed; allowed are 0 (no limit) to %d", c.MaxRowsPerSecond, MostRowsPerSecond)
	check(c.DutyCycle >= minDutyCycle && c.DutyCycle <= 1, "duty_cycle",
		"%v is not allowed; allowed are %v to 1", c.DutyCycle, minDutyCycle)
	check(h.Interval >= 100*time.Millisecond && h.Interval <= time.Minute, "health.interval",
		"%s is not allowed; allowed are 100ms to 1m", h.Interval)
	check(h.ChunkLatency == 0 || h.ChunkLatency >= 1.05 && h.ChunkLatency <= 100, "health.chunk_latency",
		"%v is not allowed; allowed are 0 (off) and 1.05 to 100", h.ChunkLatency)
	check(h.Transactions >= 0 && h.Transactions <= 1_000_000_000, "health.transactions",
		"%d is not allowed; allowed are 0 (off) to 1000000000", h.Transactions)
	check(h.ReplicaLag >= 0 && h.ReplicaLag <= 24*time.Hour, "health.replica_lag",
		"%s is not allowed; allowed are 0s (off) to 24h", h.ReplicaLag)
	check(h.Checkpoints >= 0 && h.Checkpoints <= 1000, "health.checkpoints",
		"%d is not allowed; allowed are 0 (off) to 1000", h.Checkpoints)
	check(!strings.ContainsRune(h.Query, 0) && len(h.Query) <= 10_000, "health.query",
		"is not allowed; allowed are up to 10000 bytes without NUL")
	check(!math.IsNaN(h.QueryMax) && !math.IsInf(h.QueryMax, 0), "health.query_max",
		"%v is not allowed; allowed are finite numbers", h.QueryMax)
	return errors.Join(problems...)
}

const (
	// MostRowsPerSecond is the highest limit of rows per second.
	MostRowsPerSecond = 10_000_000
	minDutyCycle      = 0.01
)

// Settings apply to the next chunk: the runner's configuration, overridden by the job's own columns.
type Settings struct {
	Chunk            ChunkConfig
	MaxRowsPerSecond int     // of rows written; 0: no limit
	DutyCycle        float64 // share of time inside chunks, 0 < d ≤ 1
	Health           HealthConfig
}

// Throttle is the reason for which a run is throttled. The zero value means full speed.
type Throttle struct {
	Rule   string // one of the rules below, stable: for scripts
	Detail string // for people, as "12s, allowed 10s"
}

// The rules, most urgent first. If several apply, the first is reported.
const (
	ruleReplicaLag    = "replica_lag"
	ruleQuery         = "query"
	ruleCheckpoints   = "checkpoints"
	ruleForeground    = "foreground"
	ruleChunkLatency  = "chunk_latency"
	ruleRowsPerSecond = "max_rows_per_second"
	ruleDutyCycle     = "duty_cycle"
)

package job

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/belfryhq/belfry/job/governor"
)

// Config sets how a Runner claims and walks. DefaultConfig has every default;
// zero values are not defaults and Validate refuses them where they make no sense.
type Config struct {
	// Name identifies this runner in jobs.runner and in events. It must be unique among live runners,
	// because a runner resumes a RUNNING job with its own name at once. This package does not enforce that:
	// belfry's commands lock their names (belfry.names) and refuse a second process, and your own program
	// must give each process another name, or none. Empty means host name, process id and a random suffix.
	Name string `mapstructure:"name"`
	// Lanes are the lanes that this runner serves; none means all.
	Lanes []string `mapstructure:"lanes"`
	// PollInterval is the time between two polls for due and stale jobs while a job is RUNNING or due; see
	// Runner.Run.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// WatchInterval is the time between two checks, by a daemon without a job, whether the runner of a
	// RUNNING job has lost its server connection, so that the job can be taken over.
	WatchInterval time.Duration `mapstructure:"watch_interval"`
	// Listen makes the daemon LISTEN for the database's notifications. Without them polling finds all work.
	Listen bool `mapstructure:"listen"`
	// StaleAfter is how old, in the database's clock, a RUNNING job's heartbeat must
	// be before any runner may take the job over. At least twice StatementTimeout.
	StaleAfter time.Duration `mapstructure:"stale_after"`
	// StatementTimeout bounds every statement of a run on the server, and how long the
	// server waits for the runner inside a transaction.
	StatementTimeout time.Duration `mapstructure:"statement_timeout"`
	// GracePeriod is how long the chunk in progress may still take after a soft stop
	// before it is cancelled.
	GracePeriod time.Duration `mapstructure:"grace_period"`
	// MaxTakeovers is the number of runs of a job that may be lost in a row without a committed chunk; the
	// next lost run makes the job FAILED.
	MaxTakeovers int `mapstructure:"max_takeovers"`
	// MaxSkips is the number of recipients of a job that may be skipped because their rows cannot be
	// written; the next one makes the job FAILED. A job's own max_skips overrides it.
	MaxSkips int                  `mapstructure:"max_skips"`
	Chunk    governor.ChunkConfig `mapstructure:"chunk"`
	Load     governor.Config      `mapstructure:"load"`
	Retry    RetryConfig          `mapstructure:"retry"`
}

// RetryConfig sets how a run repeats a chunk after an error that a retry can fix.
type RetryConfig struct {
	Limit int `mapstructure:"limit"` // retries of one chunk in a row; 0 means none
	// For is the time for which a chunk is retried while the server is out of disk, memory, connections or
	// files, is read-only, or has a constraint that rejects all rows, or another session keeps a row or a table
	// locked. These retries do not count towards Limit.
	For     time.Duration `mapstructure:"for"`
	Initial time.Duration `mapstructure:"initial"` // the first pause; each next one doubles
	Max     time.Duration `mapstructure:"max"`     // the longest pause
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config {
	return Config{
		PollInterval:     time.Second,
		WatchInterval:    250 * time.Millisecond,
		Listen:           true,
		StaleAfter:       30 * time.Second,
		StatementTimeout: 10 * time.Second,
		GracePeriod:      10 * time.Second,
		MaxTakeovers:     5,
		MaxSkips:         1000,
		Chunk:            governor.DefaultChunkConfig(),
		Load:             governor.DefaultConfig(),
		Retry:            RetryConfig{Limit: 10, For: 15 * time.Minute, Initial: 100 * time.Millisecond, Max: 5 * time.Second},
	}
}

var laneName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })

// Validate returns every problem at once, each with its key path, or nil.
func (c Config) Validate() error {
	var problems []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("runner.%s: %s", key, fmt.Sprintf(format, args...)))
		}
	}
	check(len(c.Name) <= 200, "name", "has %d characters; allowed are up to 200", len(c.Name))
	for _, lane := range c.Lanes {
		check(laneName().MatchString(lane), "lanes",
			"%q is not a lane name; allowed are 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", lane)
	}
	between := func(key string, d, low, high time.Duration) {
		check(d >= low && d <= high, key, "%s is not allowed; allowed are %s to %s", d, low, high)
	}
	between("poll_interval", c.PollInterval, 10*time.Millisecond, time.Hour)
	between("watch_interval", c.WatchInterval, 10*time.Millisecond, time.Hour)
	between("statement_timeout", c.StatementTimeout, 50*time.Millisecond, time.Hour)
	between("stale_after", c.StaleAfter, 100*time.Millisecond, 24*time.Hour)
	between("grace_period", c.GracePeriod, 0, time.Hour)
	between("chunk.target", c.Chunk.Target, time.Millisecond, time.Minute)
	between("retry.for", c.Retry.For, 0, 7*24*time.Hour)
	between("retry.initial", c.Retry.Initial, time.Millisecond, time.Hour)
	between("retry.max", c.Retry.Max, c.Retry.Initial, time.Hour)
	check(c.StaleAfter >= 2*c.StatementTimeout, "stale_after",
		"%s is not allowed; it must be at least twice statement_timeout (%s), or a slow chunk looks dead", c.StaleAfter, c.StatementTimeout)
	check(c.StaleAfter >= 2*c.Retry.Max, "stale_after",
		"%s is not allowed; it must be at least twice retry.max (%s), or a run that waits looks dead", c.StaleAfter, c.Retry.Max)
	check(c.Chunk.Target <= c.StatementTimeout/2, "chunk.target",
		"%s is not allowed; it must be at most half of statement_timeout (%s)", c.Chunk.Target, c.StatementTimeout)
	check(c.Chunk.MinRows >= 1 && c.Chunk.MinRows <= 1_000_000, "chunk.min_rows", "%d is not allowed; allowed are 1 to 1000000",
		c.Chunk.MinRows)
	check(c.Chunk.MaxRows >= c.Chunk.MinRows && c.Chunk.MaxRows <= 1_000_000, "chunk.max_rows",
		"%d is not allowed; allowed are chunk.min_rows (%d) to 1000000", c.Chunk.MaxRows, c.Chunk.MinRows)
	check(c.Chunk.InitialRows >= c.Chunk.MinRows && c.Chunk.InitialRows <= c.Chunk.MaxRows, "chunk.initial_rows",
		"%d is not allowed; allowed are chunk.min_rows (%d) to chunk.max_rows (%d)", c.Chunk.InitialRows, c.Chunk.MinRows, c.Chunk.MaxRows)
	check(c.Retry.Limit >= 0 && c.Retry.Limit <= 1000, "retry.limit", "%d is not allowed; allowed are 0 to 1000", c.Retry.Limit)
	check(c.MaxTakeovers >= 0 && c.MaxTakeovers <= 1000, "max_takeovers", "%d is not allowed; allowed are 0 to 1000", c.MaxTakeovers)
	check(c.MaxSkips >= 0 && c.MaxSkips <= 10_000_000, "max_skips", "%d is not allowed; allowed are 0 (skip nobody) to 10000000", c.MaxSkips)
	return errors.Join(append(problems, c.Load.Validate("runner.load"))...)
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Config says what to measure and how large. DefaultConfig and QuickConfig have
// every size.
type Config struct {
	DatabaseURL string   // server to use; empty: a private one
	Dir         string   // where a private server's temporary directory is made; empty: os.TempDir()
	Only        []string // names of the benchmarks to run, in their own order; none: all but load
	Channels    int64    // how many channels are generated, at least MinChannels
	Rounds      int      // how often what is compared is repeated, at least 1
	Enqueues    int      // jobs timed by latency
	Kills       int      // runners killed by takeover
	Quick       bool     // recorded in the report
	Progress    io.Writer
}

// MinChannels is the fewest channels with which every benchmark still does what it
// says: a hundred chunks of some keys, a kill in the middle.
const MinChannels = 2000

// DefaultConfig is the full measurement: a few minutes on two cores.
func DefaultConfig() Config {
	return Config{Channels: 1_000_000, Rounds: 3, Enqueues: 200, Kills: 5, Progress: io.Discard}
}

// QuickConfig shows in seconds that everything works; its figures are not to be
// judged by.
func QuickConfig() Config {
	return Config{Channels: 50_000, Rounds: 1, Enqueues: 20, Kills: 1, Quick: true, Progress: io.Discard}
}

// Validate returns every problem at once, each with the flag's name, or nil.
func (c Config) Validate() error {
	var problems []error
	for _, name := range c.Only {
		if !slices.Contains(Names(), name) {
			problems = append(problems, fmt.Errorf("only: there is no benchmark %q; allowed values: %s", name, strings.Join(Names(), ", ")))
		}
	}
	if c.Channels < MinChannels || c.Channels > 100_000_000 {
		problems = append(problems, fmt.Errorf("channels: %d is not allowed; allowed values: %d to 100000000", c.Channels, MinChannels))
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"rounds", c.Rounds}, {"enqueues", c.Enqueues}, {"kills", c.Kills}} {
		if n.value < 1 || n.value > 10_000 {
			problems = append(problems, fmt.Errorf("%s: %d is not allowed; allowed values: 1 to 10000", n.name, n.value))
		}
	}
	return errors.Join(problems...)
}

// benchmark is one measurement.
type benchmark struct {
	name, what string
	run        func(ctx context.Context, e *env, r *Result) error
	named      bool // runs only when Config.Only names it
}

// benchmarks are in the order in which they run and are reported.
func benchmarks() []benchmark {
	return []benchmark{
		{name: "walk", what: "a job against one INSERT … SELECT of the same rows", run: walk},
		{name: "alternatives", what: "a job against one INSERT per row and OFFSET paging", run: alternatives},
		{name: "level", what: "last tenth of a walk's chunks against the first", run: level},
		{name: "memory", what: "peak memory of a runner process", run: memory},
		{name: "latency", what: "enqueue to first chunk committed, woken by NOTIFY", run: latency},
		{name: "idle", what: "what a daemon that delivers asks while it has nothing to do", run: idle},
		{name: "takeover", what: "kill -9 of a runner to its successor's first chunk", run: takeover},
		{name: "radius", what: "cost of sparse audiences against their matches", run: radius},
		{name: "load", what: "what a job does to other users of the database", run: load, named: true},
	}
}

// wants reports whether a benchmark is to run.
func (c Config) wants(b benchmark) bool {
	if len(c.Only) == 0 {
		return !b.named
	}
	return slices.Contains(c.Only, b.name)
}

// Names are the benchmarks that Config.Only may name.
func Names() []string {
	var names []string
	for _, b := range benchmarks() {
		names = append(names, b.name)
	}
	return names
}

// deadline bounds one benchmark, however large --channels is made.
const deadline = 30 * time.Minute

// Run measures and reports. The error joins what went wrong with what went wrong
// cleaning up; a missed goal is no error. Main must have called pgserver.Watchdog
// and then Child. It is not to be called twice at once: the two would measure each
// other.
func Run(ctx context.Context, c Config) (report Report, err error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	e, err := openEnv(ctx, c)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	report = Report{
		StartedAt: time.Now().UTC(), Machine: thisMachine(), Channels: c.Channels, Rounds: c.Rounds, Quick: c.Quick,
	}
	if report.Postgres, err = e.describe(ctx); err != nil {
		return report, err
	}
	for _, b := range benchmarks() {
		if !c.wants(b) {
			continue
		}
		result, err := e.measure(ctx, b)
		if err != nil {
			return report, fmt.Errorf("%s: %w", b.name, err)
		}
		report.Results = append(report.Results, result)
	}
	report.Seconds = time.Since(report.StartedAt).Seconds()
	report.GoalsMet = len(report.Missed()) == 0
	return report, nil
}

// measure runs one benchmark and checks that its figures are numbers.
func (e *env) measure(ctx context.Context, b benchmark) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := e.fill(ctx); err != nil {
		return Result{}, err
	}
	e.progress("%s: %s", b.name, b.what)
	result := Result{Name: b.name, What: b.what}
	began := time.Now()
	if err := b.run(ctx, e, &result); err != nil {
		return Result{}, err
	}
	result.Seconds = time.Since(began).Seconds()
	for _, f := range result.Figures {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			return Result{}, fmt.Errorf("figure %s is %v: nothing was measured", f.Name, f.Value)
		}
	}
	return result, nil
}

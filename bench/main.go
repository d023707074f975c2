package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/pgserver"
)

func main() {
	pgserver.Watchdog() // never returns in the private server's watchdog
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as cmd/belfry does for a relay; River gets the same
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// config is the size of a run.
type config struct {
	messages int64 // per round of river and stock; twice as many in claims
	rounds   int   // of river and stock, in turns
	orders   int   // transactions of each kind
	only     []string
	dir      string
	json     bool
	profile  string
	quick    bool
	progress io.Writer
}

func defaultConfig() config { return config{messages: 1_000_000, rounds: 2, orders: 20_000} }

func quickConfig() config {
	return config{messages: 5_000, rounds: 1, orders: 500, quick: true}
}

// measurement is one of the benchmarks.
type measurement struct {
	name, what string
	run        func(context.Context, *env, *bench.Result) error
}

func measurements() []measurement {
	return []measurement{
		{"river", "messages delivered a second, against River", throughput},
		{"stock", "messages delivered a second on a stock server, against a tuned one", stock},
		{"claims", "claims at the beginning and at the end of two jobs", claims},
		{"orders", "an order with its message, against the order alone", orders},
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\nRun `make bench-relay ARGS=--help` for usage.\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := profiled(ctx, c)
	if err == nil {
		err = show(report, c, stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by the caller
	c := defaultConfig()
	sizes := c
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	only := flags.String("only", "", "run only the `NAMES`, separated by commas: "+strings.Join(names, ", "))
	quick := flags.Bool("quick", false, "small sizes: shows in seconds that everything works")
	asJSON := flags.Bool("json", false, "results as JSON instead of a table")
	dir := flags.String("dir", "", "make the server's temporary directory in `DIR`, on the disk to measure (default: the system's, see $TMPDIR)")
	profile := flags.String("cpuprofile", "", "write a pprof CPU profile of this process to `FILE`")
	flags.Int64Var(&sizes.messages, "messages", c.messages, "deliver `N` messages in each round, at least 1000")
	flags.IntVar(&sizes.rounds, "rounds", c.rounds, "repeat what is compared `R` times, in turns")
	flags.IntVar(&sizes.orders, "orders", c.orders, "`N` transactions of each kind, at least 100")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: make bench-relay ARGS='[flags]'")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *quick {
		c = quickConfig()
	}
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "messages":
			c.messages = sizes.messages
		case "rounds":
			c.rounds = sizes.rounds
		case "orders":
			c.orders = sizes.orders
		}
	})
	c.json, c.profile, c.dir, c.progress = *asJSON, *profile, *dir, stderr
	var problems []error
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			c.only = append(c.only, strings.TrimSpace(name))
			if !slices.Contains(names, strings.TrimSpace(name)) {
				problems = append(problems, fmt.Errorf("only: %q is no benchmark; allowed values: %s", name, strings.Join(names, ", ")))
			}
		}
	}
	if c.messages < 1000 || c.messages > 100_000_000 {
		problems = append(problems, fmt.Errorf("messages: %d is not allowed; allowed values: 1000 to 100000000", c.messages))
	}
	if c.rounds < 1 || c.rounds > 100 {
		problems = append(problems, fmt.Errorf("rounds: %d is not allowed; allowed values: 1 to 100", c.rounds))
	}
	if c.orders < 100 || c.orders > 10_000_000 {
		problems = append(problems, fmt.Errorf("orders: %d is not allowed; allowed values: 100 to 10000000", c.orders))
	}
	return c, errors.Join(problems...)
}

// profiled is measure with a profile, if that is wanted.
func profiled(ctx context.Context, c config) (report bench.Report, err error) {
	if c.profile != "" {
		file, errCreate := os.Create(c.profile)
		if errCreate != nil {
			return report, errCreate
		}
		if errStart := pprof.StartCPUProfile(file); errStart != nil {
			return report, errors.Join(errStart, file.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, file.Close())
		}()
	}
	return measure(ctx, c)
}

func measure(ctx context.Context, c config) (report bench.Report, err error) {
	began := time.Now()
	e, err := openEnv(ctx, c, true)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	report = bench.Report{
		StartedAt: began.UTC(), Channels: c.messages, Rounds: c.rounds, Quick: c.quick,
		Machine: bench.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
	}
	if report.Postgres, err = e.describe(ctx); err != nil {
		return report, err
	}
	for _, m := range measurements() {
		if len(c.only) > 0 && !slices.Contains(c.only, m.name) {
			continue
		}
		result, start := bench.Result{Name: m.name, What: m.what}, time.Now()
		e.tell("%s: %s", m.name, m.what)
		if err := m.run(ctx, e, &result); err != nil {
			return report, fmt.Errorf("%s: %w", m.name, err)
		}
		result.Seconds = time.Since(start).Seconds()
		report.Results = append(report.Results, result)
	}
	report.Seconds = time.Since(began).Seconds()
	report.GoalsMet = len(report.Missed()) == 0
	return report, nil
}

func show(report bench.Report, c config, stdout io.Writer) error {
	if !c.json {
		return report.WriteTable(stdout)
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(report)
}

// Units, as internal/bench prints them.
const (
	unitSpeed = "messages/s"
	unitRatio = "ratio"
	unitMS    = "ms"
)

// figure adds one number to a result; goal is nil when there is none.
func figure(r *bench.Result, name, label string, value float64, unit string, goal *bench.Goal) {
	f := bench.Figure{Name: name, Label: label, Value: value, Unit: unit, Goal: goal}
	if goal != nil {
		met := value <= goal.Value
		if goal.Compare == ">=" {
			met = value >= goal.Value
		}
		f.Met = &met
	}
	r.Figures = append(r.Figures, f)
}

func atMost(v float64) *bench.Goal { return &bench.Goal{Compare: "<=", Value: v} }

func atLeast(v float64) *bench.Goal { return &bench.Goal{Compare: ">=", Value: v} }

// percentile is the smallest value that at least p per cent of the values do not
// exceed: nearest rank. NaN of nothing.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// inTurns runs two measurements as often as there are rounds, each first in turn, and
// returns what they came to and the ratio of each round.
func (c config) inTurns(a, b func() (float64, error), told func(round int, a, b, ratio float64)) (as, bs, ratios []float64, err error) {
	for round := range c.rounds {
		one, other := func() error {
			v, err := a()
			as = append(as, v)
			return err
		}, func() error {
			v, err := b()
			bs = append(bs, v)
			return err
		}
		if round%2 == 1 {
			one, other = other, one
		}
		if err := one(); err != nil {
			return nil, nil, nil, err
		}
		if err := other(); err != nil {
			return nil, nil, nil, err
		}
		ratios = append(ratios, as[round]/bs[round])
		told(round+1, as[round], bs[round], ratios[round])
	}
	return as, bs, ratios, nil
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
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

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/pgserver"
)

func main() {
	pgserver.Watchdog() // never returns in the private server's watchdog
	runAsChild()        // never returns in a runner process of the bench
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// config says what to measure and how large.
type config struct {
	databaseURL string   // server to use; empty: a private one
	dir         string   // where temporary directories are made; empty: os.TempDir()
	only        []string // the benchmarks to run; none: all that need not be named
	quick, json bool
	seed        bool   // fill the database and measure nothing
	svg         string // file to draw load to
	profile     string // file for a CPU profile
	progress    io.Writer

	channels, messages, rounds, enqueues, kills, orders, jobs, history int64
}

// size is a number that a flag gives.
type size struct {
	value                    *int64
	name                     string
	full, quick, least, most int64
	usage                    string
}

// sizes are the flags with numbers. 2,000 channels are the fewest with which every
// benchmark still does what it says: a hundred chunks of some keys, a kill in the middle.
func (c *config) sizes() []size {
	return []size{
		{&c.channels, "channels", 1_000_000, 50_000, 2000, 100_000_000, "generate `N` channels"},
		{&c.rounds, "rounds", 3, 1, 1, 10_000, "repeat what is compared `R` times, in turns"},
		{&c.enqueues, "enqueues", 200, 20, 1, 10_000, "time `N` jobs in latency, and messages in due"},
		{&c.kills, "kills", 5, 1, 1, 10_000, "kill `N` runners in takeover"},
		{&c.messages, "messages", 1_000_000, 5000, 1000, 100_000_000, "deliver `N` messages in each round of river, stock and carriers, as many in loss, twice as many in claims"},
		{&c.orders, "orders", 20_000, 500, 100, 10_000_000, "`N` transactions of each kind in orders"},
		{&c.jobs, "jobs", 1_000_000, 2000, 1000, 10_000_000, "look at `N` jobs in lists"},
		{&c.history, "history", 20_000_000, 20_000, 1000, 1_000_000_000, "and at `N` messages of theirs"},
	}
}

// benchmark is one measurement, which adds figures to a result.
type benchmark struct {
	name, what string
	run        func(ctx context.Context, e *env, r *result)
	named      bool // runs only when --only names it
	delivery   bool // has as many channels as there are messages, and a relay's garbage collector
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
		{name: "lists", what: "what operators look at, with a long history", run: lists, named: true},
		{name: "river", what: "messages delivered a second, against River", run: throughput, named: true, delivery: true},
		{name: "stock", what: "messages delivered a second on a stock server, against a tuned one", run: stock, named: true, delivery: true},
		{name: "claims", what: "claims at the beginning and at the end of two jobs", run: claims, named: true, delivery: true},
		{name: "orders", what: "an order with its message, against the order alone", run: orders, named: true, delivery: true},
		{name: "carriers", what: "messages delivered a second by each transport and by asynq", run: carriers, named: true, delivery: true},
		{name: "due", what: "from a message's due time to the provider's call, by each transport", run: due, named: true, delivery: true},
		{name: "loss", what: "a Redis carrier that forgets all it has, twice", run: loss, named: true, delivery: true},
	}
}

// names are what --only may name.
func names() (all []string) {
	for _, b := range benchmarks() {
		all = append(all, b.name)
	}
	return all
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\nRun `make bench ARGS=--help` for usage.\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.seed {
		if err := seedAt(ctx, c); err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			return 1
		}
		return 0
	}
	var r report
	err = c.profiled(func() (err error) {
		r, err = measure(ctx, c)
		return err
	})
	if err == nil {
		err = r.show(c.json, stdout)
	}
	if err == nil && c.svg != "" {
		err = toFile(c.svg, r.writeSVG)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the flags and returns every problem at once. --quick changes the sizes that
// no flag gives.
func parse(args []string, stderr io.Writer) (config, error) {
	c := config{progress: zerolog.SyncWriter(stderr)} // runners warn from goroutines of their own
	if c.seed = len(args) > 0 && args[0] == seedCommand; c.seed {
		args = args[1:]
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by the caller
	only := flags.String("only", "", "run only the `NAMES`, separated by commas: "+strings.Join(names(), ", "))
	flags.StringVar(&c.databaseURL, "database-url", os.Getenv("BELFRY_DATABASE_URL"),
		"measure on the server at `URL`, in databases made and dropped there (default: $BELFRY_DATABASE_URL, or else a private durable server)")
	flags.StringVar(&c.dir, "dir", "", "make the private server's temporary directory in `DIR`, on the disk to measure (default: the system's, see $TMPDIR)")
	flags.BoolVar(&c.quick, "quick", false, "small sizes: shows in seconds that everything works")
	flags.BoolVar(&c.json, "json", false, "results as JSON instead of a table")
	flags.StringVar(&c.svg, "svg", "", "draw the results of load to `FILE`")
	flags.StringVar(&c.profile, "cpuprofile", "", "write a pprof CPU profile of this process to `FILE`")
	for _, s := range c.sizes() {
		flags.Int64Var(s.value, s.name, s.full, s.usage)
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: make bench ARGS='[flags]', or bench-load, bench-relay, bench-carriers;\n"+
				"  make bench-seed ARGS='--database-url URL' fills an empty database with what lists looks at (--channels, --jobs, --history)")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var problems []error
	c.only = strings.FieldsFunc(*only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range c.only {
		if !slices.Contains(names(), name) {
			problems = append(problems, fmt.Errorf("only: there is no benchmark %q; allowed values: %s", name, strings.Join(names(), ", ")))
		}
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if c.seed {
		problems = append(problems, c.seedable(given)...)
	}
	for _, s := range c.sizes() {
		if c.quick && !given[s.name] {
			*s.value = s.quick
		}
		if *s.value < s.least || *s.value > s.most {
			problems = append(problems, fmt.Errorf("%s: %d is not allowed; allowed values: %d to %d", s.name, *s.value, s.least, s.most))
		}
	}
	return c, errors.Join(problems...)
}

// seedable is what is wrong with the flags of seed, which takes few of them.
func (c *config) seedable(given map[string]bool) (problems []error) {
	if c.databaseURL == "" {
		problems = append(problems, errors.New("database-url: is missing; allowed values: an empty database, which is filled and kept"))
	}
	takes := []string{"database-url", "quick", "channels", "jobs", "history"}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(takes, name) {
			problems = append(problems, fmt.Errorf("%s: seed measures nothing; allowed flags: %s", name, strings.Join(takes, ", ")))
		}
	}
	return problems
}

// profiled runs f, with a profile if that is wanted.
func (c config) profiled(f func() error) error {
	if c.profile == "" {
		return f()
	}
	return toFile(c.profile, func(w io.Writer) error {
		if err := pprof.StartCPUProfile(w); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return f()
	})
}

// toFile writes a file where the user wants it.
func toFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// measure runs the benchmarks that are wanted: those that walk in one database, those that
// deliver in another.
func measure(ctx context.Context, c config) (report, error) {
	on := machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	r := report{StartedAt: time.Now().UTC(), Machine: on, Rounds: c.rounds, Quick: c.quick}
	for _, delivery := range []bool{false, true} {
		wanted := slices.DeleteFunc(benchmarks(), func(b benchmark) bool {
			return b.delivery != delivery || !slices.Contains(c.only, b.name) && (len(c.only) > 0 || b.named)
		})
		if len(wanted) == 0 {
			continue
		}
		e := &env{config: c, failure: &failure{}, size: c.channels}
		if delivery {
			e.size = c.messages
		}
		if err := e.attempt(func() { e.measureAll(ctx, wanted, &r) }); err != nil {
			return r, err
		}
	}
	r.Seconds = time.Since(r.StartedAt).Seconds()
	r.GoalsMet = len(r.missed()) == 0
	return r, nil
}

const (
	// deadline bounds one benchmark, and making what all need, however large the sizes are.
	deadline = 30 * time.Minute
	// The garbage collector's target is what cmd/belfry sets for a relay where one is measured;
	// River gets the same.
	gcRelay = 400
)

func (e *env) measureAll(ctx context.Context, wanted []benchmark, r *report) {
	if wanted[0].delivery && os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcRelay))
	}
	r.Channels = max(r.Channels, e.size)
	defer e.close()
	e.open(ctx, true)
	p := &r.Postgres
	p.Private = e.databaseURL == ""
	e.look(ctx, e.pool, queries.serverDescribe, nil, &p.Version, &p.Fsync, &p.SynchronousCommit, &p.SharedBuffers, &p.MaxWALSize, &p.JIT)
	for _, b := range wanted {
		r.Results = append(r.Results, e.measure(ctx, b))
	}
}

// measure runs one benchmark. A figure that is no number means that nothing was measured.
func (e *env) measure(ctx context.Context, b benchmark) result {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	defer e.within(b.name)
	e.say("%s: %s", b.name, b.what)
	r := result{Name: b.name, What: b.what}
	began := time.Now()
	b.run(ctx, e, &r)
	r.Seconds = time.Since(began).Seconds()
	for _, f := range r.Figures {
		e.demand(!math.IsNaN(f.Value) && !math.IsInf(f.Value, 0), "figure %s is %v: nothing was measured", f.Name, f.Value)
	}
	return r
}

// Command belfry-bench measures belfry on a private durable PostgreSQL, or on a
// server given by URL, and judges the figures by the project's goals: see package
// internal/bench for what is measured and how, and docs/benchmarks.md for results.
//
// The results go to stdout, as a table or with --json as data; progress goes to
// stderr. Exit codes: 0 the benchmarks ran, whether or not they meet their goals;
// 1 an error; 2 wrong usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/pgserver"
)

func main() {
	pgserver.Watchdog() // never returns in the private server's watchdog
	bench.Child()       // never returns in a runner process of the bench
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags that are not the benchmarks' own.
type options struct {
	json       bool
	svg        string
	cpuProfile string
}

func run(args []string, stdout, stderr io.Writer) int {
	config, opts, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "belfry-bench: %v\nRun `belfry-bench --help` for usage.\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := measure(ctx, config, opts)
	if err == nil {
		err = show(report, opts, stdout)
	}
	if err == nil && opts.svg != "" {
		err = draw(report, opts.svg)
	}
	if err != nil {
		fmt.Fprintf(stderr, "belfry-bench: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the flags. --quick changes the sizes that no flag gives.
func parse(args []string, stderr io.Writer) (bench.Config, options, error) {
	flags := flag.NewFlagSet("belfry-bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by the caller
	full, fast := bench.DefaultConfig(), bench.QuickConfig()
	sizes := full
	var opts options
	only := flags.String("only", "", "run only the `NAMES`, separated by commas: "+strings.Join(bench.Names(), ", "))
	url := flags.String("database-url", os.Getenv("BELFRY_DATABASE_URL"),
		"measure on the server at `URL`, in a database made and dropped there (default: $BELFRY_DATABASE_URL, or else a private durable server)")
	dir := flags.String("dir", "", "make the private server's temporary directory in `DIR`, on the disk to measure (default: the system's, see $TMPDIR)")
	quick := flags.Bool("quick", false, "small sizes: shows in seconds that everything works")
	flags.BoolVar(&opts.json, "json", false, "results as JSON instead of a table")
	flags.StringVar(&opts.svg, "svg", "", "draw the results of load to `FILE`")
	flags.StringVar(&opts.cpuProfile, "cpuprofile", "", "write a pprof CPU profile of this process to `FILE`")
	flags.Int64Var(&sizes.Channels, "channels", full.Channels, "generate `N` channels")
	flags.IntVar(&sizes.Rounds, "rounds", full.Rounds, "repeat what is compared `R` times, interleaved")
	flags.IntVar(&sizes.Enqueues, "enqueues", full.Enqueues, "time `N` jobs in latency")
	flags.IntVar(&sizes.Kills, "kills", full.Kills, "kill `N` runners in takeover")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: belfry-bench [flags]   (make bench ARGS='…')")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return bench.Config{}, options{}, err
	}
	if flags.NArg() > 0 {
		return bench.Config{}, options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	config := full
	if *quick {
		config = fast
	}
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "channels":
			config.Channels = sizes.Channels
		case "rounds":
			config.Rounds = sizes.Rounds
		case "enqueues":
			config.Enqueues = sizes.Enqueues
		case "kills":
			config.Kills = sizes.Kills
		}
	})
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			config.Only = append(config.Only, strings.TrimSpace(name))
		}
	}
	config.DatabaseURL, config.Dir, config.Progress = *url, *dir, stderr
	return config, opts, config.Validate()
}

// measure runs the benchmarks, profiled if that is wanted.
func measure(ctx context.Context, config bench.Config, opts options) (report bench.Report, err error) {
	if opts.cpuProfile != "" {
		file, errCreate := os.Create(opts.cpuProfile)
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
	return bench.Run(ctx, config)
}

func show(report bench.Report, opts options, stdout io.Writer) error {
	if !opts.json {
		return report.WriteTable(stdout)
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(report)
}

func draw(report bench.Report, name string) (err error) {
	file, err := os.Create(name) //nolint:gosec // where the user wants it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.WriteSVG(file)
}

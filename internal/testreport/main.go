package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// stopDelay is what the command has, once interrupted, to end its tests and
// print what they said.
const stopDelay = 30 * time.Second

func main() {
	// An interrupt from the keyboard reaches the command as well, being in the
	// same process group; this process stays to report what had been run.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Getenv("CI") == "true", os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is main without the process: it returns the exit status, 0 if all
// passed, 1 if not, 2 for wrong usage.
func run(ctx context.Context, args []string, ci bool, stdin io.Reader, stdout, stderr io.Writer) int {
	r := newReport(stdout)
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("skip", "name of a `part` of the suite that the caller leaves out (repeatable)", func(part string) error {
		if part == "" {
			return errors.New("is empty: name the part")
		}
		r.skip(part)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2
	}

	err := follow(ctx, r, flags.Args(), stdin, stderr)
	r.end()
	if err != nil && len(r.failures) == 0 {
		r.failures = append(r.failures, err.Error())
	}
	r.summarise()
	if err == nil {
		err = r.err
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && len(r.failures) > 0:
		return 1 // the failures above are why
	case err != nil:
		fmt.Fprintf(stderr, "testreport: %v\n", err)
		return 1
	case len(r.failures) > 0:
		return 1
	case ci && len(r.skips) > 0:
		fmt.Fprintf(stderr, "testreport: %d skipped, and CI=true: CI runs everything\n", len(r.skips))
		return 1
	}
	return 0
}

// follow reads the events of the command, or of stdin if there is none.
func follow(ctx context.Context, r *report, command []string, stdin io.Reader, stderr io.Writer) error {
	if len(command) == 0 {
		return r.read(stdin)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopDelay
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	readErr := r.read(events)
	if readErr != nil {
		// Nobody reads on; let the command end instead of waiting for it to fill the pipe.
		readErr = errors.Join(readErr, events.Close())
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(readErr, fmt.Errorf("run %s: %w", command[0], err))
	}
	return readErr
}

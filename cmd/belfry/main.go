package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"
	_ "time/tzdata" // schedules have time zones, and not every machine has their data

	"github.com/belfryhq/belfry/internal/pgserver"
)

// gcPercent is the garbage collector's target unless GOGC says otherwise. A runner
// holds one chunk and makes little garbage; half of Go's default lowers its peak by
// some MiB, flat over the size of a job, and costs no time that could be measured
// (make bench, memory and walk).
const gcPercent = 50

func main() {
	pgserver.Watchdog() // never returns in the private server's watchdog
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	a := &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), now: time.Now}
	os.Exit(int(a.execute(context.Background(), os.Args[1:])))
}

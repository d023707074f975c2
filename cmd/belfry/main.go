package main

import (
	"context"
	"io"
	"log" //nolint:depguard // it is silenced
	"os"
	"runtime/debug"
	_ "time/tzdata" // schedules have time zones, and not every machine has their data

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // nor the certificates of authorities

	"github.com/belfryhq/belfry/internal/pgserver"
)

// The garbage collector's targets, unless GOGC says otherwise.
const (
	// gcRunner: a runner holds one chunk and makes little garbage; half of Go's default
	// lowers its peak by some MiB, flat over the size of a job, and costs no time that
	// could be measured (make bench, memory and walk).
	gcRunner = 50
	// gcRelay: a relay makes some KiB of garbage a message and holds a few MiB. Seldom
	// collected, it takes up to a fifth less CPU a message, for some 20 MiB more.
	gcRelay = 400
)

// collect sets the garbage collector's target.
func collect(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

func main() {
	logging.Disable()         // of go-redis: belfry reports the errors of Redis itself
	log.SetOutput(io.Discard) // of net/http: its lines contain providers' answers
	pgserver.Watchdog()       // never returns in the private server's watchdog
	collect(gcRunner)
	a := newApp(os.Stdout, os.Stderr, os.Environ())
	os.Exit(int(a.execute(context.Background(), os.Args[1:])))
}

package main

import (
	"context"
	"os"
	"time"

	"github.com/belfryhq/belfry/internal/pgserver"
)

func main() {
	pgserver.Watchdog() // never returns in the private server's watchdog
	a := &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), now: time.Now}
	os.Exit(int(a.execute(context.Background(), os.Args[1:])))
}

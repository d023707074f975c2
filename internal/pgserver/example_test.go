package pgserver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// The first call of main (of TestMain, here) is pgserver.Watchdog.
func ExampleOpen() {
	dir, err := os.MkdirTemp("/tmp", "belfry-example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// When root, the server runs as another account, which has to get there.
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}

	ctx := context.Background()
	server, err := pgserver.Open(ctx, pgserver.Config{DataDir: filepath.Join(dir, "data")})
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := server.Close(ctx); err != nil {
			panic(err)
		}
	}()
	if err := server.EnsureDatabase(ctx, "belfry"); err != nil {
		panic(err)
	}
	conn, err := pgx.Connect(ctx, server.DSN("belfry"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var fsync string
	if err := conn.QueryRow(ctx, "SHOW fsync").Scan(&fsync); err != nil {
		panic(err)
	}
	fmt.Println("fsync is", fsync)
	// Output: fsync is on
}

func ExampleFind() {
	install, err := pgserver.Find(context.Background())
	if err != nil {
		fmt.Println(err) // says what to do
		return
	}
	fmt.Println("new enough:", install.Major >= pgserver.MinMajor)
	// Output: new enough: true
}

package importing_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/importing"
)

//nolint:testableexamples // needs a database
func ExampleImport() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("BELFRY_DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := channels.New(channels.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := importing.Import(ctx, store, pool, os.Stdin, importing.Options{Rejects: os.Stderr})
	fmt.Printf("%+v %v\n", result, err)
}

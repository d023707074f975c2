package db_test

import (
	"fmt"
	"testing/fstest"

	"github.com/belfryhq/belfry/internal/db"
)

func ExampleMustQueries() {
	// In a package the files come from //go:embed *.sql.
	queries := db.MustQueries[struct{ jobCount string }](fstest.MapFS{"queries.sql": {Data: []byte(`
-- name: JobCount :one
-- Counts the jobs of one lane.
--   @lane  the lane
SELECT count(*) FROM belfry.jobs WHERE lane = @lane;
`)}})
	fmt.Println(queries.jobCount)
	// Output:
	// SELECT count(*) FROM belfry.jobs WHERE lane = @lane
}

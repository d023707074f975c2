package sqlfile_test

import (
	"fmt"
	"testing/fstest"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

func ExampleMust() {
	// In a package the files come from //go:embed *.sql.
	queries := sqlfile.Must[struct{ jobCount string }](fstest.MapFS{"queries.sql": {Data: []byte(`
-- name: JobCount :one
-- Counts the jobs of one lane.
--   @lane  the lane
SELECT count(*) FROM belfry.jobs WHERE lane = @lane;
`)}})
	fmt.Println(queries.jobCount)
	// Output:
	// SELECT count(*) FROM belfry.jobs WHERE lane = @lane
}

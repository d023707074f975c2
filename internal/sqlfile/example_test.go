package sqlfile_test

import (
	"fmt"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

func ExampleMustParse() {
	// In a package the text comes from //go:embed queries.sql.
	queries := sqlfile.MustParse(`
-- name: JobCount :one
-- Counts the jobs of one lane.
--   @lane  the lane
SELECT count(*) FROM belfry.jobs WHERE lane = @lane;
`)
	fmt.Println(queries.SQL("JobCount"))
	fmt.Println(queries.Get("JobCount").Doc)
	// Output:
	// SELECT count(*) FROM belfry.jobs WHERE lane = @lane
	// Counts the jobs of one lane.
	//   @lane  the lane
}

func ExampleParse() {
	_, err := sqlfile.Parse("queries.sql", "-- name: JobCount :one\nSELECT count(*) FROM belfry.jobs")
	fmt.Println(err)
	// Output:
	// sqlfile: malformed file: queries.sql:1: JobCount has no comment under its header; say its purpose, its parameters and what no row means
}

package jobs

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet contains the statements of queries.sql.
type querySet struct {
	activeJobs, newestEvents string
}

package compose

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet contains the statements of the .sql files.
type querySet struct {
	contents, values, previewCategory, lastFailures, capCounts string
}

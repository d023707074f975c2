package accounts

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct {
	messageSlice, skipsOf, valuesOf, jobLeft, reportPage, historyRows, historyActivities string
}

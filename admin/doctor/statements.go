package doctor

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct {
	healthRead, doctorServer, doctorSecured, doctorCreators, doctorPrivileges, doctorWrites,
	doctorStale, doctorOverdue, doctorStatistics, doctorUnsent, doctorQueued, doctorNames, doctorNotifications, doctorPartitions string
}

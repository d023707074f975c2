package recipients

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	// forget.sql
	forgetHold, forgetMessages, forgetNotifications, forgetActivities, forgetDelivered, forgetErased,
	forgetListed, forgetEvents, forgetActor, forgetRunning, forgetWriters, forgetRecord, forgetRecordMore string

	// queries.sql
	segmentUsers string
}

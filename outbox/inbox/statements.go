package inbox

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	inboxPage, inboxCounts, inboxSeen, inboxRead, inboxReadAll, inboxArchive, inboxPreferences, inboxPrefer, channelID string
}

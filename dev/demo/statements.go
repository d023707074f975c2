package demo

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	databaseExists, databaseCreate, stageLock, stageContent, stageForeignJobs, stageClear,
	serverVersion, enqueue, unlimit, abort, resume, jobSnapshot,
	runSessions, routes, messagesCount, allDelivered, deliveryAccount, verify,
	serveSchedules, serveCampaign, serveHistory, serveEnqueue, serveAbort, serveCorrect string
}

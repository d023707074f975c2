// Package retention deletes rows that are older than a configured age.
//
// A prune deletes messages, activities, notifications, jobs, events and samples, in this order and in short
// transactions. A job with a deleted row has jobs.retention_at set, and can neither be resumed nor retried.
// Messages that may still be sent are not deleted, except the held messages of a job that was aborted long
// enough ago.
//
// `belfry prune` and every daemon call [Prune]; both may run at the same time. A walk through the notifications
// is recorded in belfry.retention_walks, so that another process continues it after a kill. A partition of notifications
// of which nothing is young enough is dropped, without a walk.
package retention

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct {
	notificationsDrop, retentionWalk, retentionWalkExists, retentionWalkBegin, notificationPrune,
	retentionWalkMove, retentionWalkEnd, jobsMarkPruned, jobsWithOldMessages,
	jobHoldForRetention, jobMarkRetention, messagePrune, messagesPrunable, activityPrune,
	activitiesPrunable, notificationsPrunable, jobsPrunable, jobSkipsPrune, jobValuesPrune, jobAttemptsPrune, jobEventsPrune,
	jobPrune, eventsPrune, eventsPrunable, samplesPrune, samplesPrunable, retentionRecord, retentionRecordMore string
}

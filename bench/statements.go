package main

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	serverDescribe, databaseCreate, databaseDrop, databaseUsed, serverCheckpoint, channelsVacuum,
	channelsActive, channelSample, outboxEmpty, jobsEmpty, rowCount, notificationInsertAll,
	messageInsertAll, notificationInsertOne, notificationInsertOffset, relationCreate,
	relationFill, platformRare, backendsOf, pgbenchAtWork, pgbenchVacuum, messagesVacuum,
	messagesSent, messagesUnqueued, snapshotTake, riverVacuum, riverEmpty, riverCompleted, ordersCreate,
	orderInsert, activityInsert, activityInsertLater, orderAndActivityInsert, seedBegin, seedLanes, seedJobs, seedEvents, seedActs,
	seedDeliveries, seedMessages, seedAttempts, seedVacuum string
}

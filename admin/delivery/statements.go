package delivery

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	// adopt.sql
	installationAdopt, backlogAges, backlogOther string

	// carrieract.sql
	queueStates, queuesRebuild, transportRecord, transportRecordMore string

	// dead.sql
	deadList, deadErrors, deadStep, deadRedrive, deadDiscard, deadUndeliver, deadRecord, deadRecordMore,
	messageShow, attemptList, deadSubjectExists string

	// queries.sql
	messagesRing, operatorAct, recallRecord, recallCount, recallHolders, messageRecall, notificationRecall,
	deliveryCounts, messagesWaiting, messagesWaitingFor, lanePaused, notificationSlice, unsentJobs, unsentAhead string

	// senders.sql
	senderStates, relayStates, senderSet, senderPause, senderResume string
}

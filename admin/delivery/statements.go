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

	// forget.sql
	forgetMessages, forgetNotifications, forgetActivities, forgetDelivered, forgetErased,
	forgetListed, forgetListing, forgetRunning, forgetRecord, forgetRecordMore string

	// queries.sql
	messagesRing, operatorAct, recallRecord, recallCount, messageRecall, notificationRecall,
	deliveryCounts, lanePaused, notificationSlice, unsentJobs, unsentAhead string

	// retention.sql
	retentionWalk, retentionWalkExists, retentionWalkBegin, notificationPrune,
	retentionWalkMove, retentionWalkEnd, jobsMarkPruned, jobsWithOldMessages,
	jobHoldForRetention, jobMarkRetention, messagePrune, messagesPrunable, activityPrune,
	activitiesPrunable, notificationsPrunable, jobsPrunable, jobSkipsPrune, jobEventsPrune,
	jobPrune, eventsPrune, eventsPrunable, retentionRecord, retentionRecordMore string

	// senders.sql
	senderStates, relayStates, senderSet, senderPause, senderResume string
}

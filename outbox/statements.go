package outbox

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	// carrier.sql
	queueLead, queueLeave, queueRenew, messageQueue, activityQueue, pushKeys, copiesClaim, copiesSure,
	messagesUnqueue, messagesUnserved, pushesForget string

	// installation.sql
	installationRead string

	// ledger.sql
	ledgerBegin, candidateList, messageClaim, activityClaim, handoverRecord, messageLook,
	messagesSent, messagesSettle, deliveriesSettled, leasesEnd, leasesOf, leaseRenew, leasesLost,
	leaseMessages, leaseExpire, leaseLock, leaseMessagesLock, leaseLeft, handoversSweep,
	receiptsDue, jobWaiting, jobAbort, jobSample, jobResumed, jobLockUndelivered, jobMarkDelivered, relayBeat, relayLeave,
	messagesNext, installationID string

	// queries.sql
	notificationCopy, messageCopy, deliveriesAdd, jobProgress, chunkDue, activityTest, activityTold, activityUnapproved,
	activityGet, activitySend string
}

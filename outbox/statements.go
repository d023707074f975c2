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
	queueLead, queueLeave, queueRenew, messageQueue, activityQueue, pushKeys, copiesTake, copiesClaim, copiesSure,
	messagesUnqueue, messagesUnserved, pushesForget string

	// installation.sql
	installationRead string

	// ledger.sql
	ledgerBegin, candidateList, claimsBegin, claimsHold, messageTake, messageClaim, activityClaim, handoverRecord, messageRecheck,
	messagesSent, messagesSettle, deliveriesSettled, leasesEnd, leasesOf, leaseRenew, leasesLost,
	leaseMessages, leaseExpire, leaseLock, leaseMessagesLock, leaseLeft, handoversDeleteOrphans,
	receiptsDue, jobWaiting, jobAbort, jobSample, jobWalk, jobLockUndelivered, jobMarkDelivered, relayHeartbeat, relayLeave,
	messagesNext, jobsDue, installationID string

	// queries.sql
	notificationCopy, notificationCopyLate, messageCopy, messageCopyBehind, claimsOwn, deliveriesAdd, jobProgress, chunkDue,
	activityTest, activityRecord, activityUnapproved, activityGet, activitySend, channelsWithValue string
}

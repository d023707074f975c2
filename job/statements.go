package job

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	jobEnqueue, jobEnqueueGroup, jobGet, jobGetAll, jobSpan, jobsLooked, jobsAwaiting, jobEvents, jobEventLast, jobsLock, jobsLockFree,
	jobGroup, jobAbort, jobResume, jobRetry, jobRetrySkipped, jobActsFor, jobApprove, jobSet, jobResumeEdited, jobsNotResumable, jobHasCeiling,
	jobSkips, jobRevisions,
	laneList, lanesPaused, lanePause, laneResume, eventList, actsSince, jobActs, otherActs, typesRegister, jobClaim, jobResumeDead,
	jobGiveUp, jobRelease, jobExpire, jobsLimited, actAs, runTerminateOldBackends, jobsHeld, runBegin,
	runFreeze, chunkCommit, probeConstraints, skipAdd, skipNext, skipRemove, skipKeep,
	runBook, runHold, runHeartbeat, runAbort, runExceeds, runFinish, runFail, runHandBack, tableBound,
	tablePage, jobsSnapshot, halt, unhalt, haltGet, rowHolders, limitsGet, limitsSet, groupsFirst, serverClock, txClock string
}

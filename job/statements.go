package job

import (
	"embed"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = sqlfile.Must[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	jobEnqueue, jobEnqueueGroup, jobGet, jobList, jobEvents, jobLock, jobGroupIDs, jobAbort,
	jobResume, jobRetry, jobRetrySkipped, jobSet, jobResumeEdited, jobSkips, jobRevisions,
	laneList, lanePause, laneResume, eventList, typeRegister, jobClaim, jobResumeDead,
	jobGiveUp, jobRelease, jobsOrphaned, jobExpire, actAs, runEvict, jobsHeld, runBegin,
	runFreeze, chunkCommit, probeConstraints, skipAdd, skipNext, skipRemove, skipKeep,
	runBook, runHold, runBeat, runAbort, runFinish, runFail, runHandBack, tableBound,
	tablePage, jobsLook, healthProbe string
}

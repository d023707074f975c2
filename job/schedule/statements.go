package schedule

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	actorSet, scheduleList, scheduleGet, schedulePut, scheduleRemove, schedulePause,
	scheduleResume, schedulesDue, schedulesNext, scheduleLock,
	scheduleLockNow, scheduleArm, scheduleSkip, scheduleFired, scheduleRan, scheduleFailed,
	txNow, queryWho, queryRole, queryGuard, queryBegin, queryGuarded, queryPlan, queryRows string
	queryTrusted, queryValues, valuesBegin string
}

package admin

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	tokenCreate, tokenList, tokenRevoke, tokenFind, tokenUse, jobsToRadius                       string
	requestForget, requestBegin, requestRead, requestAnswer, requestGiveBack                     string
	statusRead, healthRead, segmentUsers, eventNewest, jobsUnderWay, schemaExists, schemaVersion string
	doctorServer, doctorSecured, doctorPrivileges, doctorWrites, doctorStale                     string
	doctorOverdue, doctorAwaiting, doctorStatistics, doctorUnsent, doctorNames                   string

	userCreate, userList, userChange, userRemove, userPassword, userLink, userSignedIn, userLockedOut, userKnownFrom            string
	sessionOpen, sessionExchange, sessionPrune, sessionFind, sessionsLook, sessionUse, sessionClose, sessionList, sessionRevoke string
	signInOnce, userMeet, userRole, sessionAdmit, userOfIdentity, sessionDismiss                                                string
}

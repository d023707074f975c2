package access

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct {
	tokenCreate, tokenList, tokenRevoke, tokenFind, tokenUse, userCreate, userList,
	userChange, userRemove, userPassword, userLink, userSignedIn, userLockedOut, userKnownFrom,
	sessionOpen, sessionExchange, signInOnce, userMeet, userRole, sessionAdmit, userOfIdentity,
	sessionDismiss, sessionPrune, sessionFind, sessionsPeek, sessionUse, sessionClose, sessionList,
	sessionRevoke string
}

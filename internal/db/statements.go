package db

import "embed"

//go:embed *.sql
var sqlFiles embed.FS

var queries = MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	backendPID, probe, forgetPlans, txBegin, versionLock, versionUnlock, lockHolders, tableHolders, rowWriters, schemaExists, schemaVersion, schemaUsableFrom string

	session, sessionEnd, sessionUnlock string
}

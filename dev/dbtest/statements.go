package dbtest

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	templateLock, templateUnlock, templateFind, leftoverList, cloneAdopt, visiblePages,
	cloneBorn, cloneRestorer, cloneTidy, cloneUse, sessionRestore, replica string
}

package lifecycle

import (
	"embed"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

//go:embed *.sql
var sqlFiles embed.FS

var queries = sqlfile.Must[querySet](sqlFiles)

// querySet has the statements of the .sql files.
type querySet struct {
	listen, echo, nameTake, nameHolder, namesBeat, nameRefused, namesRelease string
}

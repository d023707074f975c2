// Package governor decides the size of a run's next chunk and the pause before it.
//
// [Governor] is a state machine without I/O: the caller reports each chunk and each probe of the server, and
// passes the time. [Probe] reads the server's vitals. Configured limits, the vitals and the durations of the
// run's own chunks throttle a run; the strictest applies.
package governor

import (
	"embed"

	"github.com/belfryhq/belfry/internal/db"
)

//go:embed queries.sql
var sqlFiles embed.FS

var queries = db.MustQueries[querySet](sqlFiles)

// querySet has the statements of queries.sql.
type querySet struct{ healthProbe string }

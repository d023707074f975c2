package outbox

import "github.com/belfryhq/belfry/internal/db"

// Statement is a statement of the package's, for tests that EXPLAIN it.
func Statement(name string) string { return db.QueriesByName(queries)[name] }

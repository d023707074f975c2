package job

import "github.com/belfryhq/belfry/internal/sqlfile"

// Statement is a statement of queries.sql, for tests that EXPLAIN it.
func Statement(name string) string { return sqlfile.ByName(queries)[name] }

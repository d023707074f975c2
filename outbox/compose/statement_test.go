package compose

// Statement is a statement of queries.sql, for tests that EXPLAIN it.
func Statement(name string) string { return queries.Get(name).SQL }

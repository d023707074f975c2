// Package db extends pgx with transactions that do not depend on the role's defaults (InTx), a savepoint for
// statements that execute code of other roles (Foreign), classes of errors (ClassOf), connection pools that also
// work through a pooler (Open), and statements in .sql files as fields of a package's queries (MustQueries).
//
// pgx prepares each statement once on each connection, under a name made from its text. A pooler in
// transaction mode gives each transaction any free server connection. Unless it carries prepared statements
// (PgBouncer 1.21 with max_prepared_statements), a name is then unknown on execution (SQLSTATE 26000), or
// exists already on preparation, because another process has the same statements (42P05).
//
// A pool of Open therefore prepares statements only if that works:
//
//	first connection ── the server's process number is not the one it was told: a pooler
//	                       │
//	                       ▼
//	                 prepare on two connections, use over several transactions
//	                       │ lost, or not found out       │ kept
//	                       ▼                              ▼
//	                 QueryExecModeCacheDescribe ◄──── the first 42P05 or 26000
//
// In that mode statements are unnamed and parsed at each execution, and parameters and results have the same
// types and formats as before. The change is logged once and applies to the whole pool: older connections
// are replaced before their next use. A statement that failed in this way was not executed, and a retry
// succeeds.
//
// pgx sends the server a cancel request when the context of a statement ends. Behind a pooler the pool sends
// no cancel request and only closes the connection, because the request can crash PgBouncer 1.18 to 1.20
// with all its connections (its issue 822). The statement ends at its statement_timeout at the latest.
package db

// Package db is what belfry knows of PostgreSQL beyond pgx: how a transaction is begun
// whatever the role's defaults (InTx), what an error means (ClassOf), connection pools
// that also work through a pooler (Open), and how the statements that stand in .sql files
// become fields of a package's queries (MustQueries).
//
// pgx prepares each statement once on each connection, under a name made from its text.
// A pooler in transaction mode gives each transaction whatever server connection is free.
// Unless it carries prepared statements (PgBouncer 1.21 with max_prepared_statements), a
// name is then unknown where it is used (SQLSTATE 26000), or taken where it is to be
// prepared, because another process has the same statements (42P05).
//
// A pool of Open therefore prepares only where that works:
//
//	first connection ── the server's process number is not the one it was told: a pooler
//	                       │
//	                       ▼
//	                 prepare on two connections, use over several transactions
//	                       │ lost                         │ kept, or nothing found out
//	                       ▼                              ▼
//	                 QueryExecModeCacheDescribe ◄──── the first 42P05 or 26000
//
// In that mode statements are unnamed and parsed at each execution, and parameters and
// results have the same types and formats as before. The change is logged once. It counts
// for the whole pool: a connection that was opened before is replaced before its next use.
// Nothing was executed by a statement that failed so; whoever tries again later succeeds.
//
// pgx sends the server a cancel request when the context of a statement ends. A pool that
// has found a pooler leaves that out and only closes the connection: PgBouncer 1.18 to 1.20
// may end with the request, and everybody's connections with it (its issue 822). The
// statement ends by its own statement_timeout at the latest.
package db

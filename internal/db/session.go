package db

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Setting is a session setting that changes the meaning of statements, with the value that belfry's
// statements require.
type Setting struct {
	Name, Value string
	// Transaction sets it in every transaction of this package, also on the program's own pools.
	Transaction bool
	// Pooled also sets it behind a pooler, whose server connections other programs share. Otherwise only
	// belfry's own sessions set it.
	Pooled bool
	// Foreign rejects a pool of the program whose sessions have another value, because some statements run
	// outside the transactions of this package.
	Foreign bool
}

// Settings returns all pinned settings. Other settings that change the meaning of statements are handled
// elsewhere:
//   - client_encoding is requested when a connection begins; server_encoding, session_replication_role
//     and a search_path with pg_catalog behind another schema are refused (node.UnfitError).
//   - statement_timeout, lock_timeout, idle_in_transaction_session_timeout, synchronous_commit,
//     plan_cache_mode and jit are set in each transaction, by its purpose (TxBegin, RunBegin, the
//     ledger's).
//   - isolation, access mode and deferrability are in BEGIN.
//   - search_path is set in each transaction, except for statements that users write (Options.Path).
//   - TimeZone and lc_* are left to the queries that operators write; belfry's own
//     statements name zones. check_function_bodies, xmloption and
//     default_text_search_config change nothing that belfry uses.
func Settings() []Setting {
	return []Setting{
		// A statement fails if a policy hides rows from it.
		{"row_security", "off", true, false, false},
		// They change the parsing of SQL, including functions and EXECUTE.
		{"standard_conforming_strings", "on", true, true, true},
		{"backslash_quote", "safe_encoding", true, true, false},
		{"array_nulls", "on", true, true, true},
		{"transform_null_equals", "off", true, true, true},
		// They change the text form of names and values.
		{"quote_all_identifiers", "off", true, true, true},
		{"datestyle", "ISO, MDY", true, true, false},
		{"intervalstyle", "postgres", true, true, false},
		{"extra_float_digits", "1", true, true, false},
		{"bytea_output", "hex", true, true, false},
		// It truncates the result of a GIN index.
		{"gin_fuzzy_search_limit", "0", true, true, false},
		// They end long transactions and idle connections.
		{"transaction_timeout", "0", false, true, true}, // PostgreSQL 17
		{"idle_session_timeout", "0", false, false, false},
		// For statements without BEGIN.
		{"default_transaction_isolation", "read committed", false, false, true},
		{"default_transaction_deferrable", "off", false, false, true},
		{"default_transaction_read_only", "off", false, false, true},
	}
}

// pins returns the SET LOCAL statements that follow BEGIN in the same message.
func pins(policies, path bool) string {
	var b strings.Builder
	if !path {
		b.WriteString("; SET LOCAL search_path = pg_catalog, pg_temp")
	}
	for _, s := range Settings() {
		if !s.Transaction {
			continue
		}
		if s.Name == "row_security" && policies {
			s.Value = "on"
		}
		//sql:allow one list for transactions and sessions
		b.WriteString("; SET LOCAL " + s.Name + " = '" + s.Value + "'")
	}
	return b.String()
}

var (
	// ErrRowSecurity reports that a policy would hide rows of a table. The server's error names the table.
	ErrRowSecurity = errors.New(
		"row-level security hides rows from this role, which belfry does not accept: ALTER ROLE … BYPASSRLS, or drop the " +
			"policy (`belfry channels check` and `belfry doctor` name it)")
	// ErrStatementPooling reports a pooler that belfry cannot work through.
	ErrStatementPooling = errors.New("the pooler is in statement mode, and belfry needs transaction or session mode (PgBouncer: pool_mode)")
)

// HidesRows reports whether the server rejected a statement because a policy hides rows.
func HidesRows(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Routine == "check_enable_rls"
}

// statementPooling reports whether err is PgBouncer's response to BEGIN in statement mode. All errors of
// PgBouncer have one code, and their texts are not translated.
func statementPooling(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "statement pooling")
}

package db

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Setting is a setting of a session that changes what a statement means, and the value that
// belfry's statements are written for.
type Setting struct {
	Name, Value string
	// Transaction has every transaction of this package set it, whoever opened the connection.
	Transaction bool
	// Pooled has a session set it behind a pooler too, whose server connections other programs
	// use as well. Without it only a session of belfry's own is set.
	Pooled bool
	// Foreign refuses a pool of the program's whose sessions have another value: some
	// statements are in no transaction of this package.
	Foreign bool
}

// Settings returns every setting that is pinned. Of the others that change what a statement
// means, these are treated elsewhere:
//   - client_encoding is asked for when a connection begins; server_encoding, session_replication_role
//     and a search_path with pg_catalog behind another schema are refused (node.UnfitError).
//   - statement_timeout, lock_timeout, idle_in_transaction_session_timeout, synchronous_commit,
//     plan_cache_mode and jit are set in each transaction, by its purpose (TxBegin, RunBegin, the
//     ledger's).
//   - isolation, access mode and deferrability are in BEGIN.
//   - TimeZone, search_path and lc_* are left to the queries that operators write; belfry's own
//     statements name schemas and zones. check_function_bodies, xmloption and
//     default_text_search_config change nothing that belfry uses.
func Settings() []Setting {
	return []Setting{
		// A row that a policy hides is not a row that does not exist: the statement fails.
		{"row_security", "off", true, false, false},
		// They change how SQL is read, that of functions and of EXECUTE too.
		{"standard_conforming_strings", "on", true, true, true},
		{"backslash_quote", "safe_encoding", true, true, false},
		{"array_nulls", "on", true, true, true},
		{"transform_null_equals", "off", true, true, true},
		// They change the text of names and values.
		{"quote_all_identifiers", "off", true, true, true},
		{"datestyle", "ISO, MDY", true, true, false},
		{"intervalstyle", "postgres", true, true, false},
		{"extra_float_digits", "1", true, true, false},
		{"bytea_output", "hex", true, true, false},
		// It leaves rows out of what a GIN index finds.
		{"gin_fuzzy_search_limit", "0", true, true, false},
		// They end what takes long, and a connection that rests.
		{"transaction_timeout", "0", false, true, true}, // PostgreSQL 17
		{"idle_session_timeout", "0", false, false, false},
		// For statements without BEGIN.
		{"default_transaction_isolation", "read committed", false, false, true},
		{"default_transaction_deferrable", "off", false, false, true},
		{"default_transaction_read_only", "off", false, false, true},
	}
}

// pins is what follows BEGIN, in the same message.
func pins(policies bool) string {
	var b strings.Builder
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
	// ErrRowSecurity reports that a policy would hide rows of a table, which the server's error
	// names.
	ErrRowSecurity = errors.New("row-level security hides rows from this role, and belfry does not take them for missing: ALTER ROLE … BYPASSRLS, or drop the policy (`belfry channels check` and `belfry doctor` name it)")
	// ErrStatementPooling reports a pooler that belfry cannot work through.
	ErrStatementPooling = errors.New("the pooler is in statement mode, and belfry needs transaction or session mode (PgBouncer: pool_mode)")
)

// HidesRows reports whether err is the server's refusal to leave out rows that a policy hides.
func HidesRows(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Routine == "check_enable_rls"
}

// statementPooling reports whether err is PgBouncer's answer to BEGIN in statement mode. Its code
// is that of every error of PgBouncer, and its texts are not translated.
func statementPooling(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "statement pooling")
}

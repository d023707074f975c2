package migrations

import (
	"regexp"
	"strings"
)

// Work is the work during which a migration holds a lock.
type Work string

// The kinds of work. A scan reads the whole table, and a rewrite writes it and its indexes again, so that both
// take the longer the larger the table is.
const (
	Instant Work = "instant"
	Scan    Work = "scan"
	Rewrite Work = "rewrite"
)

// Lock is a lock that a migration takes on a table or view of an earlier migration, or the strongest of several.
// ACCESS SHARE and ROW SHARE are none. The header of the migration declares each:
//
//	-- Locks: belfry.jobs SHARE ROW EXCLUSIVE (instant)
type Lock struct {
	Table string // such as belfry.jobs; a partitioned table stands for its partitions
	Mode  string // of PostgreSQL, such as SHARE ROW EXCLUSIVE
	Work  Work
}

// lockBlocks are the modes, from the weakest, and the statements that wait for a lock of each mode.
var lockBlocks = []struct{ mode, blocks string }{
	{"ROW EXCLUSIVE", "changes of the same rows"},
	{"SHARE UPDATE EXCLUSIVE", "vacuum and migrations"},
	{"SHARE", "writes"},
	{"SHARE ROW EXCLUSIVE", "writes"},
	{"EXCLUSIVE", "writes"},
	{"ACCESS EXCLUSIVE", "reads and writes"},
}

// blocks returns the statements that wait for a lock of a mode.
func blocks(mode string) string {
	for _, l := range lockBlocks {
		if l.mode == mode {
			return l.blocks
		}
	}
	return ""
}

// declared is the form of a declaration of a lock, in a line of its own.
var declared = regexp.MustCompile(`(?m)^-- Locks: (belfry\.[a-z_]+) ([A-Z ]+) \((instant|scan|rewrite)\)$`)

// locksOf returns the locks that the text of a migration declares.
func locksOf(text string) (list []Lock) {
	for _, m := range declared.FindAllStringSubmatch(text, -1) {
		list = append(list, Lock{m[1], m[2], Work(m[3])})
	}
	return list
}

// statementsOf returns the statements of a migration without a transaction, or none for other migrations. Such a
// migration has only statements DROP INDEX CONCURRENTLY IF EXISTS and CREATE INDEX CONCURRENTLY, so that it can
// be repeated after an interrupted attempt, which leaves an invalid index.
func statementsOf(text string) (list []string) {
	var code []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			code = append(code, line)
		}
	}
	for _, statement := range strings.Split(strings.Join(code, ""), ";\n") {
		statement = strings.TrimSpace(statement)
		switch {
		case statement == "":
		case strings.HasPrefix(statement, "DROP INDEX CONCURRENTLY IF EXISTS "), strings.HasPrefix(statement, "CREATE INDEX CONCURRENTLY "),
			strings.HasPrefix(statement, "CREATE UNIQUE INDEX CONCURRENTLY "):
			list = append(list, statement)
		default:
			return nil
		}
	}
	return list
}

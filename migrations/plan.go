package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

// The assumed rates of bytes per second, of ordinary disks. A rewrite also writes the write-ahead log and builds the
// indexes again.
const (
	scanRate    = 100 << 20
	rewriteRate = 20 << 20
)

// Planned is a pending migration and a lock that it takes on an existing table. A migration with several locks is
// listed once for each, and a migration that locks no existing table once without a table.
type Planned struct {
	Version int64  `json:"version"`
	Title   string `json:"title"`
	Table   string `json:"table"`
	Lock    string `json:"lock"`   // the mode, such as ACCESS EXCLUSIVE
	Blocks  string `json:"blocks"` // the statements that wait for the lock
	Work    Work   `json:"work"`
	// Rows is PostgreSQL's estimate. Bytes includes the indexes if the migration rewrites them.
	Rows  *int64 `json:"rows"` // nil if it is unknown
	Bytes *int64 `json:"bytes"`
	// ExpectedSeconds is the time for which the lock is held once it is granted, at 100 MB per second for a scan
	// and 20 MB per second for a rewrite. Zero means less than a second.
	ExpectedSeconds int64 `json:"expected_seconds"`
}

// Plan is Config.Plan with the default Config.
func Plan(ctx context.Context, dsn string) ([]Planned, error) { return DefaultConfig().Plan(ctx, dsn) }

// Plan returns the pending migrations, oldest first, with the locks that they take on tables that exist now. It
// changes nothing except as List does, and returns none if the schema is current or newer.
func (c Config) Plan(ctx context.Context, dsn string) (list []Planned, err error) {
	err = c.withProvider(ctx, dsn, nil, func(db *sql.DB, p *goose.Provider) error {
		list = nil // of an attempt before
		schema, err := c.readSchema(ctx, db, p)
		if err != nil {
			return err
		}
		versions, pairs := files(c.source())
		for _, v := range versions {
			if v <= schema.Version {
				continue
			}
			text, err := fs.ReadFile(c.source(), pairs[v].up)
			if err != nil {
				return err
			}
			one := Planned{Version: v, Title: pairs[v].title}
			locks, err := sized(ctx, db, one, locksOf(string(text)))
			if err != nil {
				return err
			}
			if len(locks) == 0 {
				locks = []Planned{one}
			}
			list = append(list, locks...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("migration plan: %w", err)
	}
	return list, nil
}

// sizeSQL returns the rows and the bytes of a table without and with its indexes, including its partitions, or no
// row if it does not exist.
//
//sql:allow migrations stands alone
const sizeSQL = `
SELECT CASE WHEN min(c.reltuples) FILTER (WHERE c.relkind = 'r') >= 0 THEN sum(c.reltuples) FILTER (WHERE c.relkind = 'r')::bigint END,
       coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
  FROM (SELECT to_regclass($1)::oid AS oid UNION SELECT relid FROM pg_partition_tree(to_regclass($1))) t
  JOIN pg_class c ON c.oid = t.oid
HAVING count(*) > 0`

// sized returns a copy of a planned migration for each of its locks on a table that exists.
func sized(ctx context.Context, db *sql.DB, of Planned, locks []Lock) (list []Planned, err error) {
	for _, l := range locks {
		one := of
		one.Table, one.Lock, one.Blocks, one.Work = l.Table, l.Mode, blocks(l.Mode), l.Work
		var table, total int64
		err := db.QueryRowContext(ctx, sizeSQL, l.Table).Scan(&one.Rows, &table, &total)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("size of %s: %w", l.Table, err)
		}
		one.Bytes = &table
		switch l.Work {
		case Scan:
			one.ExpectedSeconds = table / scanRate
		case Rewrite:
			one.Bytes, one.ExpectedSeconds = &total, total/rewriteRate
		case Instant:
		}
		list = append(list, one)
	}
	return list, nil
}

// Expected describes ExpectedSeconds, such as "14s".
func (p Planned) Expected() string {
	switch {
	case p.Table == "":
		return ""
	case p.ExpectedSeconds == 0:
		return "under 1s"
	}
	return (time.Duration(p.ExpectedSeconds) * time.Second).String()
}

// Effort describes the work with its size, such as "scan of 1400 MB, about 10000000 rows".
func (p Planned) Effort() string {
	switch {
	case p.Work == Instant || p.Bytes == nil:
		return string(p.Work)
	case p.Rows == nil:
		return fmt.Sprintf("%s of %d MB", p.Work, *p.Bytes>>20)
	}
	return fmt.Sprintf("%s of %d MB, about %d rows", p.Work, *p.Bytes>>20, *p.Rows)
}

// Summary describes a plan in one line.
func Summary(list []Planned) string {
	pending, locks := 0, 0
	for i, p := range list {
		if i == 0 || p.Version != list[i-1].Version {
			pending++
		}
		if p.Table != "" {
			locks++
		}
	}
	switch {
	case pending == 0:
		return "no migration is pending"
	case locks == 0:
		return fmt.Sprintf("pending migrations: %d; they lock no existing table; apply with `belfry migrate up`", pending)
	}
	return fmt.Sprintf("pending migrations: %d; locks on existing tables: %d; apply with `belfry migrate up`", pending, locks)
}

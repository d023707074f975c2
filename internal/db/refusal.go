package db

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Refusal is what a rule of schema belfry says about a value that it refused: the column
// and what is allowed. The server's own words about a NULL name no allowed values.
func Refusal(pg *pgconn.PgError) (message string, refused bool) {
	switch {
	case pg.SchemaName != "belfry":
		return "", false
	case pg.Code == checkViolation:
		return pg.Message, true
	case pg.Code == notNullViolation:
		return fmt.Sprintf("belfry.%s.%s: is null; allowed values: all but null", pg.TableName, pg.ColumnName), true
	}
	return "", false
}

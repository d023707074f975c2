package db

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Refusal returns the message of a constraint of schema belfry that rejected a value. The message names the
// column and the allowed values. For a NULL it is written here, because the server's message has no allowed
// values.
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

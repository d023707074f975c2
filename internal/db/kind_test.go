package db_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/db"
)

type unknownError struct{ error }

func (unknownError) Kind() db.Kind   { return db.KindUnknown }
func (e unknownError) Unwrap() error { return e.error }

func TestKindOf_OutermostKindCounts(t *testing.T) {
	t.Parallel()
	notFound := db.NewError(db.KindNotFound, "no such lane")
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for name, c := range map[string]struct {
		err  error
		want db.Kind
	}{
		"sentinel":                       {notFound, db.KindNotFound},
		"wrapped sentinel":               {fmt.Errorf("lane x: %w", notFound), db.KindNotFound},
		"wrapper with a kind":            {unknownError{notFound}, db.KindUnknown},
		"sentinel over a database error": {fmt.Errorf("%w: %w", notFound, server("57014")), db.KindNotFound},
		"standby behind a sentinel":      {fmt.Errorf("%w: %w", db.NewError(db.KindUnavailable, "away"), server("25006")), db.KindStandby},
		"stale version":                  {fmt.Errorf("pause: %w", &db.StaleError{}), db.KindStale},
		"constraint":                     {server("23514"), db.KindConflict},
		"no privilege":                   {server("42501"), db.KindForbidden},
		"program limit":                  {server("54000"), db.KindFailed},
		"value of a program limit":       {server("54001"), db.KindInvalid},
		"network":                        {&net.OpError{Op: "dial", Err: errors.New("refused")}, db.KindUnavailable},
		"deadline":                       {context.DeadlineExceeded, db.KindTooSlow},
		"other":                          {errors.New("broken"), db.KindFailed},
	} {
		require.Equal(t, c.want, db.KindOf(c.err), name)
	}
}

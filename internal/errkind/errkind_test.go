package errkind_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/errkind"
)

type unknownError struct{ error }

func (unknownError) Kind() errkind.Kind { return errkind.Unknown }
func (e unknownError) Unwrap() error    { return e.error }

func TestOf_OutermostKindCounts(t *testing.T) {
	t.Parallel()
	notFound := errkind.New(errkind.NotFound, "no such lane")
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for name, c := range map[string]struct {
		err  error
		want errkind.Kind
	}{
		"sentinel":                       {notFound, errkind.NotFound},
		"wrapped sentinel":               {fmt.Errorf("lane x: %w", notFound), errkind.NotFound},
		"wrapper with a kind":            {unknownError{notFound}, errkind.Unknown},
		"sentinel over a database error": {fmt.Errorf("%w: %w", notFound, server("57014")), errkind.NotFound},
		"standby behind a sentinel":      {fmt.Errorf("%w: %w", errkind.New(errkind.Unavailable, "away"), server("25006")), errkind.Standby},
		"stale version":                  {fmt.Errorf("pause: %w", &db.StaleError{}), errkind.Stale},
		"constraint":                     {server("23514"), errkind.Conflict},
		"no privilege":                   {server("42501"), errkind.Forbidden},
		"network":                        {&net.OpError{Op: "dial", Err: errors.New("refused")}, errkind.Unavailable},
		"deadline":                       {context.DeadlineExceeded, errkind.TooSlow},
		"other":                          {errors.New("broken"), errkind.Failed},
	} {
		require.Equal(t, c.want, errkind.Of(c.err), name)
	}
}

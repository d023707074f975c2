package operation_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
)

// The server may end a connection after a COMMIT has taken effect and before its answer.
func TestUnlessUnknown_ATerminatedConnectionIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]db.Kind{
		"57P01": db.KindUnknown, "57P02": db.KindUnknown, "57P05": db.KindUnknown, "08006": db.KindUnknown,
		"57P03": db.KindUnavailable, "53300": db.KindUnavailable, "55P03": db.KindConflict, "57014": db.KindTooSlow,
	} {
		require.Equal(t, want, db.KindOf(operation.UnlessUnknown(&pgconn.PgError{Code: code})), code)
	}
	require.NoError(t, operation.AfterCommit(nil, "x"))
}

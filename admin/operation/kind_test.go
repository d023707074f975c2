package operation_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/errkind"
)

// The server may end a connection after a COMMIT has taken effect and before its answer.
func TestUnlessUnknown_ATerminatedConnectionIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]errkind.Kind{
		"57P01": errkind.Unknown, "57P02": errkind.Unknown, "57P05": errkind.Unknown, "08006": errkind.Unknown,
		"57P03": errkind.Unavailable, "53300": errkind.Unavailable, "55P03": errkind.Conflict, "57014": errkind.TooSlow,
	} {
		require.Equal(t, want, errkind.Of(operation.UnlessUnknown(&pgconn.PgError{Code: code})), code)
	}
	require.NoError(t, operation.AfterCommit(nil, "x"))
}

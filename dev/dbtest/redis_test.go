package dbtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that lost its port to another one must not pass for started.
func TestRedis_AnotherServersAnswerDoesNotCount(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	require.NoError(t, askRedis(t.Context(), r.Addr, r.PID()))
	require.ErrorContains(t, askRedis(t.Context(), r.Addr, r.PID()+1), "answers at "+r.Addr)

	late := newRedis(r.program, makeDir(t, "redis", nil), r.Addr)
	err := late.Start(t.Context())
	require.ErrorContains(t, err, "Address already in use") // by which StartRedis knows to try another port
	require.Zero(t, late.PID())
	require.NoError(t, late.Stop())
}

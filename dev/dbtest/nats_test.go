package dbtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Servers that lost their ports to others must not pass for started.
func TestNATS_AnotherServersAnswerDoesNotCount(t *testing.T) {
	t.Parallel()
	s := StartNATS(t, 1)[0]
	addr := s.URL[len("nats://"):]
	require.ErrorContains(t, askNATS(t.Context(), addr, "n1"), "answers at "+addr)
	require.NoError(t, s.Stop())
	require.NoError(t, s.Start(t.Context()))
}

package inbox_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The script of the bell is small, and needs no token.
func TestBell_IsAScriptOfFourKilobytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.call("", "GET", "/v1/bell.js", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/javascript; charset=utf-8", a.header.Get("Content-Type"))
	require.LessOrEqual(t, len(a.text), 4096)
}

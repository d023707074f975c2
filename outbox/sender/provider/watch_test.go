package provider

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Invariant 1: with a body the headers begin a request, without one its connection does;
// and what net/http starts over has not begun.
func TestWatch_Begun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		body      string
		connected bool // begun once it has got a connection
		shared    bool // an HTTP/2 connection that another call has requested
	}{
		{"with a body", "x", false, false},
		{"without a body", "", true, false},
		{"on a shared connection", "x", false, true},
	} {
		original, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com", http.NoBody)
		require.NoError(t, err)
		if test.body != "" {
			original, err = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com", strings.NewReader(test.body))
			require.NoError(t, err)
		}
		w := &watch{}
		req, err := w.request(t.Context(), original)
		require.NoError(t, err)
		trace := httptrace.ContextClientTrace(req.Context())
		require.False(t, w.tried.Load(), test.name)
		if !test.shared {
			trace.GetConn("example.com:80")
			require.True(t, w.tried.Load(), test.name)
		}
		require.False(t, w.begun.Load(), test.name)
		trace.GotConn(httptrace.GotConnInfo{})
		require.True(t, w.tried.Load(), test.name)
		require.Equal(t, test.connected, w.begun.Load(), test.name)
		trace.WroteHeaders()
		require.True(t, w.begun.Load(), test.name)
		trace.GetConn("example.com:80")
		require.False(t, w.begun.Load(), test.name)
	}
}

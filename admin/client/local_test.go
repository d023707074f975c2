package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/client"
)

func TestWithin_AsksAsWhoeverAsked(t *testing.T) {
	t.Parallel()
	as := httptest.NewRequest(http.MethodPost, "http://belfry.example/abort", strings.NewReader("id=17"))
	as.RemoteAddr = "192.0.2.7:1234"
	for name, value := range map[string]string{
		"Cookie": "belfry=secret", "X-Forwarded-For": "198.51.100.9", "Content-Type": "application/x-www-form-urlencoded", "Content-Length": "5",
		"Origin": "http://belfry.example", "Sec-Fetch-Site": "same-origin", "If-Match": `"1"`, "Idempotency-Key": `"k"`, "Accept": "text/html",
	} {
		as.Header.Set(name, value)
	}
	var got *http.Request
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req
		w.Header().Set("X-Said", "yes")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "no")
		_, _ = io.WriteString(w, "hello")
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/jobs?limit=1", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	res, err := client.Within(h, as).RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusTeapot, res.StatusCode)
	require.Equal(t, "hello", string(body))
	require.Equal(t, http.Header{"X-Said": {"yes"}}, res.Header)
	require.Equal(t, []string{"/api/v1/jobs?limit=1", "192.0.2.7:1234", "belfry.example", http.MethodGet}, []string{got.RequestURI, got.RemoteAddr, got.Host, got.Method})
	require.Equal(t, http.Header{"Cookie": {"belfry=secret"}, "X-Forwarded-For": {"198.51.100.9"}, "Accept": {"application/json"}}, got.Header)
}

func TestWithin_AnAnswerThatBreaksOffIsNotWhole(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	require.NoError(t, err)
	res, err := client.Within(h, httptest.NewRequest(http.MethodGet, "/", nil)).RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "half", string(body))
	require.NoError(t, res.Body.Close())
}

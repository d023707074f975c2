package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

// Whoever observes is told of each request once: for what it was, and how it was answered.
func TestObserve_TellsOfEachRequestOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []api.Answered
	b := setup(t, func(c *api.Options) {
		c.Observe = func(a api.Answered) {
			mu.Lock()
			defer mu.Unlock()
			a.Took = min(a.Took, time.Nanosecond)
			told = append(told, a)
		}
		c.Operations = append(c.Operations, operation.Define(operation.Operation{Name: "jobs panic", Short: "Panic", Role: operation.Viewer},
			func(context.Context, *operation.Env, operation.None) (operation.None, error) { panic("oh") }, func(*text.Doc, operation.None, operation.None) {}))
	})
	for _, one := range []struct {
		role, method, path string
		want               api.Answered
	}{
		{"viewer", "GET", "/lanes", api.Answered{Operation: "lanes list", Method: "GET", Status: http.StatusOK}},
		{"viewer", "GET", "/lanes?limit=x", api.Answered{Operation: "lanes list", Method: "GET", Status: http.StatusUnprocessableEntity}},
		{"viewer", "POST", "/lanes/night/pause", api.Answered{Operation: "lanes pause", Method: "POST", Status: http.StatusForbidden}},
		{"", "GET", "/lanes", api.Answered{Method: "GET", Status: http.StatusUnauthorized}},
		{"viewer", "GET", "/nothing", api.Answered{Method: "GET", Status: http.StatusNotFound}},
		{"viewer", "GET", "/openapi.json", api.Answered{Method: "GET", Status: http.StatusOK}},
		{"viewer", "GET", "/jobs/watch", api.Answered{Operation: "jobs watch", Method: "GET", Status: http.StatusOK, Stream: true}},
		{"viewer", "GET", "/jobs/panic", api.Answered{Operation: "jobs panic", Method: "GET", Status: http.StatusInternalServerError}},
	} {
		b.call(t, one.role, one.method, one.path, "")
		one.want.Took = time.Nanosecond
		require.Eventually(t, func() bool { // an answer is read before its handler has ended
			mu.Lock()
			defer mu.Unlock()
			return len(told) > 0
		}, patience, time.Millisecond, one.path)
		mu.Lock()
		require.Equal(t, []api.Answered{one.want}, told, one.path)
		told = nil
		mu.Unlock()
	}
}

package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
)

// described is an operation of the OpenAPI document.
type described struct {
	method, path string
	ID           string `json:"operationId"`
	Parameters   []struct {
		Name, In string
		Schema   map[string]any
	}
	RequestBody struct {
		Content map[string]struct {
			Schema struct{ Properties map[string]map[string]any }
		}
	}
	Responses map[string]json.RawMessage
}

// wholeDocument is made once: it takes its time under the race detector.
var wholeDocument = sync.OnceValue(func() []byte { return api.Document(admin.Operations()) })

// read takes the document apart, by operationId.
func read(t *testing.T) map[string]described {
	t.Helper()
	var whole struct {
		Paths map[string]map[string]described
	}
	require.NoError(t, json.Unmarshal(wholeDocument(), &whole))
	list := make(map[string]described)
	for path, methods := range whole.Paths {
		for method, o := range methods {
			o.method, o.path = strings.ToUpper(method), path
			list[o.ID] = o
		}
	}
	return list
}

func TestDocument_IsServedToEverybody(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	a := b.call(t, "", "GET", "/openapi.json", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, strings.TrimSpace(string(wholeDocument())), a.text)
}

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Data of a job that is nested deeply made the command write its depth times as much as blanks.
func TestJSON_IsIndentedUpToADepth(t *testing.T) {
	t.Parallel()
	nested := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat("[", n) + `"\"[{\\"` + strings.Repeat("]", n))
	}
	printed := func(v any) string {
		var out bytes.Buffer
		require.NoError(t, newApp(&out, &out, nil).printJSON(v))
		return out.String()
	}
	require.Equal(t, strings.Split("{|  \"data\": [|    \"\\\"[{\\\\\"|  ]|}|", "|"), strings.Split(printed(map[string]any{"data": nested(1)}), "\n"))
	require.Contains(t, printed(map[string]any{"data": nested(31)}), "\n  \"data\": [\n    [\n")
	for _, n := range []int{32, 8000} {
		out := printed(map[string]any{"data": nested(n)})
		require.Equal(t, `{"data":`+string(nested(n))+"}\n", out)
	}
	brackets := json.RawMessage(`"` + strings.Repeat("[", 100) + `"`)
	require.Contains(t, printed(map[string]any{"data": brackets}), "{\n  ", "brackets in a text are no depth")
}

package operation_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

type tray struct {
	Names  []string        `json:"names"`
	Route  []string        `json:"route" nullable:"true"`
	Raw    json.RawMessage `json:"raw"`
	At     time.Time       `json:"at"`
	Inner  *tray           `json:"inner"`
	Others []tray          `json:"others,omitempty"`
}

// Each list of a response is present, even if it is empty, and the original result is unchanged.
func TestOperation_AnswersWithListsThatAreThere(t *testing.T) {
	t.Parallel()
	shared := &tray{Inner: &tray{}, Others: []tray{{}}}
	o := operation.Define(operation.Operation{Name: "trays show", Short: "Show", Role: operation.Viewer}, func(context.Context, *operation.Env, operation.None) (*tray, error) {
		return shared, nil
	}, func(*text.Doc, operation.None, *tray) {})
	out, err := o.Run(t.Context(), &operation.Env{Role: operation.Admin}, o.NewInput())
	require.NoError(t, err)
	text, err := json.Marshal(out)
	require.NoError(t, err)
	const at = `"at":"0001-01-01T00:00:00Z"`
	const one = `{"names":[],"route":null,"raw":null,` + at + `,"inner":null}`
	require.JSONEq(t, `{"names":[],"route":null,"raw":null,`+at+`,"inner":`+one+`,"others":[`+one+`]}`, string(text))
	require.Nil(t, shared.Names)
	require.Nil(t, shared.Inner.Names)
}

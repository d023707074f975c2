package compose

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// What member finds in an object is what decoding it finds, however PostgreSQL writes it.
func TestMember_FindsWhatDecodingFinds(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	for _, text := range []string{
		`{}`, `{"push": "t"}`, `{"push": "a\"b\\", "sms": "+82 10"}`, `{"a": {"push": "no", "b": [1, "]}", {}]}, "push": "yes"}`,
		`{"webpush": {"endpoint": "https://e/{}", "keys": {"auth": "\\\"", "p256dh": ","}}, "push": 8210}`,
		`{"": "empty", "push": "", "x": null, "y": true, "z": -1.5e3, "s": []}`, `{"pu\\sh": 1, "\u0001": 2, "push\n": 3, "push": null}`,
		`["push", "t"]`, `"push"`, `1`, `null`, `[{"push": "t"}]`,
	} {
		var written string
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT $1::text::jsonb::text`, text).Scan(&written))
		var decoded map[string]json.RawMessage
		if json.Unmarshal([]byte(written), &decoded) != nil {
			decoded = nil
		}
		for _, key := range []string{"push", "sms", "webpush", "a", "b", "endpoint", "x", "y", "z", "s"} {
			require.Equal(t, string(decoded[key]), string(member(json.RawMessage(written), key)), "%s of %s", key, written)
		}
	}
	// PostgreSQL writes none of these.
	for _, broken := range []string{"", "{", `{"`, `{"push`, `{"push"`, `{"push":`, `{"push": `, `{"push": "`, `{"push": {"a"`, `{"push": 1`, `{"a": 1,"push": 1}`} {
		_ = addressText(member(json.RawMessage(broken), "push"))
	}
	require.Empty(t, addressText(json.RawMessage(`"`)))
}

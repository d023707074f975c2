package abortcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// No value of a key is no flag, and every flag has an actor.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "1", "null", "{}", `{"actor":"ana","reason":"r","at":"2025-01-31T08:50:00Z"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		act := decode(value)
		require.NotNil(t, act)
		require.NotEqual(t, job.Act{Reason: act.Reason}, *act)
	})
}

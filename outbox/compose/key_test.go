package compose_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/compose"
)

// The key is fixed permanently: a release that changes it would send a retried message
// twice (invariant 5, I9).
func TestKey_NeverChanges(t *testing.T) {
	t.Parallel()
	here := uuid.MustParse("0197f4a2-7b1c-4d55-9d64-1f2e3d4c5b6a")
	for _, c := range []struct {
		installation uuid.UUID
		job, channel int64
		medium, want string
	}{
		{uuid.Nil, 0, 0, "", "66687aad-f862-8d77-ac8f-c18b8e9f8e20"},
		{here, 1, 1, "push", "30c47e7b-bed3-8b08-be14-6a6aa10223fb"},
		{here, 1, 1, "sms", "5302fcf3-8190-8bb0-93b6-269fb7640095"},
		{here, 1, 2, "push", "7dea12cf-b043-8ab5-a441-7b21da758580"},
		{here, 2, 1, "push", "c2e5837c-4422-83b2-a18f-a0b092bdf5bd"},
		{here, -1, 1, "push", "58f0315e-341c-8b5d-833f-16c66e55faa0"},
		{here, 9223372036854775807, -9223372036854775808, "alimtalk", "cfb9588b-e898-8cfd-afd1-01f4bc8fc617"},
	} {
		require.Equal(t, c.want, compose.Key(c.installation, c.job, c.channel, c.medium), "%d %d %s", c.job, c.channel, c.medium)
	}
}

func TestKey_IsAUUIDOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for job := int64(-50); job < 50; job++ {
		for channel := range int64(50) {
			for _, medium := range []string{"push", "sms"} {
				key := compose.Key(uuid.Nil, job, channel, medium)
				id, err := uuid.Parse(key)
				require.NoError(t, err)
				require.Equal(t, uuid.Version(8), id.Version())
				require.Equal(t, uuid.RFC4122, id.Variant())
				require.Equal(t, strings.ToLower(key), key)
				require.False(t, seen[key])
				seen[key] = true
			}
		}
	}
}

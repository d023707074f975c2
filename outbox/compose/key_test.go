package compose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/compose"
)

// The key is fixed permanently: a release that changes it would send a retried message
// twice (invariant 5, I9).
func TestKey_NeverChanges(t *testing.T) {
	t.Parallel()
	monday := time.Date(2026, 11, 23, 8, 50, 0, 123_456_789, time.UTC)
	here := uuid.MustParse("0197f4a2-7b1c-4d55-9d64-1f2e3d4c5b6a")
	for _, c := range []struct {
		installation uuid.UUID
		job          int64
		created      time.Time
		channel      int64
		medium, want string
	}{
		{uuid.Nil, 0, time.UnixMicro(0), 0, "", "2c34ce1d-f23b-838c-9abf-2a7f6437cca3"},
		{here, 1, monday, 1, "push", "ef27b901-6a13-8e04-97bd-409fe413c883"},
		{here, 1, monday.Add(time.Microsecond), 1, "push", "0b575492-0c0b-8ee2-9a03-e3ae44d09fef"},
		{here, 1, monday, 1, "sms", "e52f119d-10ce-8e4f-8b3d-5ab790b73efe"},
		{here, 1, monday, 2, "push", "c3863134-402e-8f78-a96b-416b0ca17023"},
		{here, 2, monday, 1, "push", "38c90966-a4b1-8ffb-9240-73e3bbd5e092"},
		{here, -1, monday, 1, "push", "ead0d133-d278-8e48-85c4-f6b63ca04d80"},
		{here, 9223372036854775807, monday, -9223372036854775808, "alimtalk", "8ee45a1b-1ebf-80a9-b9df-fd16e67faab2"},
	} {
		require.Equal(t, c.want, compose.Key(c.installation, c.job, c.created, c.channel, c.medium), "%d %d %s", c.job, c.channel, c.medium)
	}
}

func TestKey_IsAUUIDOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for job := int64(-50); job < 50; job++ {
		for channel := range int64(50) {
			for _, medium := range []string{"push", "sms"} {
				key := compose.Key(uuid.Nil, job, time.UnixMicro(channel%3), channel, medium)
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

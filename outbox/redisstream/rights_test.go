package redisstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// A user of its own, with few rights, does all that a worker does. One that may not ask how much
// memory is used pushes all the same, and one that may not unblock waits out its block.
func TestCarrier_AUserWithFewRights(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	rights := "on >s3cret ~{few:* +@stream +@sortedset +@hash +eval +evalsha +time +del"
	for name, more := range map[string]string{"may ask": "+info +client", "may not ask": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := strings.ReplaceAll(name, " ", "-")
			prefix := "few:" + user
			require.Equal(t, "+OK", server.Do(t, append([]string{"ACL", "SETUSER", user}, strings.Fields(rights+" "+more)...)...))
			b, w := open(t, strings.Replace(server.URL, "//", "//"+user+":s3cret@", 1), prefix, many), newTruth()
			b.Hurry(20*time.Millisecond, patience, 100*time.Millisecond)
			warnings, err := b.Check(t.Context())
			require.NoError(t, err)
			require.Equal(t, more == "", strings.Contains(strings.Join(warnings, " "), "may not run INFO"))
			c := b.Carrier("r1", w.as("r1"))
			keys := (&pusher{to: c}).push(t, 30)
			require.NotEmpty(t, abandon(t, open(t, server.URL, prefix), "dead"))
			stop := keep(t, c)
			got := receive(t, c, 30) // taken over
			require.Len(t, got, len(keys))
			require.NoError(t, c.Settled(t.Context(), settled(got[:10], outbox.Dead, 0)))
			require.NoError(t, c.Settled(t.Context(), settled(got[10:20], outbox.Pending, 0)))
			require.NoError(t, c.Settled(t.Context(), sent(got[20:])))
			w.forget()
			// What was taken over twice may be claimed by an old entry: the new one goes by the next claim.
			settles := receiveAll(t, c, &room{30})
			eventually(t, "nothing is left", func() bool {
				list, err := b.Queues(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 10, list[1].Dead)
				return list[1].Ready+list[1].Later+list[1].Taken == 0
			})
			settles()
			stop()
			require.NoError(t, b.Empty(t.Context()))
		})
	}
}

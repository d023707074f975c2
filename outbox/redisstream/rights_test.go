package redisstream_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
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

// A user that lacks a right is refused at the start, with the rights, and not when messages wait.
func TestCarrier_AUserWithoutARight(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	_, err := open(t, server.URL, "few:cached").Check(t.Context()) // the server knows the scripts
	require.NoError(t, err)
	for user, rights := range map[string]string{
		"no-streams": "+@list +@hash +@sortedset +eval +evalsha +get +set +del +unlink +scan +time +info",
		"no-hashes":  "+@stream +@sortedset +eval +evalsha +time +del +info",
		"no-read":    "+@stream -xreadgroup +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-ack":     "+@stream -xack +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-group":   "+@stream -xgroup +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-claim":   "+@stream -xclaim +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-info":    "+@stream -xinfo +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-add":     "+@stream -xadd +@sortedset +@hash +eval +evalsha +time +del +info",
		"no-deletes": "+@stream +@sortedset +@hash +eval +evalsha +time +info",
		"no-scripts": "+@stream +@sortedset +@hash +evalsha +time +del +info",
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "+OK", server.Do(t, append([]string{"ACL", "SETUSER", user}, strings.Fields("on >s3cret ~{few:* "+rights)...)...))
			_, err := open(t, strings.Replace(server.URL, "//", "//"+user+":s3cret@", 1), "few:"+user).Check(t.Context())
			require.ErrorContains(t, err, "delivery.redis.url: the user lacks permissions: ")
			require.ErrorContains(t, err, "(ACL SETUSER … ~{few:"+user+":* +@stream ")
		})
	}
}

// Relays that start at the same time share what their rights are tried with.
func TestBroker_ChecksAtOnce(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	var all sync.WaitGroup
	for range 8 {
		b := open(t, server.URL, "shared")
		all.Go(func() {
			for range 20 {
				if _, err := b.Check(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

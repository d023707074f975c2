package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// copied makes a copy of the database by CREATE DATABASE … TEMPLATE, and works on that.
func (b *bundle) copied(t *testing.T) *bundle {
	t.Helper()
	copied := dbtest.CopyOf(t, b.DB)
	b.DB = copied
	return b
}

// A relay on a copy sends nothing, takes back no lease and asks for no receipt, says so
// once, and goes on by itself when the copy is adopted.
func TestLong_RelayWaitsOnACopyUntilItIsAdopted(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]bool{"listening": true, "polling": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 50)
			b.job(t, "default", 1, 50)
			b.activity(t, 7)
			b.exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (5, 'dead', now() - interval '1 minute', '{1}', '{50}')`)
			b.exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 5 WHERE job_id = 1 AND channel_id = 50`)
			b.copied(t)
			was := b.statuses(t)
			provider, log := &script{}, new(dbtest.Buffer)
			c := config("r")
			c.Listen, c.Lease, c.StatementTimeout = listen, relay.DefaultConfig().Lease, relay.DefaultConfig().StatementTimeout
			r := b.start(t, c, []relay.Sender{push(provider)}, relay.WithLogger(zerolog.New(log)))
			b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE heartbeat_at > started_at + interval '2 seconds'`)
			require.Empty(t, provider.all())
			require.Equal(t, was, b.statuses(t))
			require.Zero(t, r.Stats().Claimed)
			require.Equal(t, 1, strings.Count(log.String(), "delivery waits until the database is adopted"))
			require.Equal(t, 1, strings.Count(log.String(), outbox.ErrNotAdopted.Error()))

			i, err := delivery.Adopt(t.Context(), b.DB.Pool, "", job.Act{Actor: "ann", Reason: "moved"})
			require.NoError(t, err)
			require.True(t, i.Adopted)
			b.eventually(t, `SELECT count(*) = 51 FROM belfry.messages WHERE status = 'SENT'`)
			require.Equal(t, 1, strings.Count(log.String(), "the database was adopted"))
			require.Equal(t, "ann moved", one[string](t, b, `SELECT actor || ' ' || reason FROM belfry.events WHERE subject = 'installation' AND kind = 'adopted'`))
		})
	}
}

// A drain of a copy says why it delivers nothing.
func TestDrain_RefusesACopy(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.job(t, "default", 1, 5)
	b.copied(t)
	provider := &script{}
	stats, err := b.relay(t, config("r"), []relay.Sender{push(provider)}).Drain(t.Context())
	require.ErrorIs(t, err, outbox.ErrNotAdopted)
	require.ErrorContains(t, err, "made on database ")
	require.Zero(t, stats.Claimed)
	require.Empty(t, provider.all())
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
}

// Only relays whose place the database has deliver: a copy of the server's files that another
// environment's configuration opens sends nothing.
func TestDrain_RefusesAnotherPlace(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.job(t, "default", 1, 5)
	provider := &script{}
	drain := func(place string) error {
		c := config("r")
		c.Place = place
		_, err := b.relay(t, c, []relay.Sender{push(provider)}).Drain(t.Context())
		return err
	}
	require.ErrorIs(t, drain("production"), outbox.ErrNotAdopted, "the database has none")
	i, err := delivery.Adopt(t.Context(), b.DB.Pool, "production", job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, "production", i.Name)
	require.ErrorContains(t, drain(""), `delivery.place is "", and the database is adopted for "production"`)
	require.ErrorIs(t, drain("test"), outbox.ErrNotAdopted)
	require.Empty(t, provider.all())
	i, err = delivery.Adopt(t.Context(), b.DB.Pool, "", job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, "production", i.Name, "it stays")
	require.NoError(t, drain("production"))
	require.Len(t, provider.all(), 5)
}

// A relay of another place does not push to a carrier either, and goes on when the place is its.
func TestCarrier_RelayOfAnotherPlaceDoesNotLead(t *testing.T) {
	t.Parallel()
	b, memory, log := setup(t, 50), outboxtest.NewMemory(capacity), new(dbtest.Buffer)
	c := carrying("r1")
	c.Place = "production"
	b.job(t, "default", 1, 50)
	b.start(t, c, []relay.Sender{push(&script{})}, on(memory, time.Hour), relay.WithLogger(zerolog.New(log)))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "delivery waits until") }, patience, time.Millisecond)
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE heartbeat_at > started_at + interval '1 second'`)
	require.Equal(t, map[string]int{"PENDING": 50}, b.statuses(t))
	_, err := delivery.Adopt(t.Context(), b.DB.Pool, "production", job.Act{Actor: "ann"})
	require.NoError(t, err)
	b.Delivered(t)
}

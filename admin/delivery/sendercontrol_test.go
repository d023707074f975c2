package delivery_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const alive = time.Minute

// What operators say of senders is there for relays and people, and recorded (I14).
// works is s with what its two relays do together.
func works(s delivery.SenderState) delivery.SenderState {
	s.Name, s.Relays, s.Medium, s.Breakers = "fcm", 2, "push", []string{"closed", "open"}
	s.Waiting, s.Calling, s.SentPerSecond, s.FailedPerSecond = 42, 3, 24.5, 1.5
	return s
}

func TestSenders_AreSetPausedAndResumed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.relays (name, senders, in_flight, limits, heartbeat_at) VALUES
		('r1', '{fcm,sms}', 7, '[{"name": "fcm", "rate_per_second": 500, "concurrency": 8, "medium": "push", "breaker": "open", "waiting": 40, "calling": 2, "sent_per_second": 20.5, "failed_per_second": 1}, {"name": "sms", "rate_per_second": 0, "concurrency": 4}]', now()),
		('r2', '{fcm}', 0, '[{"name": "fcm", "rate_per_second": 500, "concurrency": 8, "medium": "push", "breaker": "closed", "waiting": 2, "calling": 1, "sent_per_second": 4, "failed_per_second": 0.5}]', now()),
		('r3', '{old,fcm}', 3, '[{"name": "fcm", "rate_per_second": 7, "concurrency": 8}]', now() - interval '1 hour')`)
	fcm := []outbox.SenderLimits{{RatePerSecond: 500, Concurrency: 8}} // of the two that live
	who := job.Act{Actor: "ann", Reason: "too fast"}
	rate, slots := 12.5, 4
	s, err := delivery.SetSender(t.Context(), b.DB.Pool, "fcm", delivery.SenderChange{Rate: true, RatePerSecond: &rate}, alive, who)
	require.NoError(t, err)
	require.Equal(t, works(delivery.SenderState{RatePerSecond: &rate, InForce: fcm, Version: s.Version}), s)
	first := s.Version
	require.Positive(t, first)
	s, err = delivery.SetSender(t.Context(), b.DB.Pool, "fcm", delivery.SenderChange{Slots: true, Concurrency: &slots}, alive, who)
	require.NoError(t, err)
	require.Equal(t, works(delivery.SenderState{RatePerSecond: &rate, Concurrency: &slots, InForce: fcm, Version: s.Version}), s)
	require.Greater(t, s.Version, first)
	s, err = delivery.SetSender(t.Context(), b.DB.Pool, "fcm", delivery.SenderChange{Rate: true}, alive, who)
	require.NoError(t, err)
	require.Nil(t, s.RatePerSecond)
	require.Equal(t, &slots, s.Concurrency)

	for range 2 {
		s, err = delivery.PauseSender(t.Context(), b.DB.Pool, "post", alive, job.Act{Actor: "ben", Reason: "wrong key"})
		require.NoError(t, err)
		require.Equal(t, "ben", s.PausedBy)
		require.Equal(t, "wrong key", s.PauseReason)
		require.NotNil(t, s.PausedAt)
	}
	senders, relays, err := delivery.SenderStates(t.Context(), b.DB.Pool, alive)
	require.NoError(t, err)
	var names []string
	for _, s := range senders {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"fcm", "post", "sms"}, names)
	require.Len(t, relays, 3)
	require.Equal(t, 7, relays[0].InFlight)
	require.True(t, relays[1].Live)
	require.False(t, relays[2].Live)

	for range 2 {
		s, err = delivery.ResumeSender(t.Context(), b.DB.Pool, "post", alive, job.Act{Actor: "ann"})
		require.NoError(t, err)
		require.Equal(t, delivery.SenderState{Name: "post", InForce: []outbox.SenderLimits{}, Breakers: []string{}, Version: s.Version}, s)
	}
	_, err = delivery.ResumeSender(t.Context(), b.DB.Pool, "never", alive, job.Act{})
	require.NoError(t, err)
	events, err := b.Jobs.ControlEvents(context.Background(), delivery.SubjectSender, "", 0, 0)
	require.NoError(t, err)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Actor+" "+e.Kind+" "+e.Name+" "+e.Reason)
	}
	require.Equal(t, []string{"ann resumed post ", "ben paused post wrong key", "ann changed fcm too fast", "ann changed fcm too fast", "ann changed fcm too fast"}, kinds)
	var detail struct{ Before, After map[string]any }
	require.NoError(t, json.Unmarshal(events[4].Detail, &detail))
	require.Equal(t, []any{nil, 12.5}, []any{detail.Before["rate_per_second"], detail.After["rate_per_second"]})
}

// Rows of a thousand ended relays hide no live one.
func TestSenderStates_ListsLiveRelaysFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.relays (name, started_at, heartbeat_at) SELECT 'old' || n, now() - interval '2 hours', now() - interval '1 hour' FROM generate_series(1, 1000) n`)
	b.Exec(t, `INSERT INTO belfry.relays (name) VALUES ('z2'), ('z1')`)
	_, relays, err := delivery.SenderStates(t.Context(), b.DB.Pool, alive)
	require.NoError(t, err)
	require.Len(t, relays, 1000)
	require.Equal(t, []string{"z1", "z2", "old1"}, []string{relays[0].Name, relays[1].Name, relays[2].Name})
	require.True(t, relays[1].Live)
	require.False(t, relays[2].Live)
}

// A role that delivers writes the rows of relays. Whatever numbers it writes, the list of senders is
// read, and senders are paused and resumed.
func TestSenders_AreReadWhateverARelayReports(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.Exec(t, `INSERT INTO belfry.relays (name, senders, heartbeat_at, limits) VALUES
		('r1', '{fcm}', now(), '[{"name": "fcm", "rate_per_second": 500.00, "concurrency": 8.0, "medium": "push", "breaker": "closed", "waiting": 40.00, "calling": 2.0, "sent_per_second": 1e-400, "failed_per_second": 1.0}]')`)
	s, err := delivery.PauseSender(t.Context(), b.DB.Pool, "fcm", alive, job.Act{Actor: "ben", Reason: "wrong key"})
	require.NoError(t, err)
	require.NotNil(t, s.PausedAt)
	s, err = delivery.ResumeSender(t.Context(), b.DB.Pool, "fcm", alive, job.Act{Actor: "ben"})
	require.NoError(t, err)
	require.Equal(t, delivery.SenderState{
		Name: "fcm", InForce: []outbox.SenderLimits{{RatePerSecond: 500, Concurrency: 8}}, Relays: 1, Medium: "push", Breakers: []string{"closed"},
		Waiting: 40, Calling: 2, FailedPerSecond: 1, Version: s.Version,
	}, s)
}

// A pause is committed before the rows of relays are read.
func TestPauseSender_WaitsForNoRelay(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.relays IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := delivery.PauseSender(t.Context(), b.DB.Pool, "fcm", alive, job.Act{Actor: "ben"})
		done <- err
	}()
	require.Eventually(t, func() bool {
		var paused bool
		return tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM belfry.senders s WHERE s.name = 'fcm' AND s.paused_at IS NOT NULL)`).Scan(&paused) == nil && paused
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-done)
}

func TestSenders_RefuseWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	zero, many := 0.0, 10001
	for column, c := range map[string]delivery.SenderChange{
		"rate_per_second": {Rate: true, RatePerSecond: &zero}, "concurrency": {Slots: true, Concurrency: &many},
	} {
		_, err := delivery.SetSender(t.Context(), b.DB.Pool, "fcm", c, alive, job.Act{})
		var invalid *job.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, column, invalid.Column)
	}
	_, err := delivery.PauseSender(t.Context(), b.DB.Pool, "F C M", alive, job.Act{})
	require.ErrorContains(t, err, "allowed values: 1 to 63 of a-z")
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.senders`))
}

package views

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func TestProblems_NamesWhatNeedsAnOperator(t *testing.T) {
	t.Parallel()
	at := new(time.Now())
	well := doctor.ServerHealth{Server: "15.18 (Debian 15.18-1)", Connections: 12, MaxConnections: 100, Relays: map[string]int{"postgres": 2},
		OldestTransaction: new(3.0), ReplayLag: new(0.5)}
	require.Empty(t, Problems(well, operation.Status{}, []delivery.SenderState{{Relays: 1, Breakers: []string{"closed"}}}, 1000, []jobs.JobState{
		{Job: job.Job{ID: 1, Status: job.Processed, FinishedAt: at}, Messages: outbox.Progress{Sent: 1, Dead: 9}},
		{Job: job.Job{ID: 2, Status: job.Failed, FinishedAt: new(time.Now().Add(-25 * time.Hour))}},
	}))
	require.Equal(t, "PostgreSQL 15.18 · 12 of 100 connections · 2 relays", HealthSummary(well))
	sick := doctor.ServerHealth{Standby: true, Connections: 95, MaxConnections: 100, OldestTransaction: new(7300.0), ReplayLag: new(90.0)}
	var words []string
	for _, p := range Problems(sick, operation.Status{Halt: job.Halt{At: at}, PausedLanes: []string{"night"}},
		[]delivery.SenderState{{Name: "fcm", PausedAt: at}, {Name: "gate", Breakers: []string{"open"}}}, 2000, []jobs.JobState{
			{Job: job.Job{ID: 3, Status: job.Processed, FinishedAt: at}, Messages: outbox.Progress{Dead: 9}},
			{Job: job.Job{ID: 4, Status: job.Failed, FinishedAt: at}},
		}) {
		words = append(words, string(p.Status.Tone)+": "+p.Status.Word+" ["+p.Remedy.String()+"]")
	}
	require.Equal(t, []string{
		"bad: Everything is halted [end the halt: `belfry unhalt`]",
		"bad: No relay is running, and 2,000 messages wait: start the daemon or a relay []",
		"bad: Sender gate is blocked after failures and tries again by itself [show the errors: `belfry dead-letters errors`]",
		"bad: Job 3: not delivered, 9 failed [show it: `belfry jobs show 3`]",
		"bad: Job 4: failed [show it: `belfry jobs show 4`]",
		"hold: Sender fcm is paused [resume it: `belfry senders resume fcm`]",
		"hold: Lane night is paused [resume it: `belfry lanes resume night`]",
		"wait: The database is a standby: nothing can be changed here []",
		"wait: The database has few connections left: 95 of 100 are in use []",
		"wait: A transaction has been open for 2 h 1 min, which keeps the database from cleaning up: end its session []",
		"wait: A standby of the database is 1 min 30 s behind []",
	}, words)
	require.Empty(t, Problems(doctor.ServerHealth{}, operation.Status{}, nil, 0, nil), "without messages no relay is needed")
}

func TestUsesCarrier_IsOfTheRelaysInQuestion(t *testing.T) {
	t.Parallel()
	relays := []delivery.RelayState{{Transport: outbox.NoCarrier, Live: true}, {Transport: "jetstream"}}
	require.True(t, UsesCarrier(transportsOf(relays, false)))
	require.False(t, UsesCarrier(transportsOf(relays, true)), "the relay with the carrier is not live")
	require.False(t, UsesCarrier(transportsOf(nil, false)))
}

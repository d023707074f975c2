package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// A walk takes a second and the delivery hours: PROCESSED 100 % is not what a job does
// whose messages wait.
func TestJobState_IsDeliveringWhileMessagesWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   job.Status
		messages outbox.Progress
		shown    string
		atRest   bool
	}{
		"walks":               {job.Running, outbox.Progress{Messages: 10, Waiting: 10}, "RUNNING", false},
		"is due":              {job.Pending, outbox.Progress{}, "PENDING", false},
		"is walked":           {job.Processed, outbox.Progress{Messages: 100, Sent: 20, Dead: 2, Cancelled: 1, Waiting: 77}, "DELIVERING 23%", false},
		"has one left":        {job.Processed, outbox.Progress{Messages: 1000, Sent: 999, Waiting: 1}, "DELIVERING 99%", false},
		"is delivered":        {job.Processed, outbox.Progress{Messages: 10, Sent: 9, Dead: 1}, "PROCESSED", true},
		"has no messages":     {job.Processed, outbox.Progress{}, "PROCESSED", true},
		"is held":             {job.Aborted, outbox.Progress{Messages: 10, Waiting: 10}, "ABORTED", true},
		"failed, sends still": {job.Failed, outbox.Progress{Messages: 10, Waiting: 10}, "FAILED", false},
		"failed":              {job.Failed, outbox.Progress{Messages: 10, Sent: 10}, "FAILED", true},
		"expired":             {job.Expired, outbox.Progress{}, "EXPIRED", true},
	} {
		s := jobState{job.Job{Status: c.status}, c.messages}
		require.Equal(t, c.shown, s.shown(), name)
		require.Equal(t, c.atRest, s.atRest(), name)
	}
	require.Equal(t, "1,200 of 5,000 sent, 7 dead, 3 cancelled, 3,790 waiting",
		messagesText(outbox.Progress{Messages: 5000, Sent: 1200, Dead: 7, Cancelled: 3, Waiting: 3790}))
}

// An ABORTED job whose walk was over says so.
func TestDone_OfAWalkThatIsOver(t *testing.T) {
	t.Parallel()
	at := noon()
	require.Equal(t, "100%", done(job.Job{Status: job.Aborted, WalkedAt: &at}))
	require.Equal(t, "100%", done(job.Job{Status: job.Processed, WalkedAt: &at}))
	require.Equal(t, "-", done(job.Job{Status: job.Aborted}))
}

func TestPace_ForgetsOverSeconds(t *testing.T) {
	t.Parallel()
	now := noon()
	var p pace
	require.Empty(t, p.text(100))
	p.look(now, 1000)
	require.Empty(t, p.text(100), "one look is no rate")
	require.Negative(t, p.left(100))
	p.look(now.Add(time.Second), 1100)
	require.Equal(t, ", 100/s", p.text(1000), "a second is no basis for a time: it was a far too long one when a delivery began")
	p.look(now.Add(time.Second), 1200) // the clock stands still
	require.InDelta(t, 100, p.rate, 0.001)
	p.look(now.Add(2*time.Second), 1600)
	require.InDelta(t, 180, p.rate, 0.001, "a fifth of the way from 100 to 500, the window being five seconds")
	p.look(now.Add(12*time.Second), 1600)
	require.Equal(t, ", 0/s", p.text(1000), "it stands still for longer than the window")
	p.look(now.Add(20*time.Second), 100)
	require.Zero(t, p.rate, "fewer are no negative rate")
	p = pace{}
	for second := range 4 {
		p.look(now.Add(time.Duration(second)*time.Second), 0)
	}
	for second := range 4 {
		p.look(now.Add(time.Duration(4+second)*time.Second), int64(100*(1+second)))
		require.Equal(t, second >= 2, p.left(1000) >= 0, "after %d seconds of growth", second+1)
	}
	fading := pace{rate: 0.4, known: true}
	require.Equal(t, ", 0/s", fading.text(1_000_000), "an average that fades out tells no time")
}

func TestBar_StaysInItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 0, "[----------]"}, {0, 10, "[----------]"}, {5, 10, "[#####-----]"}, {10, 10, "[##########]"}, {20, 10, "[##########]"}, {-1, 10, "[----------]"}} {
		require.Equal(t, c.want, bar(c.part, c.whole, 10))
	}
}

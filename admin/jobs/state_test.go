package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

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
		s := jobs.JobState{Job: job.Job{Status: c.status}, Messages: c.messages}
		require.Equal(t, c.shown, s.Shown().String(), name)
		require.Equal(t, c.atRest, s.AtRest(), name)
	}
	require.Equal(t, "1,200 of 5,000 sent, 7 dead, 3 cancelled, 3,790 waiting",
		jobs.MessagesText(outbox.Progress{Messages: 5000, Sent: 1200, Dead: 7, Cancelled: 3, Waiting: 3790}))
}

// An ABORTED job whose walk was over says so.
func TestDone_OfAWalkThatIsOver(t *testing.T) {
	t.Parallel()
	at := admintest.Noon()
	require.Equal(t, "100%", jobs.WalkDone(job.Job{Status: job.Aborted, WalkedAt: &at}))
	require.Equal(t, "100%", jobs.WalkDone(job.Job{Status: job.Processed, WalkedAt: &at}))
	require.Equal(t, "-", jobs.WalkDone(job.Job{Status: job.Aborted}))
}

package views

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func TestStopEffect_AddsUp(t *testing.T) {
	t.Parallel()
	million := new(int64(1_000_000))
	for want, s := range map[string]jobs.JobState{
		"Stops now. 412,300 of about 1,000,000 recipients have a message, 61,004 messages were sent, 938,996 people will not get it.": {
			Job:      job.Job{Status: job.Running, ChannelsTotal: million, ChannelsRead: 412_300, RowsWritten: 412_300},
			Messages: outbox.Progress{Messages: 412_300, Sent: 61_004, Waiting: 351_296}},
		"Stops now. 10 of about 40 recipients have it, 30 people will not get it.": {
			Job: job.Job{Status: job.Running, ChannelsTotal: new(int64(80)), ChannelsRead: 20, RowsWritten: 10}},
		"Stops now. 10 recipients have a message, 7 messages were sent, 2 failed, 1 person will not get it.": {
			Job: job.Job{Status: job.Processed, RowsWritten: 10}, Messages: outbox.Progress{Messages: 10, Sent: 7, Dead: 2, Waiting: 1}},
		"Stops now. 0 of about 400 recipients have it, 400 people will not get it.":      {Job: job.Job{Status: job.Pending, ChannelsTotal: new(int64(400))}},
		"Stops now. Nobody has it yet, the recipients who are left will not get it.":     {Job: job.Job{Status: job.Pending}},
		"Stops now. 10 recipients have it, the recipients who are left will not get it.": {Job: job.Job{Status: job.Running, RowsWritten: 10}},
	} {
		require.Equal(t, want, StopEffect(s))
	}
	s := jobs.JobState{Job: job.Job{Status: job.Aborted, ChannelsTotal: new(int64(100)), ChannelsRead: 60, RowsWritten: 60}, Messages: outbox.Progress{Messages: 60, Sent: 50, Waiting: 10}}
	require.Equal(t, "60 of about 100 recipients have a message, 50 messages were sent, 50 people did not get it.", Stopped(s))
	require.Equal(t, "50 people will still get it. 60 of about 100 recipients have a message, 50 messages were sent.", ResumeEffect(s))
	require.Equal(t, "50 people already have the earlier text; 50 people will get the corrected one.", CorrectEffect(s))
	require.Equal(t, "Cancels 10 unsent messages. 50 messages were sent and cannot be taken back.", RecallEffect(s))
	require.Equal(t, "All recipients get the corrected text.", CorrectEffect(jobs.JobState{Job: job.Job{Status: job.Pending}}))
	require.Equal(t, "Takes it back from up to 1 person. Those who have read it keep it.", RecallEffect(jobs.JobState{Job: job.Job{Status: job.Aborted, RowsWritten: 3, Recalled: 2}}))
}

func TestResults_AreInNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10 messages were cancelled; 50 had been sent.", Recalled(delivery.Recalled{Messages: 10, Sent: 50}))
	require.Equal(t, "1 notification was taken back; 2 had been read.", Recalled(delivery.Recalled{Notifications: 1, Read: 2}))
	require.Equal(t, "3 messages were cancelled; 0 had been sent. 2 messages being sent at that moment may still arrive.",
		Recalled(delivery.Recalled{Messages: 3, InFlight: 1, Awaiting: 1}))
	for want, s := range map[string]jobs.JobState{
		"It had no recipients.": {}, "60,000 people have it in their inbox.": {Job: job.Job{Status: job.Processed, RowsWritten: 60_000}},
		"7 messages were sent of 10, 1 cancelled.": {Job: job.Job{RowsWritten: 10}, Messages: outbox.Progress{Messages: 10, Sent: 7, Dead: 2, Cancelled: 1}},
	} {
		require.Equal(t, want, Delivered(s))
	}
}

func TestJobStatus_NamesEveryState(t *testing.T) {
	t.Parallel()
	at := new(time.Now())
	for want, s := range map[words.Status]jobs.JobState{
		{Word: "Waiting", Tone: text.Idle}:                   {Job: job.Job{Status: job.Pending}},
		{Word: "Waiting to continue", Tone: text.Idle}:       {Job: job.Job{Status: job.Pending, Cursor: "17"}},
		{Word: "Waits for approval", Tone: text.Wait}:        {Job: job.Job{Status: job.Pending, AwaitsApprovalSince: at}},
		{Word: "Running", Tone: text.Go}:                     {Job: job.Job{Status: job.Running}},
		{Word: "Running, slowed", Tone: text.Go}:             {Job: job.Job{Status: job.Running, Throttle: "query"}},
		{Word: "Delivering 23 %", Tone: text.Go}:             {Job: job.Job{Status: job.Processed}, Messages: outbox.Progress{Messages: 100, Sent: 20, Dead: 3, Waiting: 77}},
		{Word: "Delivered", Tone: text.Done}:                 {Job: job.Job{Status: job.Processed, RowsWritten: 1}},
		{Word: "Delivered, 1,200 failed", Tone: "part"}:      {Job: job.Job{Status: job.Processed}, Messages: outbox.Progress{Messages: 2000, Sent: 800, Dead: 1200}},
		{Word: "Not delivered, 2 failed", Tone: "bad"}:       {Job: job.Job{Status: job.Processed}, Messages: outbox.Progress{Messages: 2, Dead: 2}},
		{Word: "Delivered, 3 skipped", Tone: words.TonePart}: {Job: job.Job{Status: job.Processed, RowsWritten: 1, Skipped: 3}},
		{Word: "Cancelled", Tone: words.ToneStop}:            {Job: job.Job{Status: job.Processed}, Messages: outbox.Progress{Messages: 2, Cancelled: 2}},
		{Word: "No recipients", Tone: text.Idle}:             {Job: job.Job{Status: job.Processed}},
		{Word: "Recalled", Tone: words.ToneStop}:             {Job: job.Job{Status: job.Processed, RecalledAt: at}},
		{Word: "Stopped", Tone: words.ToneStop}:              {Job: job.Job{Status: job.Aborted}},
		{Word: "Failed", Tone: text.Bad}:                     {Job: job.Job{Status: job.Failed}},
		{Word: "Expired", Tone: text.Bad}:                    {Job: job.Job{Status: job.Expired}},
	} {
		require.Equal(t, want, JobStatus(s, false))
	}
	require.Equal(t, words.Status{Word: "Paused", Tone: words.ToneHold}, JobStatus(jobs.JobState{Job: job.Job{Status: job.Pending}}, true))
	require.Equal(t, words.Status{Word: "Paused", Tone: words.ToneHold},
		JobStatus(jobs.JobState{Job: job.Job{Status: job.Processed}, Messages: outbox.Progress{Messages: 2, Waiting: 2}}, true))
	require.Equal(t, words.Status{Word: "Delivered", Tone: text.Done}, JobStatus(jobs.JobState{Job: job.Job{Status: job.Processed, RowsWritten: 1}}, true))
	require.Equal(t, "Delivering 99 %", JobStatus(jobs.JobState{Job: job.Job{Status: job.Processed},
		Messages: outbox.Progress{Messages: 100_000, Sent: 99_999, Waiting: 1}}, false).Word, "of a whole that is not complete")
	for _, s := range job.Statuses() {
		require.NotEmpty(t, JobStatus(jobs.JobState{Job: job.Job{Status: s}}, false).Word, s)
	}
}

func TestSenderStatus_NamesEveryState(t *testing.T) {
	t.Parallel()
	at := new(time.Now())
	for want, s := range map[words.Status]delivery.SenderState{
		{Word: "Ready", Tone: text.Done}:                 {Relays: 1, Breakers: []string{"closed"}},
		{Word: "Sending", Tone: text.Go}:                 {Relays: 1, SentPerSecond: 0.5},
		{Word: "Paused", Tone: words.ToneHold}:           {Relays: 1, PausedAt: at, Breakers: []string{"open"}},
		{Word: "No relay", Tone: text.Idle}:              {},
		{Word: "Blocked after failures", Tone: text.Bad}: {Relays: 2, Breakers: []string{"closed", "open"}},
		{Word: "Trying again", Tone: text.Wait}:          {Relays: 1, Breakers: []string{"half_open"}},
	} {
		require.Equal(t, want, senderStatus(s))
	}
}

func TestSlowedBy_GivesTheReason(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]job.Job{
		"": {},
		"Slowed: other work keeps the database busy (12 other active connections)": {Throttle: "foreground", ThrottleDetail: "12 other active connections"},
		"Slowed: a new rule": {Throttle: "a_new_rule"},
	} {
		require.Equal(t, want, SlowedBy(jobs.JobState{Job: j}))
	}
}

// The expected end is in the zone of the reader, with its day unless it is today.
func TestJobTimeLeft_HasTheTimeOfTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 13, 20, 0, 0, time.UTC)
	seoul := time.FixedZone("", 9*60*60)
	for _, c := range []struct {
		walk, delivery *float64
		zone           *time.Location
		want           string
	}{
		{new(0.5), new(720.0), time.UTC, "about 12 min left, until 13:32"},
		{new(720.0), nil, seoul, "about 12 min left, until 22:32"},
		{new(5400.0), new(1.0), seoul, "about 1 h 30 min left, until 23:50"},
		{new(7200.0), nil, seoul, "about 2 h left, until Tomorrow 00:20"},
		{new(59.0), nil, time.UTC, "about 59 s left"},
		{new(0.5), nil, time.UTC, "almost done"},
		{nil, new(60.0), time.UTC, ""}, // the walk takes unknown time
	} {
		require.Equal(t, c.want, JobTimeLeft(jobs.WatchedJob{SecondsLeft: c.walk, DeliveryLeft: c.delivery}, c.zone, now))
	}
}

func TestJobProgress_AddUpToTheRecipients(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]jobs.JobState{
		"no recipients yet":                 {},
		"left 400 (100 %)":                  {Job: job.Job{Status: job.Running, ChannelsTotal: new(int64(400))}},
		"written 25 (25 %), left 75 (75 %)": {Job: job.Job{Status: job.Running, ChannelsTotal: new(int64(400)), ChannelsRead: 100, RowsWritten: 25}},
		"written 25 (100 %)":                {Job: job.Job{Status: job.Processed, ChannelsTotal: new(int64(400)), ChannelsRead: 100, RowsWritten: 25}},
		"sent 5 (50 %), failed 1 (10 %), cancelled 1 (10 %), waiting 3 (30 %)": {Job: job.Job{Status: job.Processed, RowsWritten: 10},
			Messages: outbox.Progress{Messages: 10, Sent: 5, Dead: 1, Cancelled: 1, Waiting: 3}},
		"written 20 (50 %), not reached 20 (50 %)": {Job: job.Job{Status: job.Aborted, ChannelsTotal: new(int64(40)), ChannelsRead: 20, RowsWritten: 20}},
	} {
		require.Equal(t, want, JobProgress(s).About)
	}
}

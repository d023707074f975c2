package words

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func TestJobEvent_HasWordsForEveryKind(t *testing.T) {
	t.Parallel()
	of, reason := JobEvent(job.Event{Kind: job.EventThrottled, Reason: "foreground: 12", Detail: json.RawMessage(`{"after": {"throttle": "foreground"}}`)})
	require.Equal(t, Status{"Slowed", text.Wait}, of)
	require.Equal(t, "other work keeps the database busy", reason)
	of, reason = JobEvent(job.Event{Kind: job.EventAborted, Reason: "wrong text", At: time.Now()})
	require.Equal(t, Status{"Stopped", ToneStop}, of)
	require.Equal(t, "wrong text", reason)
	of, _ = JobEvent(job.Event{Kind: "later_added"})
	require.Equal(t, "Later added", of.Word)
}

func TestResult_HasWordsForEveryReason(t *testing.T) {
	t.Parallel()
	require.Equal(t, Status{"Failed, invalid address", text.Bad}, Result(outbox.ReasonDead, outbox.ReasonInvalidAddress))
	for _, r := range outbox.Reasons() {
		require.Regexp(t, `^[A-Z][a-z ]+$`, Result(r, "").Word)
	}
}

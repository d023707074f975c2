package words

import (
	"encoding/json"
	"strings"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// RecipientsLeft estimates the recipients that the walk of a job has not reached. It returns false if the
// number is unknown.
func RecipientsLeft(s jobs.JobState) (n int64, known bool) {
	if s.Status == job.Processed || s.WalkedAt != nil {
		return 0, true
	}
	total, known := s.Total()
	if !known {
		return 0, false
	}
	left := total - s.ChannelsRead
	if s.ChannelsRead > 0 {
		return int64(float64(left) * float64(s.RowsWritten) / float64(s.ChannelsRead)), true
	}
	return left, true
}

// Unserved returns the recipients that a job has not served: not reached, or with a message that waits. It
// returns false if the number is unknown.
func Unserved(s jobs.JobState) (n int64, known bool) {
	left, known := RecipientsLeft(s)
	return left + s.Messages.Waiting, known
}

// StopEffect returns the effect of stopping a job, in numbers.
func StopEffect(s jobs.JobState) string {
	return "Stops now. " + reached(s) + ", " + unserved(s, "will not get it") + "."
}

// Stopped returns the result of a job that was stopped, in numbers.
func Stopped(s jobs.JobState) string { return reached(s) + ", " + unserved(s, "did not get it") + "." }

// Ended returns the result of a stop that arrived after the end of the job.
func Ended(s jobs.JobState) string {
	switch s.Status {
	case job.Aborted:
		return "It was stopped already. " + Stopped(s)
	case job.Failed:
		return "It failed before the stop arrived; nothing was left to stop."
	case job.Expired:
		return "It expired before the stop arrived; nothing was left to stop."
	case job.Pending, job.Running, job.Processed:
	}
	return "It finished before the stop arrived; nothing was left to stop."
}

// ResumeEffect returns the effect of resuming a job, in numbers.
func ResumeEffect(s jobs.JobState) string {
	return Sentence(unserved(s, "will still get it")) + ". " + reached(s) + "."
}

// reached returns the recipients that a job has reached, such as "412,300 of 1,000,000 recipients have a message,
// 61,004 messages were sent".
func reached(s jobs.JobState) string {
	left, known := RecipientsLeft(s)
	of := text.Counted(s.RowsWritten, "recipient")
	if known && left > 0 {
		of = text.Grouped(s.RowsWritten) + " of about " + text.Counted(s.RowsWritten+left, "recipient")
	}
	have := " have "
	if s.RowsWritten == 1 && left == 0 {
		have = " has "
	}
	m := s.Messages
	switch {
	case s.RowsWritten == 0 && left == 0:
		return "Nobody has it yet"
	case m.Messages == 0:
		return of + have + "it"
	}
	line := of + have + "a message, " + were(m.Sent, "message") + " sent"
	if m.Dead > 0 {
		line += ", " + text.Grouped(m.Dead) + " failed"
	}
	return line
}

// unserved returns the recipients without the content of a job and a verb phrase.
func unserved(s jobs.JobState, phrase string) string {
	n, known := Unserved(s)
	switch {
	case !known:
		return "the recipients who are left " + phrase
	case n == 0:
		return "nobody else " + phrase
	}
	return people(n) + " " + phrase
}

// people returns a number of people.
func people(n int64) string {
	if n == 1 {
		return "1 person"
	}
	return text.Grouped(n) + " people"
}

// were returns a number of things with the verb.
func were(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return text.Counted(n, noun) + " were"
}

// CorrectEffect returns the effect of correcting the text of a job, in numbers.
func CorrectEffect(s jobs.JobState) string {
	had := s.RowsWritten
	if s.Messages.Messages > 0 {
		had = s.Messages.Sent
	}
	if had == 0 {
		return "All recipients get the corrected text."
	}
	return Sentence(people(had)) + " already have the earlier text; " + unserved(s, "will get the corrected one") + "."
}

// Delivered returns the result of a job that has ended, in numbers.
func Delivered(s jobs.JobState) string {
	m := s.Messages
	switch {
	case s.RowsWritten == 0:
		return "It had no recipients."
	case m.Messages == 0:
		return Sentence(people(s.RowsWritten-s.Recalled-s.Erased)) + " have it in their inbox."
	}
	line := Sentence(were(m.Sent, "message")) + " sent of " + text.Grouped(m.Messages)
	if m.Cancelled > 0 {
		line += ", " + text.Grouped(m.Cancelled) + " cancelled"
	}
	return line + "."
}

// RecallEffect returns the effect of recalling a job, in numbers.
func RecallEffect(s jobs.JobState) string {
	if m := s.Messages; m.Messages > 0 {
		return "Cancels " + text.Counted(m.Waiting, "unsent message") + ". " + were(m.Sent, "message") + " sent and cannot be taken back."
	}
	return "Takes it back from up to " + people(max(0, s.RowsWritten-s.Recalled-s.Erased)) + ". Those who have read it keep it."
}

// Recalled returns the result of a recall, in numbers.
func Recalled(r delivery.Recalled) string {
	line := ""
	if r.Messages+r.Sent+r.Dead+r.InFlight+r.Awaiting > 0 || r.Notifications+r.Read == 0 {
		line = Sentence(were(r.Messages, "message")) + " cancelled; " + text.Grouped(r.Sent) + " had been sent."
	}
	if r.Notifications+r.Read > 0 {
		line += " " + Sentence(were(r.Notifications, "notification")) + " taken back; " + text.Grouped(r.Read) + " had been read."
	}
	if n := r.InFlight + r.Awaiting; n > 0 {
		line += " " + text.Counted(n, "message") + " being sent at that moment may still arrive."
	}
	return strings.TrimSpace(line)
}

// jobEvents are the events of jobs in words, with their tones.
var jobEvents = map[string]Status{
	"enqueued": {"Requested", text.Idle}, job.EventClaimed: {"Started", text.Go},
	job.EventResumed:     {"Taken over by another process", text.Wait},
	job.EventInterrupted: {"Interrupted, to be continued", text.Wait}, job.EventPreempted: {"Made way for a more urgent job", text.Wait},
	job.EventLanePaused: {"Held: its lane was paused", ToneHold}, job.EventHalted: {"Held: everything was halted", ToneHold},
	job.EventAborted: {"Stopped", ToneStop}, job.EventFinished: {"All recipients written", text.Done}, job.EventFailed: {"Failed", text.Bad},
	job.EventExpired: {"Expired before it started", text.Bad}, "resume_requested": {"Resumed", text.Go},
	"retry_requested":         {"Retried", text.Go},
	"retry_skipped_requested": {"Retried for the skipped recipients", text.Go}, job.EventChanged: {"Changed", text.Idle},
	job.EventApproved: {"Approved", text.Done}, job.EventThrottled: {"Slowed", text.Wait}, job.EventReleased: {"At full speed again", text.Go},
	job.EventRecalled: {"Recalled", ToneStop},
}

// JobEvent returns the words of an event of a job. The reason of a slow walk is in words, too.
func JobEvent(e job.Event) (of Status, reason string) {
	of, known := jobEvents[e.Kind]
	if !known {
		of = Status{Sentence(strings.ReplaceAll(e.Kind, "_", " ")), text.Idle}
	}
	var detail struct{ After struct{ Throttle string } }
	if e.Kind == job.EventThrottled && json.Unmarshal(e.Detail, &detail) == nil && detail.After.Throttle != "" {
		return of, throttledBy(detail.After.Throttle)
	}
	return of, e.Reason
}

// results are the results of recipients in words.
var results = map[string]string{
	string(outbox.ReasonUnread): "In the inbox", string(outbox.ReasonRead): "Read", string(outbox.ReasonWithdrawn): "Taken back",
	string(outbox.ReasonSent):    "Sent",
	string(outbox.ReasonSending): "Being sent", string(outbox.ReasonWaiting): "Waiting", string(outbox.ReasonHeld): "Held",
	string(outbox.ReasonCancelled): "Cancelled",
	string(outbox.ReasonDead):      "Failed", string(outbox.ReasonSkipped): "Skipped", string(outbox.ReasonInactive): "Opted out",
	string(outbox.ReasonOutOfAudience): "Not in the audience", string(outbox.ReasonNotReached): "Not reached yet",
	string(outbox.ReasonMissing): "Missing",
	string(outbox.ReasonPruned):  "No record any more", string(outbox.ReasonOwnType): "Unknown",
}

// Result returns the result of a recipient, such as "Failed, invalid address".
func Result(reason, why outbox.Reason) Status {
	word, known := results[string(reason)]
	if !known {
		word = Sentence(strings.ReplaceAll(string(reason), "_", " "))
	}
	if why != "" {
		word += ", " + strings.ReplaceAll(string(why), "_", " ")
	}
	return Status{word, text.Status(reason).Tone}
}

package views

import (
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// JobStatus returns the status of a job. held means that a halt or a paused lane holds it.
func JobStatus(s jobs.JobState, held bool) words.Status {
	switch {
	case s.AwaitsApproval():
		return words.Status{Word: "Waits for approval", Tone: text.Wait}
	case s.Status == job.Pending && held, s.Delivering() && held:
		return words.Status{Word: "Paused", Tone: words.ToneHold}
	case s.Delivering():
		return words.Status{Word: "Delivering " + percentOf(s.Settled(), s.Messages.Messages), Tone: text.Go}
	}
	switch s.Status {
	case job.Pending:
		if s.Cursor != "" {
			return words.Status{Word: "Waiting to continue", Tone: text.Idle}
		}
		return words.Status{Word: "Waiting", Tone: text.Idle}
	case job.Running:
		if s.Throttle != "" {
			return words.Status{Word: "Running, slowed", Tone: text.Go}
		}
		return words.Status{Word: "Running", Tone: text.Go}
	case job.Aborted:
		if s.RecalledAt != nil {
			return words.Status{Word: "Recalled", Tone: words.ToneStop}
		}
		return words.Status{Word: "Stopped", Tone: words.ToneStop}
	case job.Failed:
		return words.Status{Word: "Failed", Tone: text.Bad}
	case job.Expired:
		return words.Status{Word: "Expired", Tone: text.Bad}
	case job.Processed:
	}
	return deliveredStatus(s)
}

// deliveredStatus returns the status of a finished job.
func deliveredStatus(s jobs.JobState) words.Status {
	m := s.Messages
	switch {
	case s.RecalledAt != nil:
		return words.Status{Word: "Recalled", Tone: words.ToneStop}
	case m.Dead > 0 && m.Sent == 0:
		return words.Status{Word: "Not delivered, " + text.Grouped(m.Dead) + " failed", Tone: text.Bad}
	case m.Dead > 0:
		return words.Status{Word: "Delivered, " + text.Grouped(m.Dead) + " failed", Tone: words.TonePart}
	case s.Skipped > 0:
		return words.Status{Word: "Delivered, " + text.Grouped(s.Skipped) + " skipped", Tone: words.TonePart}
	case m.Messages > 0 && m.Sent == 0:
		return words.Status{Word: "Cancelled", Tone: words.ToneStop}
	case s.RowsWritten == 0:
		return words.Status{Word: "No recipients", Tone: text.Idle}
	}
	return words.Status{Word: "Delivered", Tone: text.Done}
}

// EndLabel returns the name of a job's FinishedAt, which is the end of its walk: messages may still wait.
func EndLabel(s jobs.JobState) string {
	if s.Status == job.Processed && s.Messages.Messages > 0 {
		return "All written"
	}
	return "Finished"
}

// SlowedBy returns the reason of a slow walk, or "" at full speed.
func SlowedBy(s jobs.JobState) string {
	if s.Throttle == "" {
		return ""
	}
	why := words.ThrottledBy(s.Throttle)
	if s.ThrottleDetail != "" {
		why += " (" + s.ThrottleDetail + ")"
	}
	return "Slowed: " + why
}

// percentOf returns a part of an incomplete whole, at most 99 %.
func percentOf(part, whole int64) string {
	return strconv.FormatInt(jobs.Percentage(part, whole), 10) + " %"
}

// JobTimeLeft returns the expected time until a job has ended, and if it is a minute or more the time of its end in
// a zone: "about 12 min left, until 14:32". The end is that of its walk or of its delivery, if that takes longer.
func JobTimeLeft(w jobs.WatchedJob, zone *time.Location, now time.Time) string {
	seconds := w.SecondsLeft
	if seconds != nil && w.DeliveryLeft != nil && *w.DeliveryLeft > *seconds {
		seconds = w.DeliveryLeft
	}
	left := words.TimeLeft(seconds)
	if left == "" || *seconds < 60 {
		return left
	}
	return left + ", until " + words.Clock(words.In(zone, now.Add(time.Duration(*seconds)*time.Second)), now)
}

// JobRate returns the rate of a job in progress: messages while they are delivered, else recipients. It is
// empty if it is unknown or zero.
func JobRate(w jobs.WatchedJob) string {
	rate, noun := w.KeysPerSecond, "recipients"
	if w.Status != job.Running {
		rate, noun = w.SentPerSecond, "messages"
	}
	if rate == nil || *rate <= 0 || w.AtRest {
		return ""
	}
	return words.PerSecond(*rate, noun)
}

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
	return words.Sentence(unserved(s, "will still get it")) + ". " + reached(s) + "."
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
	return words.Sentence(people(had)) + " already have the earlier text; " + unserved(s, "will get the corrected one") + "."
}

// Delivered returns the result of a job that has ended, in numbers.
func Delivered(s jobs.JobState) string {
	m := s.Messages
	switch {
	case s.RowsWritten == 0:
		return "It had no recipients."
	case m.Messages == 0:
		return words.Sentence(people(s.RowsWritten-s.Recalled-s.Erased)) + " have it in their inbox."
	}
	line := words.Sentence(were(m.Sent, "message")) + " sent of " + text.Grouped(m.Messages)
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
		line = words.Sentence(were(r.Messages, "message")) + " cancelled; " + text.Grouped(r.Sent) + " had been sent."
	}
	if r.Notifications+r.Read > 0 {
		line += " " + words.Sentence(were(r.Notifications, "notification")) + " taken back; " + text.Grouped(r.Read) + " had been read."
	}
	if n := r.InFlight + r.Awaiting; n > 0 {
		line += " " + text.Counted(n, "message") + " being sent at that moment may still arrive."
	}
	return strings.TrimSpace(line)
}

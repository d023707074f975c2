package words

import (
	"encoding/json"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

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
		return of, ThrottledBy(detail.After.Throttle)
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

package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// fate is the result of a job or a single message for a person.
type fate string

const (
	fateGot    fate = "got"
	fateMissed fate = "missed"
	fateComing fate = "coming"
)

// personWhys are reasons whose sentence is about the person, or not in words of operators.
var personWhys = map[outbox.Reason]string{ //nolint:exhaustive // the others have their text in outbox
	outbox.ReasonQuietHours: "It waits for the end of the person's quiet hours",
	outbox.ReasonOptedOut:   "The person does not want it, or is not active",
	outbox.ReasonNoAddress:  "The person has no address for any medium of the route",
	outbox.ReasonDiscarded:  "It failed, and an operator discarded it",
	outbox.ReasonUnknown:    "The last medium failed as often as it may, and an attempt may have been accepted",
}

// outcomeOf returns the result of a job or a single message for a person, with the reason in a sentence.
func outcomeOf(l accounts.HistoryLine) (s words.Status, why string, of fate) {
	because := cmp.Or(personWhys[l.Why], words.Sentence(outbox.WhyText(l.Reason, l.Why)))
	of = fateMissed
	switch l.Reason { //nolint:exhaustive // missedBecause has the others
	case outbox.ReasonSent:
		s, why, of = words.Status{Word: "Got it", Tone: text.Done}, "Sent"+by(l)+attempts(l), fateGot
	case outbox.ReasonRead:
		s, why, of = words.Status{Word: "Read it", Tone: text.Done}, "It is in the inbox, and was read", fateGot
	case outbox.ReasonUnread:
		s, why, of = words.Status{Word: "Has it", Tone: text.Done}, "It is in the inbox, and was not read yet", fateGot
	case outbox.ReasonSending:
		s, why, of = words.Status{Word: "Being sent", Tone: text.Go}, cmp.Or(because, "The provider is being called"+by(l)), fateComing
	case outbox.ReasonWaiting:
		s, why, of = words.Status{Word: "Will get it", Tone: text.Idle}, cmp.Or(because, "It waits for its turn"+by(l)), fateComing
	case outbox.ReasonNotReached:
		s, why, of = notReached(l.Status)
	case outbox.ReasonHeld:
		s, why, of = words.Status{Word: "Held", Tone: words.ToneHold}, "The job is stopped; the message is sent if the job is resumed", fateComing
	default:
		s, why = missedBecause(l, because)
	}
	if l.LeftSince {
		why += "; the person is not in the audience now"
	}
	if l.Revision != nil && *l.Revision < l.Corrected {
		why += "; " + earlierText(*l.Revision, l.Corrected)
	}
	return s, strings.TrimSuffix(why, ".") + ".", of
}

// earlierText describes the text of a message that was sent after a number of corrections, fewer than the job has.
func earlierText(after, all int) string {
	switch {
	case all == 1:
		return "it has the text from before the correction"
	case after == 0:
		return fmt.Sprintf("it has the text from before the %d corrections", all)
	}
	return fmt.Sprintf("it has the text of correction %d of %d, which is not the newest", after, all)
}

// notReached returns the prospect of a job that has not reached a person of its audience.
func notReached(of job.Status) (words.Status, string, fate) {
	switch of {
	case job.Aborted:
		return words.Status{Word: "Not reached", Tone: words.ToneStop},
			"The job was stopped before the person's turn; if it is resumed, the person gets it", fateMissed
	case job.Failed:
		return words.Status{Word: "Not reached", Tone: text.Bad}, "The job failed before the person's turn; if it is retried, the person gets it", fateMissed
	case job.Expired:
		return words.Status{Word: "Not reached", Tone: text.Bad}, "The job expired before the person's turn", fateMissed
	case job.Pending, job.Running, job.Processed:
	}
	return words.Status{Word: "Will get it", Tone: text.Idle}, "The person is in the audience, and the turn has not come", fateComing
}

// missedBecause returns why a person did not get a job or a single message.
func missedBecause(l accounts.HistoryLine, because string) (s words.Status, why string) {
	switch l.Reason { //nolint:exhaustive // the caller has the others
	case outbox.ReasonWithdrawn:
		return words.Status{Word: "Recalled", Tone: words.ToneStop}, "It was in the inbox until it was recalled"
	case outbox.ReasonCancelled:
		return words.Status{Word: "Not sent", Tone: words.ToneStop}, cmp.Or(because, "It was cancelled")
	case outbox.ReasonDead:
		return words.Status{Word: "Failed", Tone: text.Bad}, cmp.Or(because, "It could not be sent") + way(l)
	case outbox.ReasonSkipped:
		return words.Status{Word: "Failed", Tone: text.Bad}, "The row of this person could not be written"
	case outbox.ReasonMissing:
		return words.Status{Word: "Missing", Tone: text.Bad}, "The person was in the audience all the time and has no row: this is a fault"
	case outbox.ReasonInactive:
		return words.Status{Word: "Not sent", Tone: words.ToneStop}, "The person is in the audience, but not active"
	case outbox.ReasonOutOfAudience:
		return words.Status{Word: "Not addressed", Tone: text.Idle}, "The person is not in the audience"
	case outbox.ReasonArrivedLater, outbox.ReasonJoinedSince:
		return words.Status{Word: "Not addressed", Tone: text.Idle}, "The person joined the audience after the turn had passed"
	case outbox.ReasonPruned:
		return words.Status{Word: "Not known any more", Tone: text.Idle}, "The rows of this job were deleted after their retention"
	case outbox.ReasonOwnType:
		return words.Status{Word: "Not known", Tone: text.Idle}, "The application keeps the rows of jobs of this type"
	}
	return words.Status{Word: words.Sentence(strings.ReplaceAll(string(l.Reason), "_", " ")), Tone: text.Idle}, words.Sentence(l.Reason.Text())
}

// by returns the medium and the sender of a message.
func by(l accounts.HistoryLine) (words string) {
	if l.Medium != "" {
		words = " by " + l.Medium
		if l.Sender != "" {
			words += " through " + text.OneLine(l.Sender, 80)
		}
	}
	return words
}

// way returns the medium and the number of attempts in brackets.
func way(l accounts.HistoryLine) string {
	words := strings.TrimPrefix(by(l), " by ")
	if l.Attempts > 1 {
		words = strings.TrimPrefix(words+", "+text.Counted(int64(l.Attempts), "attempt"), ", ")
	}
	if words == "" {
		return ""
	}
	return " (" + words + ")"
}

// attempts returns the number of attempts above one.
func attempts(l accounts.HistoryLine) string {
	if l.Attempts > 1 {
		return " in " + text.Counted(int64(l.Attempts), "attempt")
	}
	return ""
}

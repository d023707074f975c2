package outbox

// Reason is the result, or the present state, of one channel in one job.
type Reason string

// The states of a channel's notification or message.
const (
	ReasonUnread    Reason = "unread"
	ReasonRead      Reason = "read"
	ReasonWithdrawn Reason = "withdrawn"
	ReasonSent      Reason = "sent"
	ReasonSending   Reason = "sending"
	ReasonWaiting   Reason = "pending"
	ReasonHeld      Reason = "held"
	ReasonCancelled Reason = "cancelled"
	ReasonDead      Reason = "dead"
)

// The reasons for which a channel has no row.
const (
	ReasonSkipped       Reason = "skipped"
	ReasonInactive      Reason = "inactive"
	ReasonNoValue       Reason = "no_value"
	ReasonOutOfAudience Reason = "out_of_audience"
	ReasonNotReached    Reason = "not_reached"
	ReasonArrivedLater  Reason = "arrived_later"
	ReasonJoinedSince   Reason = "joined_since"
	ReasonMissing       Reason = "missing"
)

// ReasonReceipt is the reason of a message in flight that awaits its provider's receipt.
const ReasonReceipt Reason = "receipt"

// Marks are counted in addition to another reason.
const (
	ReasonLeftSince      Reason = "left_since"
	ReasonChannelDeleted Reason = "channel_deleted"
)

// ReasonCollapsed is the state of a notification that another one counts.
const ReasonCollapsed Reason = "collapsed"

// The reasons for which the history is not sufficient for an audit.
const (
	ReasonPruned  Reason = "pruned"
	ReasonOwnType Reason = "own_type"
)

// texts has the text of each reason, in the order of a report.
var texts = []struct {
	reason Reason
	text   string
}{
	{ReasonUnread, "has the notification and has not read it"},
	{ReasonRead, "has read the notification"},
	{ReasonWithdrawn, "had the notification until it was recalled"},
	{ReasonSent, "was sent the message"},
	{ReasonSending, "is being sent the message"},
	{ReasonWaiting, "has a message that is still to be sent"},
	{ReasonHeld, "has a message that is held because the job is aborted"},
	{ReasonCancelled, "has a message that is not sent"},
	{ReasonDead, "has a message that could not be sent: a dead letter"},
	{ReasonSkipped, "was skipped because the row could not be written"},
	{ReasonNoValue, "is in the audience, and the job has no value for it"},
	{ReasonInactive, "is in the audience but not active"},
	{ReasonOutOfAudience, "is not in the audience"},
	{ReasonNotReached, "is in the audience and its turn has not come"},
	{ReasonArrivedLater, "is in the audience and arrived after the start"},
	{ReasonJoinedSince, "is in the audience now and may not have been when its turn came"},
	{ReasonMissing, "was in the audience all the time and has no row: a fault"},
	{ReasonLeftSince, "of those with a row: would not be in the audience now"},
	{ReasonChannelDeleted, "of those with a row or skipped: the channel is gone"},
}

// whys has the texts of the reasons for which messages are dead, cancelled or waiting, in the order of a
// report.
var whys = []struct {
	of, why Reason
	text    string
}{
	{ReasonSending, ReasonReceipt, "the provider has taken it, and its receipt is awaited"},
	{ReasonWaiting, ReasonRetry, "it waits for the next attempt"},
	{ReasonWaiting, ReasonFailover, "it waits for its first attempt by the next medium"},
	{ReasonWaiting, ReasonRedriven, "an operator returned it to the queue"},
	{ReasonWaiting, ReasonQuietHours, "it waits for the end of the channel's quiet hours"},
	{ReasonWaiting, ReasonCapped, "it waits for others in flight that may fill the category's cap"},
	{ReasonWaiting, ReasonUncounted, "the window of the category's cap has too many jobs or activities to count"},
	{ReasonWaiting, ReasonBreakerOpen, "it waits for the provider to recover"},
	{ReasonWaiting, ReasonSenderBusy, "it waits for its turn within the sender's rate"},
	{ReasonWaiting, ReasonSenderPaused, "an operator paused the sender"},
	{ReasonWaiting, ReasonNoSender, "the relay that claimed it has no sender for the platform"},
	{ReasonCancelled, ReasonRecalled, "it was recalled"},
	{ReasonCancelled, ReasonOptedOut, "the channel does not want it, or is not active"},
	{ReasonCancelled, ReasonCapped, "the category's cap was reached"},
	{ReasonCancelled, ReasonDiscarded, "it died, and an operator discarded it"},
	{ReasonDead, ReasonPermanent, "the provider refused it permanently"},
	{ReasonDead, ReasonInvalidAddress, "the provider does not know the address"},
	{ReasonDead, ReasonExhausted, "the last medium failed as often as it may"},
	{ReasonDead, ReasonUnknown, "as exhausted, and an attempt may have been accepted"},
	{ReasonDead, ReasonCrashed, "relays died sending it"},
	{ReasonDead, ReasonNoAddress, "the channel has no address for any medium of the route"},
	{ReasonDead, ReasonBadContent, "its content cannot be made"},
}

// Whys lists the detailed reasons for a state r, in the order of a report. A held message has the same
// reasons as a waiting one.
func Whys(r Reason) (list []Reason) {
	if r == ReasonHeld {
		r = ReasonWaiting
	}
	for _, w := range whys {
		if w.of == r {
			list = append(list, w.why)
		}
	}
	return list
}

// WhyText returns the text of a detailed reason for state r, or "" for none.
func WhyText(r, why Reason) string {
	if r == ReasonHeld {
		r = ReasonWaiting
	}
	for _, w := range whys {
		if w.of == r && w.why == why {
			return w.text
		}
	}
	return string(why)
}

// Reasons lists every reason in the order of a report, marks last.
func Reasons() []Reason {
	list := make([]Reason, len(texts))
	for i, t := range texts {
		list[i] = t.reason
	}
	return list
}

// Text completes the sentence "the channel …".
func (r Reason) Text() string {
	for _, t := range texts {
		if t.reason == r {
			return t.text
		}
	}
	switch {
	case r == ReasonCollapsed:
		return "has a later notification that counts this one"
	case r == ReasonPruned:
		return "has no row any more, if it had one: retention deletes them"
	case r == ReasonOwnType:
		return "may have got it: the job is of the application's own type, whose rows belfry does not know"
	}
	return string(r)
}

// Mark reports whether r is counted in addition to another reason.
func (r Reason) Mark() bool { return r == ReasonLeftSince || r == ReasonChannelDeleted }

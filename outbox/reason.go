package outbox

// Reason says what became of one channel in one job.
type Reason string

// What has become of a channel's row: of a notification, and of a message.
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

// Why a channel has no row.
const (
	ReasonSkipped       Reason = "skipped"
	ReasonInactive      Reason = "inactive"
	ReasonOutOfAudience Reason = "out_of_audience"
	ReasonNotReached    Reason = "not_reached"
	ReasonArrivedLater  Reason = "arrived_later"
	ReasonJoinedSince   Reason = "joined_since"
	ReasonMissing       Reason = "missing"
)

// Marks are counted beside another reason.
const (
	ReasonLeftSince      Reason = "left_since"
	ReasonChannelDeleted Reason = "channel_deleted"
)

// texts says each reason to people, in the order of a report.
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
	{ReasonCancelled, "had a message that was recalled before it was sent"},
	{ReasonDead, "has a message that could not be sent"},
	{ReasonSkipped, "was skipped because the row could not be written"},
	{ReasonInactive, "is in the audience but not active: opted out"},
	{ReasonOutOfAudience, "is not in the audience"},
	{ReasonNotReached, "is in the audience and its turn has not come"},
	{ReasonArrivedLater, "is in the audience and arrived after the start"},
	{ReasonJoinedSince, "is in the audience now and may not have been when its turn came"},
	{ReasonMissing, "was in the audience all the time and has no row: a fault"},
	{ReasonLeftSince, "of those with a row: would not be in the audience now"},
	{ReasonChannelDeleted, "of those with a row or skipped: the channel is gone"},
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
	return string(r)
}

// Mark reports whether r is counted beside another reason.
func (r Reason) Mark() bool { return r == ReasonLeftSince || r == ReasonChannelDeleted }

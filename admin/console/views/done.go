package views

import (
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// Done returns the effect of an act in one sentence or two. verb is of its operation, out its typed result.
func Done(verb string, out any) string {
	if acted, is := out.(operation.Acted); is {
		out = acted.Result
	}
	switch r := out.(type) {
	case delivery.Sender:
		return senderDone(verb, r.SenderState)
	case *delivery.DeadReport:
		return lettersDone(verb, r.DeadDone)
	case *delivery.TransportDone:
		if verb == "rebuild" {
			return "Handed to the carrier again: " + text.Counted(r.Messages, "message") + "."
		}
		return "Taken back from the carrier: " + text.Counted(r.Messages, "message") + "."
	case recipients.OptedOut:
		return "This person gets no more messages" + scopeOf(r.OptOut) + "."
	case recipients.OptedIn:
		if len(r.OptOuts) == 0 {
			return "There was no such opt-out."
		}
		return "This person gets messages" + scopeOf(r.OptOuts[0]) + " again."
	case *recipients.ForgetReport:
		return "All data of the person is erased: " + text.Counted(r.Rows(), "row") + "."
	}
	return "Done."
}

// senderDone describes a sender after an act.
func senderDone(verb string, s delivery.SenderState) string {
	name := text.OneLine(s.Name, 80)
	switch {
	case verb == "set":
		return name + ": " + limitsOf(s) + ". Relays follow within about a second."
	case s.PausedAt != nil:
		return name + " is paused. Its messages wait and count no attempt."
	}
	return name + " sends again."
}

// lettersDone describes the effect of an act on messages that had failed.
func lettersDone(verb string, d delivery.DeadDone) string {
	said := "Discarded: "
	if verb == "redrive" {
		said = "Due again: "
	}
	said += text.Counted(d.Changed, "message")
	if d.Held > 0 {
		said += ", " + text.Grouped(d.Held) + " of them once their job is resumed"
	}
	if left := d.Recalled + d.Retention; left > 0 {
		said += "; left: " + text.Grouped(left) + ", whose job was recalled or whose rows are being deleted"
	}
	return said + "."
}

// scopeOf returns the category and the medium of an opt-out after "messages".
func scopeOf(o channels.OptOut) (words string) {
	if o.Category != channels.Any {
		words += " of " + o.Category
	}
	if o.Medium != channels.Any {
		words += " by " + o.Medium
	}
	return words
}

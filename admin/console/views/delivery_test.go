package views

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
)

func TestLimitsOf_NamesWhatIsInForce(t *testing.T) {
	t.Parallel()
	force := []outbox.SenderLimits{{RatePerSecond: 500, Concurrency: 8}, {RatePerSecond: 0, Concurrency: 8}}
	for want, s := range map[string]delivery.SenderState{
		"limits as configured":                        {},
		"500/s or no limit, 8 at once on each relay":  {InForce: force},
		"12/s, 8 at once on each relay":               {InForce: force, RatePerSecond: new(12.0)},
		"12/s, concurrency as configured":             {RatePerSecond: new(12.0)},
		"rate as configured, 2 at once on each relay": {Concurrency: new(2)},
	} {
		require.Equal(t, want, limitsOf(s))
	}
	require.Equal(t, "500 or no limit", newLimitsForm(delivery.SenderState{InForce: force}, Form{}).RateNow, "its field has the unit")
}

func TestDeliverySummary_CountsLiveRelays(t *testing.T) {
	t.Parallel()
	list := delivery.Senders{Senders: []delivery.SenderState{{SentPerSecond: 30, FailedPerSecond: 10, Waiting: 1200}, {}}, Relays: []delivery.RelayState{{}, {Live: true}}}
	require.Equal(t, "Sent 30/s · failed 25 % · 1,200 messages in queues · 1 relay", deliverySummary(list))
	list.Relays = list.Relays[:1]
	require.Contains(t, deliverySummary(list), "No relay is running")
}

func TestCarrierStatus_NamesTheGravest(t *testing.T) {
	t.Parallel()
	leads := time.Now()
	queue := func(queued int64, c *delivery.CarrierQueue) delivery.TransportQueue {
		return delivery.TransportQueue{QueueState: delivery.QueueState{Queued: queued, LeadsUntil: &leads}, Carrier: c}
	}
	for want, q := range map[string]delivery.TransportQueue{
		"No relay hands over":       {QueueState: delivery.QueueState{Queued: 1}},
		"Unknown":                   queue(1, nil),
		"Memory lost, is rebuilt":   queue(1, &delivery.CarrierQueue{}),
		"Full":                      queue(0, &delivery.CarrierQueue{Full: true}),
		"Relays are at their limit": queue(1, &delivery.CarrierQueue{InStep: true, Most: 5, Taken: 3, Later: 2}),
		"In step":                   queue(0, &delivery.CarrierQueue{}),
	} {
		require.Equal(t, want, carrierStatus(q).Word)
	}
}

func TestDone_IsASentence(t *testing.T) {
	t.Parallel()
	paused := delivery.Sender{SenderState: delivery.SenderState{Name: "fcm", PausedAt: new(time.Time)}}
	for want, act := range map[string]struct {
		verb string
		out  any
	}{
		"fcm is paused. Its messages wait and count no attempt.": {"pause", operation.Acted{Result: paused}},
		"gate sends again.": {"resume", delivery.Sender{SenderState: delivery.SenderState{Name: "gate"}}},
		"fcm: limits as configured. Relays follow within about a second.":                                                              {"set", paused},
		"Due again: 5 messages, 2 of them once their job is resumed; left: 3, whose job was recalled or whose rows are being deleted.": {"redrive", &delivery.DeadReport{DeadDone: delivery.DeadDone{Changed: 5, Held: 2, Recalled: 1, Retention: 2}}},
		"Discarded: 1 message.":                             {"discard", &delivery.DeadReport{DeadDone: delivery.DeadDone{Changed: 1}}},
		"Handed to the carrier again: 7 messages.":          {"rebuild", &delivery.TransportDone{Messages: 7}},
		"Taken back from the carrier: 7 messages.":          {"drain", &delivery.TransportDone{Messages: 7}},
		"This person gets no more messages of news by sms.": {"opt-out", recipients.OptedOut{OptOut: channels.OptOut{Category: "news", Medium: "sms"}}},
		"This person gets no more messages.":                {"opt-out", recipients.OptedOut{OptOut: channels.OptOut{Category: "*", Medium: "*"}}},
		"There was no such opt-out.":                        {"opt-in", recipients.OptedIn{}},
		"This person gets messages by sms again.":           {"opt-in", recipients.OptedIn{OptOuts: []channels.OptOut{{Category: "*", Medium: "sms"}}}},
		"All data of the person is erased: 2 rows.":         {"forget", &recipients.ForgetReport{Forgotten: recipients.Forgotten{Messages: 2}}},
		"Done.": {"pause", nil},
	} {
		require.Equal(t, want, Done(act.verb, act.out))
	}
}

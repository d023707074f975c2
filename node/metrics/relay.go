package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// relayed counts the events of one relay. It is an outbox.Observer.
type relayed struct {
	messages, results, dead, rebuilds *prometheus.CounterVec
	calls                             *prometheus.HistogramVec
	media                             []string
}

const (
	noMedium    = "none"  // no call was made
	otherMedium = "other" // of no sender here
)

// Relay registers the metrics of a relay with these senders, and returns its observer
// (relay.WithObserver). RelayStats adds the state of the relay.
func (m *Metrics) Relay(senders []relay.SenderConfig) outbox.Observer {
	r := &relayed{
		messages: m.counter("belfry_messages_recorded_total",
			"Outcomes of messages that this relay recorded, by the medium of the last call.", "medium", "outcome"),
		dead: m.counter("belfry_dead_letters_total", "Messages that this relay made dead letters.", "reason"),
		calls: m.histogram("belfry_provider_call_duration_seconds", "Duration of calls of providers.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, "sender"),
		results: m.counter("belfry_provider_results_total", "Messages in calls of providers, by the result of the call.", "sender", "result"),
		rebuilds: m.counter("belfry_carrier_rebuilds_total",
			"Times that a queue of the carrier had lost its memory and was pushed again.", "queue"),
	}
	for _, s := range senders { // rates need a value before the first increase
		if r.calls.WithLabelValues(s.Name); !slices.Contains(r.media, s.Medium) {
			r.media = append(r.media, s.Medium)
		}
		for _, class := range classes() {
			r.results.WithLabelValues(s.Name, string(class))
		}
	}
	for _, medium := range r.media {
		for _, what := range outbox.AllRecorded() {
			r.messages.WithLabelValues(medium, string(what))
		}
	}
	for _, why := range outbox.Whys(outbox.ReasonDead) {
		r.dead.WithLabelValues(string(why))
	}
	return r
}

func classes() []sender.Class {
	return []sender.Class{sender.Accepted, sender.Pending, sender.Retryable, sender.Unknown, sender.Permanent, sender.InvalidAddress}
}

// Called implements outbox.Observer.
func (r *relayed) Called(name string, results []sender.Result, took time.Duration) {
	r.calls.WithLabelValues(name).Observe(took.Seconds())
	for i := range results {
		class := results[i].Class
		if !slices.Contains(classes(), class) {
			class = sender.Unknown // as the relay takes it
		}
		r.results.WithLabelValues(name, string(class)).Inc()
	}
}

// Recorded implements outbox.Observer.
func (r *relayed) Recorded(o outbox.Recording, n int) {
	medium := o.Medium
	switch {
	case medium == "":
		medium = noMedium
	case !slices.Contains(r.media, medium):
		medium = otherMedium
	}
	r.messages.WithLabelValues(medium, string(o.Recorded)).Add(float64(n))
	if o.Recorded == outbox.RecordedDead {
		r.dead.WithLabelValues(string(o.Reason)).Add(float64(n))
	}
}

// Rebuilt implements outbox.Observer.
func (r *relayed) Rebuilt(q outbox.Queue) { r.rebuilds.WithLabelValues(string(q)).Inc() }

// Beat implements outbox.Observer; RelayStats reads the state of the senders.
func (*relayed) Beat([]outbox.SenderWork) {}

// breakers are the states of a circuit breaker.
func breakers() []string { return []string{"closed", "open", "half_open", "off"} }

// RelayStats registers metrics that each scrape reads from a relay. stats must not block.
func (m *Metrics) RelayStats(stats func() relay.Stats) {
	bySender := []string{"sender"}
	m.read([]definition{
		{"belfry_messages_claimed_total", "counter", "Messages that this relay claimed.", nil},
		{"belfry_messages_recovered_total", "counter", "Messages that this relay took back from relays that died.", nil},
		{"belfry_messages_in_flight", "gauge", "Messages that this relay has claimed and not recorded yet.", nil},
		{"belfry_sender_queue_messages", "gauge", "Messages in this relay's queue for the sender.", bySender},
		{"belfry_sender_calls", "gauge", "Calls of the sender's provider that are under way.", bySender},
		{"belfry_sender_paused", "gauge", "1 while an operator has paused the sender.", bySender},
		{"belfry_sender_breaker_state", "gauge", "1 for the current state of the sender's circuit breaker, 0 for the other states.",
			[]string{"sender", "state"}},
	}, func(give emit) {
		s := stats()
		give(0, float64(s.Claimed))
		give(1, float64(s.Recovered))
		give(2, float64(s.InFlight))
		for _, one := range s.Senders {
			give(3, float64(one.Waiting), one.Name)
			give(4, float64(one.Calling), one.Name)
			give(5, truth(one.Paused), one.Name)
			for _, state := range breakers() {
				give(6, truth(one.Breaker == state), one.Name, state)
			}
		}
	})
}

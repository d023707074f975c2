package metrics

import "github.com/belfryhq/belfry/outbox/inbox/live"

// Inbox registers the metrics of the notification centre's streams. stats must not block.
func (m *Metrics) Inbox(stats func() live.Stats) {
	m.read([]definition{
		{"belfry_inbox_streams", "gauge", "Streams of the notification centre that are open.", nil},
		{"belfry_inbox_events_total", "counter",
			"Events that were sent to these: new notifications, marks (read), and requests to fetch the list (reload).", []string{"type"}},
		{"belfry_inbox_streams_ended_total", "counter",
			"Streams that ended: the client read too slowly, this process stops, the token has expired, or the client is gone.",
			[]string{"reason"}},
	}, func(give emit) {
		s := stats()
		give(0, float64(s.Open))
		for kind, n := range s.Sent {
			give(1, float64(n), kind)
		}
		for reason, n := range s.Ended {
			give(2, float64(n), reason)
		}
	})
}

package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/admin/api"
)

// API registers the metrics of an HTTP API, of which open says how many streams it has open, and
// returns what counts a request.
func (m *Metrics) API(operations []string, open func() int) func(api.Answered) {
	requests := m.counter("belfry_api_requests_total", "Requests of the HTTP API that this process answered, by the class of the status.", "operation", "code")
	durations := m.histogram("belfry_api_request_duration_seconds", "Duration of these, without streams.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}, "method")
	m.read([]definition{{"belfry_api_streams", "gauge", "Streams of the HTTP API that are open, as of jobs that are watched.", nil}}, func(give emit) { give(0, float64(open())) })
	known := map[string]bool{"GET": true, "POST": true, "PATCH": true}
	for _, o := range append([]string{noOperation}, operations...) {
		requests.WithLabelValues(o, "5xx") // an alert sees the first one
	}
	return func(r api.Answered) { countRequest(requests, durations, known, r) }
}

// noOperation is the label of requests that are for none.
const noOperation = "none"

func countRequest(requests *prometheus.CounterVec, durations *prometheus.HistogramVec, known map[string]bool, r api.Answered) {
	operation, code, method := r.Operation, "none", r.Method
	if operation == "" {
		operation = noOperation
	}
	if r.Status >= 100 {
		code = strconv.Itoa(r.Status/100) + "xx"
	}
	if !known[method] {
		method = "other"
	}
	requests.WithLabelValues(operation, code).Inc()
	if !r.Stream {
		durations.WithLabelValues(method).Observe(r.Took.Seconds())
	}
}

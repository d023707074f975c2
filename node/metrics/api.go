package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Request is a finished request to the HTTP API.
type Request struct {
	Operation string // empty if the request was refused or matched no operation
	Method    string
	Status    int  // 0 if the client disconnected before the response
	Stream    bool // not counted in durations
	Took      time.Duration
}

// API registers the metrics of an HTTP API and returns a function that counts a request. open
// returns the number of open streams.
func (m *Metrics) API(operations []string, open func() int) func(Request) {
	requests := m.counter("belfry_api_requests_total",
		"Requests of the HTTP API that this process answered, by the class of the status.", "operation", "code")
	durations := m.histogram("belfry_api_request_duration_seconds", "Duration of these, without streams.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}, "method")
	m.read([]definition{{"belfry_api_streams", "gauge", "Streams of the HTTP API that are open, as of jobs that are watched.", nil}},
		func(give emit) { give(0, float64(open())) })
	known := map[string]bool{"GET": true, "POST": true, "PATCH": true}
	for _, o := range append([]string{noOperation}, operations...) {
		requests.WithLabelValues(o, "5xx") // an alert sees the first one
	}
	return func(r Request) { countRequest(requests, durations, known, r) }
}

// noOperation is the label of requests without an operation.
const noOperation = "none"

func countRequest(requests *prometheus.CounterVec, durations *prometheus.HistogramVec, known map[string]bool, r Request) {
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

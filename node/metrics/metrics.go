package metrics

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics of one process. It is safe for concurrent use, except Runner, Relay and
// Database, which register metrics and are called at most once each.
type Metrics struct {
	registry *prometheus.Registry
	known    []definition
}

// definition is the entry of a metric in docs/metrics.md.
type definition struct {
	name, kind, help string
	labels           []string
}

// Build identifies the binary.
type Build struct{ Version, Commit, Go string }

// New returns Metrics with the metrics of the build, of Go and of the process.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("belfry_build_info", "Version, commit and Go version of this binary; always 1.", "version", "commit", "go_version").
		WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	return m
}

// Handler serves scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: scrapeTimeout, ErrorHandling: promhttp.ContinueOnError})
}

// scrapeTimeout limits a scrape. A scrape does not block; only an overloaded machine reaches the limit.
const scrapeTimeout = 10 * time.Second

func (m *Metrics) define(name, kind, help string, labels []string) {
	m.known = append(m.known, definition{name, kind, help, slices.Clone(labels)})
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.define(name, "counter", help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.define(name, "gauge", help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	m.define(name, "histogram", help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

// reading is a collector that reads values of this process at each scrape.
type reading struct {
	descs []*prometheus.Desc
	kinds []prometheus.ValueType
	read  func(emit)
}

// emit sets the value of the metric with the given index.
type emit func(metric int, value float64, labels ...string)

// read registers metrics whose values f emits at each scrape.
func (m *Metrics) read(list []definition, f func(emit)) {
	r := reading{read: f}
	for _, d := range list {
		m.define(d.name, d.kind, d.help, d.labels)
		kind := prometheus.GaugeValue
		if d.kind == "counter" {
			kind = prometheus.CounterValue
		}
		r.descs, r.kinds = append(r.descs, prometheus.NewDesc(d.name, d.help, d.labels, nil)), append(r.kinds, kind)
	}
	m.registry.MustRegister(r)
}

// Describe implements prometheus.Collector.
func (r reading) Describe(to chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r reading) Collect(to chan<- prometheus.Metric) {
	r.read(func(i int, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(r.descs[i], r.kinds[i], value, labels...)
	})
}

// truth returns the value of a gauge: 1 for true, 0 for false.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/job"
)

// runner counts the events of one job.Runner.
type runner struct {
	claims, takeovers, rows, runs, throttles, throttled *prometheus.CounterVec
	chunk, lag                                          *prometheus.HistogramVec
	running                                             prometheus.Gauge

	mu    sync.Mutex
	rule  string // that holds the run back
	toldM int64  // of the job's ThrottledMS, milliseconds that were counted
}

// endings maps the ends of a run in job.Progress to labels.
func endings() map[string]string {
	return map[string]string{
		job.EventFinished: "processed", job.EventAborted: "aborted", job.EventFailed: "failed", job.EventInterrupted: "interrupted",
		job.EventPreempted: "preempted", job.EventLanePaused: "lane_paused", "lost": "lost",
	}
}

// Runner registers the metrics of a runner of job types, and returns its observer
// (job.WithObserver).
func (m *Metrics) Runner(types []string) func(job.Progress) {
	r := &runner{
		claims:    m.counter("belfry_job_claims_total", "Due jobs that this runner claimed.", "type"),
		takeovers: m.counter("belfry_job_takeovers_total", "Jobs that this runner took over from a dead run.", "type"),
		runs:      m.counter("belfry_job_runs_total", "Runs of this runner that ended, by how they did.", "type", "outcome"),
		rows:      m.counter("belfry_rows_written_total", "Rows that committed chunks wrote.", "type"),
		throttles: m.counter("belfry_job_throttles_total", "Times that a rule began to hold a run back.", "rule"),
		throttled: m.counter("belfry_job_throttled_seconds_total",
			"Time that runs were held back, by the rule in force when it was recorded.", "rule"),
		chunk: m.histogram("belfry_chunk_duration_seconds", "Duration of committed chunks, begin to commit.",
			[]float64{.005, .01, .025, .05, .1, .2, .4, .8, 1.6, 3.2, 10}, "type"),
		lag: m.histogram("belfry_job_start_lag_seconds",
			"How long after its schedule_at a job was claimed for the first time, in the database's clock.",
			[]float64{.1, .5, 1, 2, 5, 15, 60, 300, 900, 3600, 14400}, "type"),
		running: m.gauge("belfry_job_running", "1 while this runner runs a job.").WithLabelValues(),
	}
	for _, t := range types { // rates need a value before the first increase
		for _, outcome := range endings() {
			r.runs.WithLabelValues(t, outcome)
		}
		r.claims.WithLabelValues(t)
		r.takeovers.WithLabelValues(t)
		r.rows.WithLabelValues(t)
	}
	return r.observe
}

// observe counts one step of a run.
func (r *runner) observe(p job.Progress) {
	r.hold(p)
	outcome, over := endings()[p.Event]
	switch {
	case over:
		r.runs.WithLabelValues(p.Job.Type, outcome).Inc()
		r.running.Set(0)
	case p.Event == "chunk":
		r.rows.WithLabelValues(p.Job.Type).Add(float64(p.Rows))
		if p.Elapsed > 0 {
			r.chunk.WithLabelValues(p.Job.Type).Observe(p.Elapsed.Seconds())
		}
	case p.Event == job.EventClaimed:
		r.claims.WithLabelValues(p.Job.Type).Inc()
		r.running.Set(1)
		if p.Job.Fence == 1 && p.Job.StartedAt != nil {
			r.lag.WithLabelValues(p.Job.Type).Observe(max(0, p.Job.StartedAt.Sub(p.Job.ScheduleAt).Seconds()))
		}
	case p.Event == job.EventResumed:
		r.takeovers.WithLabelValues(p.Job.Type).Inc()
		r.running.Set(1)
	}
}

// hold counts the time that a run is held back. The time since the last step is attributed to the
// current rule, or otherwise to the last one.
func (r *runner) hold(p job.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Event == job.EventClaimed || p.Event == job.EventResumed {
		r.rule, r.toldM = p.Job.Throttle, p.Job.ThrottledMS
		return
	}
	rule := p.Job.Throttle
	if rule == "" {
		rule = r.rule
	}
	if more := p.Job.ThrottledMS - r.toldM; more > 0 && rule != "" {
		r.throttled.WithLabelValues(rule).Add(float64(more) / 1000)
	}
	if p.Event == job.EventThrottled {
		r.throttles.WithLabelValues(p.Job.Throttle).Inc()
	}
	r.rule, r.toldM = p.Job.Throttle, max(r.toldM, p.Job.ThrottledMS)
}

package job

import "time"

// Progress is passed to observers at each transition and each committed chunk.
type Progress struct {
	// Event is one of the Event kinds of a run (claimed, resumed, interrupted,
	// aborted, finished, failed), "chunk", or "lost": the run ended without knowing
	// its job's fate, which another runner decides.
	Event string
	Job   Job // after the event
	// Rows and Elapsed are the chunk's, begin to commit; zero for other events.
	Rows    int64
	Elapsed time.Duration
	// KeysPerSecond is this run's speed over its last seconds; 0: not known yet.
	KeysPerSecond float64
	// ETA estimates the time to the job's end; negative: unknown.
	ETA time.Duration
}

func (u *run) report(event string, rows int64, took time.Duration) {
	p := Progress{Event: event, Job: u.job, Rows: rows, Elapsed: took, KeysPerSecond: u.meter.rate, ETA: -1}
	if total, known := u.job.Total(); known && p.KeysPerSecond > 0 && u.job.Status == Running {
		left := total - u.job.ChannelsRead
		p.ETA = time.Duration(float64(left) / p.KeysPerSecond * float64(time.Second))
	}
	for _, observe := range u.observers {
		observe(p)
	}
}

// meter measures keys per second as an exponential average over some seconds.
type meter struct {
	at   time.Time
	read int64
	rate float64
}

const meterWindow = 3 * time.Second

func (m *meter) start(read int64) { m.at, m.read = time.Now(), read }

func (m *meter) add(read int64) {
	now := time.Now()
	took := now.Sub(m.at)
	if took <= 0 {
		return
	}
	rate := float64(read-m.read) / took.Seconds()
	if m.rate == 0 {
		m.rate = rate
	} else {
		weight := min(float64(took)/float64(meterWindow), 1)
		m.rate += (rate - m.rate) * weight
	}
	m.at, m.read = now, read
}

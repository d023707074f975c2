package demo

import (
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"
)

// chunk is one committed chunk, as its runner logged it.
type chunk struct {
	Message string  `json:"message"`
	Job     int64   `json:"job_id"`
	Fence   int64   `json:"fence"`
	Number  int64   `json:"chunk"`
	Rows    int64   `json:"rows"`
	Elapsed float64 `json:"elapsed_ms"`

	at time.Time // when the demo read the line
}

const chunkCommitted = "chunk committed"

// tailLines is how much of a runner's other output is kept, to say what went wrong.
const tailLines = 8

// runLog is a runner's standard error: it picks the committed chunks out of the
// log and keeps the end of all else.
type runLog struct {
	mu      sync.Mutex
	rest    []byte // an unfinished line
	chunks  []chunk
	tail    []string
	changed chan struct{} // closed, and replaced, with each chunk
	now     func() time.Time
}

func newRunLog() *runLog { return &runLog{changed: make(chan struct{}), now: time.Now} }

// Write takes whatever the runner wrote.
func (l *runLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		end := slices.Index(l.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		l.take(l.rest[:end])
		l.rest = l.rest[end+1:]
	}
}

func (l *runLog) take(line []byte) {
	var c chunk
	if err := json.Unmarshal(line, &c); err == nil && c.Message == chunkCommitted {
		c.at = l.now()
		l.chunks = append(l.chunks, c)
		close(l.changed)
		l.changed = make(chan struct{})
		return
	}
	l.tail = append(l.tail, string(line))
	if len(l.tail) > tailLines {
		l.tail = l.tail[1:]
	}
}

// first returns the first chunk of a job, or a channel that is closed when there
// is another chunk of any job.
func (l *runLog) first(job int64) (chunk, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.chunks {
		if c.Job == job {
			return c, nil
		}
	}
	return chunk{}, l.changed
}

// of returns the chunks of a job.
func (l *runLog) of(job int64) []chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []chunk
	for _, c := range l.chunks {
		if c.Job == job {
			list = append(list, c)
		}
	}
	return list
}

// end returns the last lines that were no chunks.
func (l *runLog) end() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tail)
}

// pace is how fast a job's chunks were.
type pace struct {
	RowsPerSecond float64 // rows over the time the chunks took, begin to commit
	P50, P99      float64 // of a chunk, in milliseconds
}

// paceOf measures the chunks; the zero pace is that of none.
func paceOf(chunks []chunk) pace {
	if len(chunks) == 0 {
		return pace{}
	}
	var rows int64
	var total float64
	elapsed := make([]float64, len(chunks))
	for i, c := range chunks {
		rows += c.Rows
		total += c.Elapsed
		elapsed[i] = c.Elapsed
	}
	slices.Sort(elapsed)
	p := pace{P50: quantile(elapsed, 0.50), P99: quantile(elapsed, 0.99)}
	if total > 0 {
		p.RowsPerSecond = float64(rows) / total * 1000
	}
	return p
}

// quantile is the smallest value that at least the share q of the sorted values
// does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

package job

import "time"

// sizer adapts how many keys a chunk examines so that a chunk takes the target
// duration. It is a pure function of the chunks it was shown.
type sizer struct {
	config ChunkConfig
	rows   int
}

func newSizer(c ChunkConfig) sizer { return sizer{config: c, rows: c.InitialRows} }

// observe takes one committed chunk into account. It aims straight at the size
// that would have met the target, but at most doubles and at least halves, so that
// one outlier (a checkpoint, a cold cache) does not swing it. A short page, the
// last one, says nothing about speed.
func (s *sizer) observe(read int, took time.Duration) {
	if read < s.rows {
		return
	}
	if took <= 0 {
		took = time.Microsecond
	}
	ideal := float64(s.rows) * float64(s.config.Target) / float64(took)
	s.set(int(min(max(ideal, float64(s.rows)/2), float64(s.rows)*2)))
}

// shrink halves the size after a chunk that timed out.
func (s *sizer) shrink() { s.set(s.rows / 2) }

func (s *sizer) set(rows int) { s.rows = min(max(rows, s.config.MinRows), s.config.MaxRows) }

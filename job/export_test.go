package job

import "context"

// The points of a chunk, see chunk.go.
const (
	PointBegun      = pointBegun
	PointWritten    = pointWritten
	PointMoved      = pointMoved
	PointCommitted  = pointCommitted
	PointCommitLost = pointCommitting
)

// WithFailpoint has f called at the points of a chunk. What it returns is what the
// chunk meets there.
func WithFailpoint(f func(ctx context.Context, point string) error) Option {
	return func(r *Runner) { r.at = f }
}

// Transitions returns a copy of the status machine: from, to, who causes it.
func Transitions() map[[2]Status]string {
	list := make(map[[2]Status]string, len(transitions))
	for e, cause := range transitions {
		list[[2]Status{e.from, e.to}] = cause
	}
	return list
}

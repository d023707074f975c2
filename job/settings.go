package job

import (
	"reflect"
	"time"

	"github.com/belfryhq/belfry/job/governor"
)

// jobSettings are the settings of its own that a job's row bears; nil: the runner's.
type jobSettings struct {
	MaxRowsPerSecond *int     `db:"max_rows_per_second"`
	DutyCycle        *float64 `db:"duty_cycle"`
	ChunkTargetMS    *int     `db:"chunk_target_ms"`
	MaxChunkRows     *int     `db:"max_chunk_rows"`
	HealthChecks     *bool    `db:"health_checks"`
	MaxSkips         *int     `db:"max_skips"`
	MaxRecipients    *int     `db:"max_recipients"` // nil: no ceiling
}

func (j Job) settings() jobSettings {
	return jobSettings{j.MaxRowsPerSecond, j.DutyCycle, j.ChunkTargetMS, j.MaxChunkRows, j.HealthChecks, j.MaxSkips, j.MaxRecipients}
}

// live is the part of the configuration that Reload may have changed.
func (r *Runner) live() *Config { return r.reloaded.Load() }

// settings overlays the runner's configuration with a job's own settings.
func (r *Runner) settings(own jobSettings) governor.Settings {
	c := r.live()
	s := governor.Settings{Chunk: c.Chunk, MaxRowsPerSecond: c.Load.MaxRowsPerSecond, DutyCycle: c.Load.DutyCycle, Health: c.Load.Health}
	if own.MaxRowsPerSecond != nil {
		s.MaxRowsPerSecond = *own.MaxRowsPerSecond
	}
	if own.DutyCycle != nil {
		s.DutyCycle = *own.DutyCycle
	}
	if own.ChunkTargetMS != nil {
		s.Chunk.Target = min(time.Duration(*own.ChunkTargetMS)*time.Millisecond, c.StatementTimeout/2)
	}
	if own.MaxChunkRows != nil {
		s.Chunk.MaxRows = *own.MaxChunkRows
		s.Chunk.MinRows = min(s.Chunk.MinRows, s.Chunk.MaxRows)
		s.Chunk.InitialRows = min(s.Chunk.InitialRows, s.Chunk.MaxRows)
	}
	if own.HealthChecks != nil {
		s.Health.Enabled = *own.HealthChecks
	}
	return s
}

// learnt returns the measured unloaded cost of a type's chunks.
func (r *Runner) learnt(kind string) *governor.Baseline {
	b, ok := r.baselines[kind]
	if !ok {
		b = governor.NewBaseline()
		r.baselines[kind] = b
	}
	return b
}

// Reload changes the settings of a live Runner from its next chunk on: chunk, retry,
// load and max_skips. An invalid configuration changes nothing and is reported whole.
// The keys that differ, but count only from the next start on, are returned. It may
// be called from any goroutine.
func (r *Runner) Reload(c Config) (needRestart []string, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	next := *r.live()
	next.Chunk, next.Retry, next.Load, next.MaxSkips = c.Chunk, c.Retry, c.Load, c.MaxSkips
	if c.Name == "" {
		c.Name = next.Name // chosen at the start
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		f := reflect.TypeFor[Config]().Field(i)
		if !reflect.DeepEqual(reflect.ValueOf(next).Field(i).Interface(), reflect.ValueOf(c).Field(i).Interface()) {
			needRestart = append(needRestart, "runner."+f.Tag.Get("mapstructure"))
		}
	}
	if err := next.Validate(); err != nil { // what is live and what needs a restart must go together
		return nil, err
	}
	r.reloaded.Store(&next)
	return needRestart, nil
}

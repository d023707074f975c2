package jobs

import (
	"strconv"
	"time"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// walkSetting is one setting of a job's walk.
type walkSetting struct {
	column, value string
	own           bool // it is set for the job
}

// walkSettings returns the settings of a job's walk as text.
func walkSettings(j job.Job) []walkSetting {
	number := func(n int) string { return text.Grouped(int64(n)) }
	most := walkSetting{column: "max_recipients", value: "none"}
	if j.MaxRecipients != nil {
		most = walkSetting{most.column, number(*j.MaxRecipients), true}
	}
	return []walkSetting{
		most,
		settingOf("max_rows_per_second", j.MaxRowsPerSecond, func(n int) string {
			if n == 0 {
				return "no limit"
			}
			return number(n)
		}),
		settingOf("duty_cycle", j.DutyCycle, func(share float64) string { return strconv.FormatFloat(share*100, 'f', -1, 64) + "%" }),
		settingOf("chunk_target_ms", j.ChunkTargetMS, func(n int) string { return (time.Duration(n) * time.Millisecond).String() }),
		settingOf("max_chunk_rows", j.MaxChunkRows, number),
		settingOf("health_checks", j.HealthChecks, func(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }),
		settingOf("max_skips", j.MaxSkips, number),
	}
}

// settingOf returns one setting. Nil means the runner's.
func settingOf[T any](column string, value *T, show func(T) string) walkSetting {
	if value == nil {
		return walkSetting{column: column, value: "the runner's"}
	}
	return walkSetting{column, show(*value), true}
}

package bench

import (
	"runtime"
	"time"
)

// Report is what one run of the benchmarks found, ready to be JSON.
type Report struct {
	StartedAt time.Time `json:"started_at"` // process clock, UTC
	Seconds   float64   `json:"seconds"`
	Machine   Machine   `json:"machine"`
	Postgres  Postgres  `json:"postgres"`
	Channels  int64     `json:"channels"`
	Rounds    int       `json:"rounds"`
	Quick     bool      `json:"quick"` // sizes too small to judge by
	Results   []Result  `json:"results"`
	GoalsMet  bool      `json:"goals_met"` // of those benchmarks that ran
}

// Machine is the class of machine; figures compare within one class at best.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

func thisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
}

// Postgres is the server measured and the settings that matter most.
type Postgres struct {
	Version           string `json:"version" db:"version"`
	Fsync             string `json:"fsync" db:"fsync"`
	SynchronousCommit string `json:"synchronous_commit" db:"synchronous_commit"`
	SharedBuffers     string `json:"shared_buffers" db:"shared_buffers"`
	MaxWALSize        string `json:"max_wal_size" db:"max_wal_size"`
	JIT               string `json:"jit" db:"jit"`
	Private           bool   `json:"private" db:"-"`
}

// Result is what one benchmark found.
type Result struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Seconds float64  `json:"seconds"`
	Figures []Figure `json:"figures"`
	Table   *Table   `json:"table,omitempty"` // a series, where single figures do not show it
	Notes   []string `json:"notes,omitempty"`
	Plot    *Plot    `json:"-"` // what WriteSVG draws; nil: nothing
}

// Figure is one number. Value is never NaN or infinite.
type Figure struct {
	Name  string  `json:"name"` // unique in its Result, stable: for scripts
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  *Goal   `json:"goal,omitempty"`
	Met   *bool   `json:"met,omitempty"` // nil without a goal
}

// Goal is what the project promised itself for a figure.
type Goal struct {
	Compare string  `json:"compare"` // "<=" or ">="
	Value   float64 `json:"value"`
}

func atMost(v float64) *Goal { return &Goal{"<=", v} }

func atLeast(v float64) *Goal { return &Goal{">=", v} }

func (g Goal) met(v float64) bool {
	if g.Compare == ">=" {
		return v >= g.Value
	}
	return v <= g.Value
}

// Table is a series of measurements. Every cell is a number or a text.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

// figure adds one number to the result; goal is nil when there is none.
func (r *Result) figure(name, label string, value float64, unit string, goal *Goal) {
	f := Figure{Name: name, Label: label, Value: value, Unit: unit, Goal: goal}
	if goal != nil {
		met := goal.met(value)
		f.Met = &met
	}
	r.Figures = append(r.Figures, f)
}

// Missed returns the figures that miss their goal, each as benchmark/figure.
func (r Report) Missed() []string {
	var missed []string
	for _, result := range r.Results {
		for _, f := range result.Figures {
			if f.Met != nil && !*f.Met {
				missed = append(missed, result.Name+"/"+f.Name)
			}
		}
	}
	return missed
}

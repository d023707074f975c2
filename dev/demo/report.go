package demo

import (
	"fmt"
	"math"
	"time"
)

// Report is the result of a demo. Durations are in milliseconds.
type Report struct {
	// OK reports whether D1 of the package comment holds.
	OK bool `json:"ok"`
	// Problems lists the violations; empty if OK.
	Problems []string       `json:"problems"`
	Database databaseReport `json:"database"`
	// Channels is the number of generated channels.
	Channels   int64           `json:"channels"`
	GenerateMS float64         `json:"generate_ms"`
	Jobs       []jobReport     `json:"jobs"`
	Kill       *killReport     `json:"kill"`     // nil if the demo ended before
	Abort      *abortReport    `json:"abort"`    // likewise
	Delivery   *deliveryReport `json:"delivery"` // likewise
	ElapsedMS  float64         `json:"elapsed_ms"`
}

// databaseReport identifies the database with the rows.
type databaseReport struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// jobReport is the check of one job.
type jobReport struct {
	ID       int64  `json:"id"`
	Type     string `json:"type"`
	Category string `json:"category"`
	Title    string `json:"title"`
	Status   string `json:"status"`
	// Matched is the number of active channels up to the job's bound that match its audience,
	// Rows the number of notifications or messages that the job wrote.
	Matched int64 `json:"channels_matched"`
	Rows    int64 `json:"rows"`
	// Missing counts matching channels without a row, Unexpected rows for channels that
	// do not match, and Duplicates rows beyond a channel's first.
	Missing    int64 `json:"missing"`
	Unexpected int64 `json:"unexpected"`
	Duplicates int64 `json:"duplicates"`
	Chunks     int64 `json:"chunks"` // the job row's count
	// Cursor is the job's cursor in the verified snapshot.
	Cursor string `json:"-"`
}

// exact reports whether every matching channel has exactly one row and no other channel has
// any.
func (j jobReport) exact() bool { return j.Missing == 0 && j.Unexpected == 0 && j.Duplicates == 0 }

func (j jobReport) String() string {
	return fmt.Sprintf("%s rows for %s matching channels: %d missing, %d unexpected, %d duplicates",
		grouped(j.Rows), grouped(j.Matched), j.Missing, j.Unexpected, j.Duplicates)
}

// killReport is the second act.
type killReport struct {
	// InMiddle reports whether the job was after its first and before its last chunk.
	InMiddle     bool  `json:"in_middle"`
	ChannelsRead int64 `json:"channels_read"` // when the runner was killed
	Chunks       int64 `json:"chunks"`        // likewise
	// Exact reports whether exactly the matching channels up to the cursor had a row.
	Exact bool `json:"exact_up_to_cursor"`
	// TakeOverMS is the time from the start of the next runner to its first committed chunk.
	TakeOverMS float64 `json:"take_over_ms"`
}

// abortReport is the third act.
type abortReport struct {
	InMiddle bool `json:"in_middle"`
	// LatencyMS is the time from sending the UPDATE to its return, RunnerStoppedMS to the end
	// of the runner's process.
	LatencyMS       float64 `json:"latency_ms"`
	RunnerStoppedMS float64 `json:"runner_stopped_ms"`
	// The number of rows that the UPDATE returned, and after the end of the runner.
	Rows      int64 `json:"rows_returned"`
	RowsAfter int64 `json:"rows_after"`
	Exact     bool  `json:"exact_up_to_cursor"`
	// Still reports whether no row was written and the cursor did not move after the UPDATE had returned.
	Still bool `json:"still"`
	// ReadAgain is the number of channels that were read again after belfry.resume.
	ReadAgain int64 `json:"read_again"`
}

// deliveryReport is the fourth act.
type deliveryReport struct {
	Messages   int64 `json:"messages"` // of the job
	Sent       int64 `json:"sent"`
	Dead       int64 `json:"dead"`
	Unfinished int64 `json:"unfinished"`
	// Retried counts messages with a retryable failure or an unknown outcome, FailedOver messages
	// that continued with sms.
	Retried    int64 `json:"retried"`
	FailedOver int64 `json:"failed_over"`
	// Ambiguous counts attempts with an unknown outcome: the reply was lost, or the relay was killed.
	Ambiguous int64 `json:"ambiguous"`
	// The counts of the providers. Duplicates are accepted calls beyond a key's first. Early
	// calls came before the Retry-After of a previous response.
	Calls          int64   `json:"calls"`
	Accepted       int64   `json:"accepted"`
	Duplicates     int64   `json:"duplicates"`
	Early          int64   `json:"early"`
	Killed         bool    `json:"killed"` // a relay was killed by SIGKILL
	AcceptedAtKill int64   `json:"accepted_at_kill"`
	ElapsedMS      float64 `json:"elapsed_ms"`
}

// blame records an error that ended the demo, and returns it.
func (r *Report) blame(err error) error {
	if err != nil {
		r.OK = false
		r.Problems = append(r.Problems, err.Error())
	}
	return err
}

// judge sets Problems and OK by D1.
func (r *Report) judge() {
	bad := func(broken bool, format string, args ...any) {
		if broken {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	bad(len(r.Jobs) == 0, "no job was verified")
	for _, j := range r.Jobs {
		bad(j.Status != processed, "job %d is %s, not PROCESSED", j.ID, j.Status)
		bad(j.Missing != 0, "job %d: %s of %s matching channels have no row", j.ID, grouped(j.Missing), grouped(j.Matched))
		bad(j.Duplicates != 0, "job %d: %s duplicate rows", j.ID, grouped(j.Duplicates))
		bad(j.Unexpected != 0, "job %d: %s rows for channels that do not match", j.ID, grouped(j.Unexpected))
	}
	bad(r.Kill == nil, "no runner was killed")
	if k := r.Kill; k != nil {
		bad(!k.InMiddle, "kill -9 hit no job in its middle")
		bad(k.InMiddle && !k.Exact, "after kill -9 the rows were not those up to the cursor")
		bad(k.InMiddle && k.TakeOverMS <= 0, "no runner took the job over")
	}
	bad(r.Abort == nil, "no job was aborted")
	if a := r.Abort; a != nil {
		bad(!a.InMiddle, "the abort hit no job in its middle")
		bad(a.InMiddle && !a.Still, "the job continued after its abort had returned")
		bad(a.InMiddle && !a.Exact, "after the abort the rows were not those up to the cursor")
		bad(a.InMiddle && a.ReadAgain != 0, "%s channels were read again when the job was resumed", grouped(a.ReadAgain))
	}
	bad(r.Delivery == nil, "nothing was delivered")
	if d := r.Delivery; d != nil {
		bad(!d.Killed || d.AcceptedAtKill >= d.Messages, "no relay was killed while it delivered")
		bad(d.Unfinished != 0, "%s messages are neither sent nor dead", grouped(d.Unfinished))
		bad(d.Sent+d.Dead+d.Unfinished != d.Messages, "%s messages became %s", grouped(d.Messages), grouped(d.Sent+d.Dead+d.Unfinished))
		bad(d.Duplicates > d.Ambiguous, "the providers have %s duplicates, and only %s outcomes were unknown", grouped(d.Duplicates),
			grouped(d.Ambiguous))
		bad(d.Early != 0, "%s calls came before their Retry-After", grouped(d.Early))
	}
	r.OK = len(r.Problems) == 0
}

// Table renders the jobs in 80 columns.
func (r *Report) Table() string {
	const row = "%3s  %-17s  %-5s  %-9s  %10s  %10s  %7s  %5s\n"
	text := fmt.Sprintf(row, "job", "title", "type", "status", "matched", "rows", "missing", "dupl.")
	for _, j := range r.Jobs {
		text += fmt.Sprintf(row, grouped(j.ID), j.Title, j.Type, j.Status, grouped(j.Matched), grouped(j.Rows), grouped(j.Missing),
			grouped(j.Duplicates))
	}
	return text
}

// inMillis returns milliseconds, to the hundredth.
func inMillis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}

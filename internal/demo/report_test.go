package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// good is a report without a fault.
func good() *Report {
	takeOver := 2104.0
	return &Report{
		Jobs: []JobReport{
			{ID: 1, Title: "Most read today", Type: "inbox", Status: processed, Matched: 9_999_999, Rows: 9_999_999, Chunks: 100, RowsPerSecond: 412345.6, ChunkP50MS: 6.61, ChunkP99MS: 1234, TakeOverMS: &takeOver},
			{ID: 2, Title: "A title that is much too long", Type: "push", Status: processed, Matched: 5, Rows: 5},
		},
		Kill:     &KillReport{Job: 1, InMiddle: true, Tries: 1, Exact: true, TakeOverMS: takeOver, FinishedExact: true},
		Abort:    &AbortReport{Job: 2, InMiddle: true, Tries: 1, Exact: true, Still: true, ChunksBefore: 25, ResumedAtChunk: 26},
		Schedule: &ScheduleReport{Job: 2, LateMS: 14},
		Delivery: &DeliveryReport{Messages: 5, Sent: 4, Dead: 1, Ambiguous: 2, Accepted: 6, Duplicates: 2, Killed: true, AcceptedAtKill: 2},
	}
}

// D1: each broken promise, alone, makes the report not OK and is named.
func TestReport_JudgeNamesEachBrokenPromise(t *testing.T) {
	t.Parallel()
	r := good()
	r.judge()
	require.True(t, r.OK, r.Problems)
	for want, spoil := range map[string]func(r *Report){
		"no job was verified":       func(r *Report) { r.Jobs = nil },
		"job 2 is FAILED, not":      func(r *Report) { r.Jobs[1].Status = "FAILED" },
		"job 2: 1 of 5 matching":    func(r *Report) { r.Jobs[1].Missing = 1 },
		"job 2: 2 duplicate rows":   func(r *Report) { r.Jobs[1].Duplicates = 2 },
		"job 2: 3 rows for chann":   func(r *Report) { r.Jobs[1].Unexpected = 3 },
		"no runner was killed":      func(r *Report) { r.Kill = nil },
		"kill -9 hit no job":        func(r *Report) { r.Kill.InMiddle = false },
		"after kill -9 the rows":    func(r *Report) { r.Kill.Exact = false },
		"nobody took job 1 over":    func(r *Report) { r.Kill.TakeOverMS = 0 },
		"job 1 was not finished":    func(r *Report) { r.Kill.FinishedExact = false },
		"no job was aborted":        func(r *Report) { r.Abort = nil },
		"the abort hit no job":      func(r *Report) { r.Abort.InMiddle = false },
		"job 2 went on after its":   func(r *Report) { r.Abort.Still = false },
		"after the abort the rows":  func(r *Report) { r.Abort.Exact = false },
		"job 2 was resumed at chu":  func(r *Report) { r.Abort.ResumedAtChunk = 1 },
		"no scheduled job ran":      func(r *Report) { r.Schedule = nil },
		"job 2 started 7 ms before": func(r *Report) { r.Schedule.LateMS = -7 },
		"nothing was delivered":     func(r *Report) { r.Delivery = nil },
		"no relay was killed while": func(r *Report) { r.Delivery.AcceptedAtKill = 5 },
		"1 messages are neither":    func(r *Report) { r.Delivery.Dead, r.Delivery.Unfinished = 0, 1 },
		"5 messages became 4":       func(r *Report) { r.Delivery.Dead = 0 },
		"the providers have 3 dupl": func(r *Report) { r.Delivery.Duplicates = 3 },
		"1 calls came before their": func(r *Report) { r.Delivery.Early = 1 },
		"an act failed":             func(r *Report) { _ = r.blame(fmt.Errorf("an act failed")) },
	} {
		r := good()
		spoil(r)
		r.judge()
		require.False(t, r.OK, want)
		require.Len(t, r.Problems, 1, want)
		require.True(t, strings.HasPrefix(r.Problems[0], want), "%s: %s", want, r.Problems[0])
	}
}

func TestReport_Table(t *testing.T) {
	t.Parallel()
	require.Equal(t, `job  title              type   status       matched       rows  missing  dupl.
  1  Most read today    inbox  PROCESSED  9,999,999  9,999,999        0      0
  2  A title that is …  push   PROCESSED          5          5        0      0

job  chunks   rows/s  chunk p50     p99  abort  take-over
  1     100  412,345     6.6 ms   1.2 s      -      2.1 s
  2       0        0     0.0 ms  0.0 ms      -          -
`, good().Table())
}

func TestReport_JSONHasEveryField(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(good())
	require.NoError(t, err)
	for _, field := range []string{
		"ok", "problems", "jobs", "status", "channels_matched", "rows", "missing", "duplicates", "chunks", "rows_per_second",
		"chunk_p50_ms", "chunk_p99_ms", "abort_latency_ms", "take_over_ms", "kill", "abort", "schedule", "delivery", "elapsed_ms",
	} {
		require.Contains(t, string(text), `"`+field+`":`)
	}
}

func TestRunLog_PicksChunksOutOfAnything(t *testing.T) {
	t.Parallel()
	l := newRunLog()
	_, more := l.first(7)
	text := `{"level":"info","job_id":7,"message":"job claimed"}
not JSON
{"level":"debug","job_id":7,"fence":2,"chunk":26,"cursor":"78000","rows":2970,"elapsed_ms":6.5,"message":"chunk committed"}
{"level":"debug","job_id":8,"fence":1,"chunk":1,"rows":10,"elapsed_ms":1.5,"message":"chunk committed"}
{"level":"debug","job_id":7,"fence":2,"chunk":27,"rows":30,"elapsed_ms":3.5,"message":"chunk committed"}
unfinished`
	for i := range text { // as pipes may deliver it
		n, err := l.Write([]byte(text[i : i+1]))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	<-more
	c, more := l.first(7)
	require.Nil(t, more)
	require.Equal(t, int64(26), c.Number)
	require.Equal(t, int64(2), c.Fence)
	require.Equal(t, pace{RowsPerSecond: 300_000, P50: 3.5, P99: 6.5}, paceOf(l.of(7)))
	require.Equal(t, pace{}, paceOf(l.of(9)))
	require.Len(t, l.end(), 2)
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	require.Equal(t, 50.0, quantile(hundred, 0.5))     //nolint:testifylint // exact: an element of the list
	require.Equal(t, 99.0, quantile(hundred, 0.99))    //nolint:testifylint // likewise
	require.Equal(t, 1.0, quantile(hundred[:1], 0.99)) //nolint:testifylint // likewise
}

func TestWrap(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"öne two", "three", "afarawayword", "x"}, wrap("öne two  three\n afarawayword x", 7))
	require.Equal(t, []string{""}, wrap("", 7))
}

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
	return &Report{
		Jobs: []jobReport{
			{ID: 1, Title: "Most read today", Type: "push", Status: processed, Matched: 9_999_999, Rows: 9_999_999, Chunks: 100},
			{ID: 2, Title: "Most read today", Type: "push", Status: processed, Matched: 5, Rows: 5},
		},
		Kill:     &killReport{InMiddle: true, Exact: true, TakeOverMS: 2104},
		Abort:    &abortReport{InMiddle: true, Exact: true, Still: true},
		Delivery: &deliveryReport{Messages: 5, Sent: 4, Dead: 1, Ambiguous: 2, Accepted: 6, Duplicates: 2, Killed: true, AcceptedAtKill: 2},
	}
}

// D1: each violation, alone, makes the report not OK and is named.
func TestReport_JudgeNamesEachViolation(t *testing.T) {
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
		"no runner took the job o":  func(r *Report) { r.Kill.TakeOverMS = 0 },
		"no job was aborted":        func(r *Report) { r.Abort = nil },
		"the abort hit no job":      func(r *Report) { r.Abort.InMiddle = false },
		"the job continued after":   func(r *Report) { r.Abort.Still = false },
		"after the abort the rows":  func(r *Report) { r.Abort.Exact = false },
		"3 channels were read aga":  func(r *Report) { r.Abort.ReadAgain = 3 },
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
	require.Equal(t, `job  title              type   status        matched        rows  missing  dupl.
  1  Most read today    push   PROCESSED   9,999,999   9,999,999        0      0
  2  Most read today    push   PROCESSED           5           5        0      0
`, good().Table())
}

func TestReport_JSONHasEveryField(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(good())
	require.NoError(t, err)
	for _, field := range []string{
		"ok", "problems", "jobs", "status", "channels_matched", "rows", "missing", "duplicates", "chunks",
		"latency_ms", "take_over_ms", "kill", "abort", "delivery", "elapsed_ms",
	} {
		require.Contains(t, string(text), `"`+field+`":`)
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"öne two", "three", "afarawayword", "x"}, wrap("öne two  three\n afarawayword x", 7))
	require.Equal(t, []string{""}, wrap("", 7))
}

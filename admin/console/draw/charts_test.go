package draw

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewProgress_ShowsAFewFailures(t *testing.T) {
	t.Parallel()
	bar := NewProgress("17.bar", "none", Segment{Name: "sent", N: 999_990}, Segment{Name: "failed", N: 10}, Segment{Name: "waiting"})
	require.Equal(t, "sent 999,990 (100 %), failed 10 (under 0.1 %)", bar.About)
	require.Equal(t, Segment{Name: "failed", N: 10, X: "99.404%", Width: "0.596%", Amount: "under 0.1 %"}, bar.Parts[1])
	require.Equal(t, "0%", bar.Parts[2].Width)
	var event struct {
		Widths, Counts []string
		About          string
	}
	require.NoError(t, json.Unmarshal([]byte(bar.Update()), &event))
	require.Equal(t, []string{"99.404%", "0.596%", "0%"}, event.Widths)
	require.Equal(t, []string{"999,990", "10", "0"}, event.Counts)
	empty := NewProgress("", "none", Segment{Name: "sent"})
	require.Equal(t, "none", empty.About)
	require.Equal(t, "0%", empty.Parts[0].Width)
}

func TestNewSparkline_FitsItsBox(t *testing.T) {
	t.Parallel()
	zone, at := time.UTC, time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	points := []Point{{at, []float64{0}}, {at.Add(time.Minute), []float64{120}}, {at.Add(4 * time.Minute), []float64{30}}}
	s := NewSparkline(zone, "sent", "messages", points)
	require.Equal(t, "0,23 25,1 100,17.5", s.Line)
	require.Equal(t, "0,24 0,23 25,1 100,17.5 100,24", s.Area)
	require.Equal(t, "sent, messages: lowest 0, highest 120, last 30", s.About)
	require.Len(t, s.Table.Rows, 3)
	require.Nil(t, NewSparkline(zone, "sent", "messages", points[:1]))
	flat := NewSparkline(zone, "sent", "messages", []Point{{at, []float64{0}}, {at, []float64{0}}})
	require.Equal(t, "0,23 0,23", flat.Line)
}

func TestNewColumnChart_StacksAndMarks(t *testing.T) {
	t.Parallel()
	zone, at := time.UTC, time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	of := ColumnChart{ID: "x", Title: "Sent", Series: []Series{{"push", "done"}, {"failed", "bad"}}}
	chart := NewColumnChart(zone, of, time.Minute, []Point{{at, []float64{30, 10}}, {at.Add(time.Minute), []float64{0, 20}}},
		[]Marker{{At: at.Add(30 * time.Second), Text: "stopped by ann"}, {At: at.Add(time.Hour), Text: "later"}})
	require.Equal(t, "40 messages in 1 min", chart.Top)
	require.Equal(t, []Part{{"25%", "75%", "done"}, {"0%", "25%", "bad"}}, chart.Columns[0].Parts)
	require.Equal(t, []Part{{"100%", "0%", "done"}, {"50%", "50%", "bad"}}, chart.Columns[1].Parts)
	require.Equal(t, "09:00:00, push 30, failed 10", chart.Columns[0].About)
	require.Equal(t, "50%", chart.Columns[1].X)
	require.Equal(t, []Marker{{At: at.Add(30 * time.Second), Text: "stopped by ann", X: "25%"}}, chart.Markers)
	require.Equal(t, "Columns, one for each 1 min from 2026-11-20 09:00:00+00:00 to 2026-11-20 09:02:00+00:00: 30 push and 30 failed in all; "+
		"the highest is 40. Stopped by ann at 2026-11-20 09:00:30+00:00.", chart.About)
	require.Len(t, chart.Table.Rows, 2)
	require.Nil(t, NewColumnChart(zone, of, time.Minute, nil, nil))
}

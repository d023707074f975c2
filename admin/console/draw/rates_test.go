package draw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRateChart_HasAScaleForEachLine(t *testing.T) {
	t.Parallel()
	zone, at := time.UTC, time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	of := RateChart{Title: "Speed", Lines: []Line{{Series: Series{"written", "s2"}}, {Series: Series{"sent", "done"}}}}
	points := []Point{{at, []float64{1000, 10}}, {at.Add(time.Minute), []float64{0, 40}}}
	events := []Marker{{At: at.Add(-time.Hour), Text: "before"}, {At: at.Add(30 * time.Second), Text: "Slowed"}, {At: at.Add(31 * time.Second), Text: "Stopped"},
		{At: at.Add(90 * time.Second), Text: "Resumed"}}
	c := NewRateChart(zone, of, "a minute", time.Minute, points, events)
	require.Equal(t, "25,1 75,23", c.Lines[0].Points)
	require.Equal(t, "25,17.5 75,1", c.Lines[1].Points, "its highest value fills its box, too")
	require.Equal(t, "25,24 25,17.5 75,1 75,24", c.Lines[1].Area)
	require.Equal(t, []string{"1,000", "40"}, []string{c.Lines[0].Top, c.Lines[1].Top})
	require.Len(t, c.Markers, 3, "those of the time of the chart")
	require.Equal(t, Marker{At: at.Add(30 * time.Second), Text: "Slowed", X: "25%", N: 1, Label: true}, c.Markers[0])
	require.False(t, c.Markers[1].Label, "it would cover the label before")
	require.Equal(t, "75%", c.Markers[2].X)
	require.Len(t, c.Table.Rows, 2)
	require.EqualValues(t, "Slowed; Stopped", c.Table.Rows[0][3].Text)
	require.Equal(t, "Lines from 2026-11-20 09:00:00+00:00 to 2026-11-20 09:02:00+00:00: written at most 1,000 a minute; sent at most 40 a minute.", c.About)
	require.Nil(t, NewRateChart(zone, of, "a minute", time.Minute, points[:1], events))
}

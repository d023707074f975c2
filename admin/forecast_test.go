package admin

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var dawn = time.Date(2026, 11, 20, 6, 0, 0, 0, time.UTC)

// entry is one that is due so many seconds after dawn and takes so many; -1: nobody knows.
func entry(id int64, due, takes, priority int) *planned {
	p := &planned{TimetableEntry: &TimetableEntry{At: dawn.Add(time.Duration(due) * time.Second), Job: &id, Priority: priority}, known: takes >= 0}
	if p.known {
		p.left = time.Duration(takes) * time.Second
	}
	return p
}

// after is a moment in seconds after dawn; nil: -1.
func after(at *time.Time) int {
	if at == nil {
		return -1
	}
	return int(at.Sub(dawn) / time.Second)
}

func TestForecast_ALaneRunsOneAtATime(t *testing.T) {
	t.Parallel()
	first, second, third, urgent, unknown, last := entry(1, 0, 100, 0), entry(2, 50, 100, 0), entry(3, 60, 10, 3), entry(4, 300, 60, 9), entry(5, 400, -1, 0), entry(6, 400, 20, -1)
	long := entry(7, 290, 50, 0)
	l := &laneForecast{now: dawn, coming: []*planned{last, unknown, urgent, long, third, second, first}}
	l.run()
	for _, c := range []struct {
		of           *planned
		start, end   int
		waits, makes string
	}{
		{first, 0, 110, "", "job 3"}, // 100 s, 10 s of which it is handed back
		{third, 60, 70, "", ""},
		{second, 110, 210, "job 1", ""},
		{long, 290, 400, "", "job 4"},
		{urgent, 300, 360, "", ""},
		{unknown, 400, -1, "", ""},
		{last, 400, 420, "", ""},
	} {
		require.Equal(t, c.start, after(c.of.StartsAt), c.of.Label())
		require.Equal(t, c.end, after(c.of.EndsAt), c.of.Label())
		require.Equal(t, c.waits, c.of.WaitsFor, c.of.Label())
		require.Equal(t, c.makes, c.of.HandedBackFor, c.of.Label())
	}
	require.Equal(t, []HourLoad{{At: dawn, BusyMS: (210 + 130) * 1000, Unknown: 1}}, l.load(dawn, dawn.Add(time.Hour)))

	at, by := l.free(dawn, dawn.Add(time.Hour), 80*time.Second)
	require.Equal(t, 210, after(at))
	require.Nil(t, by)
	at, by = l.free(dawn, dawn.Add(time.Hour), 81*time.Second)
	require.Equal(t, 420, after(at))
	require.Equal(t, unknown, by, "what comes after it is a guess")
	at, _ = l.free(dawn, dawn.Add(500*time.Second), 81*time.Second)
	require.Nil(t, at, "not so long before the end")
}

func TestForecast_TheLoadOfAnHourIsThatHours(t *testing.T) {
	t.Parallel()
	l := &laneForecast{now: dawn.Add(10 * time.Minute), running: entry(1, 0, 3000, 0), coming: []*planned{entry(2, 0, 2*3600, 0)}}
	l.run()
	minute := int64(60_000)
	require.Equal(t, []HourLoad{{At: dawn, BusyMS: 50 * minute}, {At: dawn.Add(time.Hour), BusyMS: 60 * minute}, {At: dawn.Add(2 * time.Hour), BusyMS: 60 * minute}},
		l.load(dawn, dawn.Add(4*time.Hour)))
	require.Equal(t, []HourLoad{{At: dawn, BusyMS: 30 * minute}, {At: dawn.Add(time.Hour), BusyMS: 15 * minute}},
		l.load(dawn.Add(30*time.Minute), dawn.Add(75*time.Minute)), "only of the time that is looked at")
}

// Whatever is due when, urgent as it may be: it goes as a runner does that looks every second.
func TestForecast_GoesAsARunnerThatLooksEverySecond(t *testing.T) {
	t.Parallel()
	for range 500 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(8)
		var coming []*planned
		left, due, priority := make([]int, n), make([]int, n), make([]int, n)
		starts, ends := make([]int, n), make([]int, n)
		for i := range n {
			due[i], left[i], priority[i] = random.IntN(60)-5, 1+random.IntN(20), random.IntN(3)
			starts[i], ends[i] = -1, -1
			coming = append(coming, entry(int64(i), due[i], left[i], priority[i]))
		}
		l := &laneForecast{now: dawn, coming: append([]*planned(nil), coming...)}
		l.run()
		busy, current := 0, -1
		for now := 0; now < 300; now++ {
			best := current
			for i := range n {
				if due[i] > now || left[i] == 0 {
					continue
				}
				if best < 0 || priority[i] > priority[best] || best != current && priority[i] == priority[best] && due[i] < due[best] {
					best = i
				}
			}
			if best < 0 {
				continue
			}
			if current = best; starts[best] < 0 {
				starts[best] = now
			}
			busy++
			if left[best]--; left[best] == 0 {
				ends[best], current = now+1, -1
			}
		}
		for i, p := range coming {
			require.Equal(t, starts[i], after(p.StartsAt), "%s, seed %d", p.Label(), seed)
			require.Equal(t, ends[i], after(p.EndsAt), "%s, seed %d", p.Label(), seed)
			require.Equal(t, p.WaitsFor != "", starts[i] > max(0, due[i]), "%s waits, seed %d", p.Label(), seed)
		}
		var ms int64
		for _, h := range l.load(dawn, dawn.Add(time.Hour)) {
			ms += h.BusyMS
		}
		require.EqualValues(t, busy*1000, ms, "seed %d", seed)
	}
}

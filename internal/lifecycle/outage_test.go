package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// said are the lines of a log from info on: level, message and elapsed time.
func said(t *testing.T, log *bytes.Buffer) (lines []string) {
	t.Helper()
	for decoder := json.NewDecoder(log); decoder.More(); {
		var line struct {
			Level     string `json:"level"`
			Message   string `json:"message"`
			ElapsedMS int64  `json:"elapsed_ms"`
		}
		require.NoError(t, decoder.Decode(&line))
		lines = append(lines, line.Level+": "+line.Message+" "+(time.Duration(line.ElapsedMS)*time.Millisecond).String())
	}
	return lines
}

const (
	gone  = "warn: the database does not answer; trying again "
	still = gone
	back  = "info: the database answers again "
)

func TestOutage_IsSaidOnceAMinuteByAllLoopsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away, other := errors.New("connection refused"), errors.New("permission denied")
		log := new(bytes.Buffer)
		o := lifecycle.NewOutage(zerolog.New(log).Level(zerolog.InfoLevel), func(err error) bool { return errors.Is(err, away) })
		try := func(loops int, err error, logged bool) {
			t.Helper()
			for range loops {
				require.Equal(t, logged, o.Observe(time.Now(), err))
			}
			<-time.After(time.Second)
		}
		try(3, nil, true)
		try(1, other, false) // the loop says it
		require.Empty(t, said(t, log))
		for range 150 {
			try(3, away, true)
		}
		require.Equal(t, []string{gone + "0s", still + "1m0s", still + "2m0s"}, said(t, log))
		early := time.Now()
		try(1, away, true)
		require.True(t, o.Observe(early.Add(-time.Second), nil)) // it was slow, and began before
		require.Empty(t, said(t, log))
		try(3, nil, true)
		require.Equal(t, []string{back + "2m31s"}, said(t, log))
		n, since := o.Seen()
		require.Equal(t, int64(1), n)
		require.Zero(t, since)

		// It comes and goes: one pair of lines a minute.
		<-time.After(time.Minute)
		for range 30 {
			try(1, away, true)
			try(1, nil, true)
		}
		require.Equal(t, []string{gone + "0s", back + "1s"}, said(t, log))

		// A database that answers with an error is there.
		try(1, away, true)
		require.Len(t, said(t, log), 1)
		n, since = o.Seen()
		require.Equal(t, int64(32), n)
		require.Equal(t, time.Second, time.Since(since))
		try(1, other, false)
		require.Equal(t, []string{back + "1s"}, said(t, log))
	})
}

func TestOutage_NobodyHasToListen(t *testing.T) {
	t.Parallel()
	var o *lifecycle.Outage
	require.True(t, o.Observe(time.Now(), nil))
	require.False(t, o.Observe(time.Now(), errors.New("away")))
}

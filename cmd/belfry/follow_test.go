package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

func TestFollowing_TellsRateAndTimeLeft(t *testing.T) {
	t.Parallel()
	st := relay.Stats{}
	f := following{stats: func() relay.Stats { return st }}
	f.observe(noon(), 10_000)
	require.Equal(t, "delivery: [----------] 0%; 0 / 10,000 messages", f.line(10))
	st.Sent, st.Dead = 900, 100
	f.observe(noon().Add(time.Second), 9_000)
	require.Equal(t, "delivery: 10%, 1,000/s; 1,000 / 10,000 messages, 100 dead", f.line(0))
	st.Sent = 2900
	f.observe(noon().Add(3*time.Second), 7_000)
	require.Equal(t, "delivery: [###-------] 30%, 1,000/s, 7s left; 3,000 / 10,000 messages, 100 dead", f.line(10))
	require.Equal(t, "delivery: 30%, 1,000/s, 7s left; 3,000 / 10,000 messages, 100 dead", f.line(0))
	st.Sent = 3900
	f.observe(noon().Add(4*time.Second), 1_000) // another relay sent 5,000
	require.Equal(t, "delivery: 80%, 1,000/s, 500ms left; 4,000 / 5,000 messages, 100 dead", f.line(0))
	st.Sent = 4900
	f.observe(noon().Add(5*time.Second), 0)
	require.Equal(t, "delivery: 5,000 messages, 100 dead, nothing waits", f.line(10))
}

// A drain of a minute is no minute of silence, whoever reads: a terminal's line is redrawn,
// a pipe gets lines, the log of a relay entries.
func TestFollow_IsNoSilence(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := job.NewStore(db.Pool).Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, bound = '', started_at = now()`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent) VALUES (1, '', 100, 20)`)
	require.NoError(t, err)
	for name, want := range map[string]string{
		"terminal": "\rdelivery: [####----------------] ",
		"pipe":     "delivery: ",
		"log":      `"message":"messages delivered"`,
	} {
		var out dbtest.Buffer
		var sent, asked atomic.Int64
		a := newApp(nil, &out, nil)
		a.now = func() time.Time { return noon().Add(time.Duration(asked.Add(1)) * time.Minute) }
		show := newProgress(a.streams)
		var log *zerolog.Logger
		switch name {
		case "terminal":
			show.Progress = text.NewProgress(a.stderr, func() int { return 80 })
		case "log":
			log = new(zerolog.New(show))
		}
		end := follow(t.Context(), &database{Pool: db.Pool}, show, log, func() relay.Stats {
			sent.CompareAndSwap(0, 20)
			return relay.Stats{Sent: sent.Load()}
		})
		look := time.NewTicker(5 * time.Millisecond)
		for began := time.Now(); !strings.Contains(out.String(), want); <-look.C {
			require.Less(t, time.Since(began), patience, "%s: %q", name, out.String())
		}
		look.Stop()
		end()
		if name != "log" {
			require.Contains(t, out.String(), "20 / 100 messages", name)
		}
	}
}

func TestDeaths_MostFirst(t *testing.T) {
	t.Parallel()
	by := make(map[outbox.Reason]int64)
	by[outbox.ReasonInvalidAddress] = 763
	require.Equal(t, "messages: 763 dead (invalid_address), 5 handed back; `belfry dead-letters list` shows the dead", delivered(relay.Stats{
		Dead: 763, DeadBy: by, Returned: 5,
	}))
	by[outbox.ReasonPermanent], by[outbox.ReasonNoAddress], by[outbox.ReasonExhausted] = 1, 7, 2
	delete(by, outbox.ReasonInvalidAddress)
	require.Equal(t, "messages: 10 dead (7 no_address, 2 exhausted, 1 permanent); `belfry dead-letters list` shows the dead", delivered(relay.Stats{
		Dead: 10, DeadBy: by,
	}))
}

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

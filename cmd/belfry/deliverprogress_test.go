package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

func TestFollowing_TellsRateAndTimeLeft(t *testing.T) {
	t.Parallel()
	st := relay.Stats{}
	f := following{stats: func() relay.Stats { return st }}
	f.look(noon(), 10_000)
	require.Equal(t, "delivery: [----------] 0%; 0 / 10,000 messages", f.line(10))
	st.Sent, st.Dead = 900, 100
	f.look(noon().Add(time.Second), 9_000)
	require.Equal(t, "delivery: [#---------] 10%, 1,000/s, 9s left; 1,000 / 10,000 messages, 100 dead", f.line(10))
	require.Equal(t, "delivery: 10%, 1,000/s, 9s left; 1,000 / 10,000 messages, 100 dead", f.line(0))
	st.Sent = 1900
	f.look(noon().Add(2*time.Second), 3_000) // another relay sent 5,000
	require.Equal(t, "delivery: 40%, 1,000/s, 1.5s left; 2,000 / 5,000 messages, 100 dead", f.line(0))
	st.Sent = 4900
	f.look(noon().Add(3*time.Second), 0)
	require.Equal(t, "delivery: 5,000 messages, 100 dead, nothing waits", f.line(10))
}

func TestDeaths_MostFirst(t *testing.T) {
	t.Parallel()
	require.Equal(t, "messages: 10 dead (7 no_address, 2 exhausted, 1 permanent); `belfry dead list` shows the dead", delivered(relay.Stats{
		Dead: 10, DeadBy: map[outbox.Reason]int64{"permanent": 1, "no_address": 7, "exhausted": 2},
	}))
}

package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
)

// A job whose messages wait for a sender that is slower than claims is left alone: also when
// they go there because its first medium was bypassed, and the sender of that has nothing to
// do.
func TestLong_CreditsJobOfASlowSenderIsClaimedAndDeferredAllTheTime(t *testing.T) {
	t.Parallel()
	for name, route := range map[string][]string{"its own": {"sms"}, "by the next medium": {"email", "sms"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 2500)
			b.job(t, "default", 1, 2500, route...)
			c := settings("sms", "sms")
			c.RatePerSecond, c.Burst = 50, 1
			provider := &script{}
			run := b.start(t, config("r"), []relay.Sender{{SenderConfig: settings("mail", "email"), Client: &script{}}, {SenderConfig: c, Client: provider}})
			provider.reached(t, 75)
			require.Less(t, run.Stats().Deferred, int64(500))
			run.end(t)
		})
	}
}

// A job whose next messages are for a sender that takes nothing comes to those behind them
// that are for another.
func TestLong_CreditsMessagesBehindAPausedSendersAreNeverReached(t *testing.T) {
	t.Parallel()
	b := setup(t, 600)
	b.exec(t, `UPDATE belfry.channels SET platform = CASE WHEN id <= 560 THEN 'android' ELSE 'ios' END`)
	b.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('gcm', now(), 'somebody')`)
	id := b.job(t, "default", 1, 600)
	paused, works := settings("gcm", "push"), &script{}
	paused.Platforms = []string{"android"}
	run := b.start(t, config("r"), []relay.Sender{{SenderConfig: paused, Client: &script{}}, {SenderConfig: settings("apns", "push"), Client: works}})
	b.eventually(t, `SELECT count(*) = 40 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, id)
	run.end(t)
	require.Len(t, works.all(), 40)
}

// What composes to nobody, because it is refused, holds nothing up: no sender has to grant
// anything.
func TestCredits_RefusedMessagesWaitForCredits(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	b.exec(t, `SELECT belfry.opt_out(id) FROM belfry.channels`)
	b.job(t, "default", 1, 3000)
	stats := b.drain(t, config("r"), push(&script{}))
	require.EqualValues(t, 3000, stats.Refused)
}

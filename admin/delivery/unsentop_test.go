package delivery_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// The first message of a user's life is not sent: who reads the end of a run knows why.
func TestStandstill_SaysWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	in, past := 5*time.Minute, -time.Second
	pushes := []delivery.RelayState{{Media: []string{"push"}}}
	paused, sends := delivery.SenderState{Name: "fcm", Medium: "push", PausedAt: new(admintest.Noon()), PausedBy: "ann"}, delivery.SenderState{Name: "apns", Medium: "push"}
	for name, c := range map[string]struct {
		carriers delivery.Carriers
		job      delivery.Unsent
		why      string
		remedy   string
		moving   bool
	}{
		"no senders at all": {
			delivery.Carriers{Flags: " --config config.yaml"}, delivery.Unsent{Route: []string{"push", "sms"}, DueIn: &past},
			"no sender for push or sms", "to try it, leave `belfry fake --write fake.yaml` running and `belfry run --deliver --config config.yaml --config fake.yaml`; real ones are `senders` in the configuration", false,
		},
		"no sender of the medium": {
			delivery.Carriers{Configured: []string{"sms"}}, delivery.Unsent{Route: []string{"push", "sms"}, DueIn: &past},
			"no sender for push", "add one with medium: push to `senders` in the configuration", false,
		},
		"a copy": {
			delivery.Carriers{Live: pushes, Copied: true}, delivery.Unsent{JobID: 7, Route: []string{"push"}, DueIn: &past},
			"the database is a copy or was moved, and relays wait", "show the waiting messages and adopt the database: `belfry adopt`", false,
		},
		"aborted": {
			delivery.Carriers{}, delivery.Unsent{JobID: 7, Status: job.Aborted, Held: true, Route: []string{"push"}},
			"held, the job is ABORTED", "resume the job: `belfry resume 7`", false,
		},
		"lane paused": {
			delivery.Carriers{Live: pushes}, delivery.Unsent{JobID: 7, Status: job.Processed, Lane: "night", Held: true, PausedBy: "ben", Route: []string{"push"}},
			"held, lane night is paused by ben", "resume the lane: `belfry lanes resume night`", false,
		},
		"due later": {
			delivery.Carriers{Live: pushes}, delivery.Unsent{Route: []string{"push"}, DueIn: &in, Reason: outbox.ReasonQuietHours},
			"the first is due " + text.LocalClock(admintest.Noon().Add(in)) + " (it waits for the end of the channel's quiet hours)", "", false,
		},
		"due later, for nobody": {
			delivery.Carriers{Configured: []string{"push"}}, delivery.Unsent{Route: []string{"push"}, DueIn: &in},
			"the first is due " + text.LocalClock(admintest.Noon().Add(in)), "to send them then, start a daemon, `belfry relay` or `belfry run --deliver`", false,
		},
		"a relay has them": {
			delivery.Carriers{Live: pushes}, delivery.Unsent{JobID: 7, Route: []string{"push", "sms"}},
			"relays are sending them", "watch the job: `belfry jobs watch 7`", true,
		},
		"the provider is down": {
			delivery.Carriers{Live: pushes}, delivery.Unsent{JobID: 7, Route: []string{"push"}, DueIn: &past, Reason: outbox.ReasonBreakerOpen},
			"relays are sending them (it waits for the provider to recover)", "watch the job: `belfry jobs watch 7`", false,
		},
		"the sender is paused": {
			delivery.Carriers{Live: pushes, Senders: []delivery.SenderState{paused, {Name: "gate", Medium: "sms"}}}, delivery.Unsent{JobID: 7, Route: []string{"push"}, DueIn: &in, Reason: outbox.ReasonSenderPaused},
			"held, sender fcm is paused by ann", "resume the sender: `belfry senders resume fcm`", false,
		},
		"the sender is paused, and no message was tried": {
			delivery.Carriers{Live: pushes, Senders: []delivery.SenderState{paused}}, delivery.Unsent{JobID: 7, Route: []string{"push", "sms"}},
			"held, sender fcm is paused by ann", "resume the sender: `belfry senders resume fcm`", false,
		},
		"one of two senders is paused": {
			delivery.Carriers{Live: pushes, Senders: []delivery.SenderState{paused, sends}}, delivery.Unsent{JobID: 7, Route: []string{"push"}, DueIn: &past, Reason: outbox.ReasonSenderPaused},
			"some are held, sender fcm is paused by ann", "resume the sender: `belfry senders resume fcm`", false,
		},
		"the other sender is paused": {
			delivery.Carriers{Live: pushes, Senders: []delivery.SenderState{paused, sends}}, delivery.Unsent{JobID: 7, Route: []string{"push"}, DueIn: &past},
			"relays are sending them", "watch the job: `belfry jobs watch 7`", true,
		},
		"no relay": {
			delivery.Carriers{Configured: []string{"push"}}, delivery.Unsent{Route: []string{"push"}, DueIn: &past},
			"due, and no relay is running", "to send them, start a daemon, `belfry relay` or `belfry run --deliver`", false,
		},
	} {
		still := c.carriers.Standstill(c.job, admintest.Noon())
		require.Equal(t, []any{c.why, c.remedy, c.moving}, []any{still.Why.String(), still.Remedy.String(), still.Moving}, name)
	}
}

// A job whose messages relays take after those of other jobs of its lane names these.
func TestJobsShow_NamesTheJobsAhead(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.relays (name, media, heartbeat_at) VALUES ('r1', '{push}', now() + interval '50 seconds')`)
	rest := &outboxtest.Database{DB: d.DB}
	show := func(id int64) string {
		require.NoError(t, d.Run("jobs show", "id", strconv.FormatInt(id, 10)))
		return d.Out
	}
	jobs := make([]int64, 5)
	for i := range jobs {
		jobs[i] = rest.Rest(t, outbox.TypePush, 2, job.Processed)
		if i == 1 {
			require.Regexp(t, fmt.Sprintf(`(?m)^waiting +behind job %d of this lane \(2 messages\)`, jobs[0]), show(jobs[1]))
		}
	}
	require.Regexp(t, `(?m)^waiting +relays are sending them`, show(jobs[0]))
	require.Regexp(t, fmt.Sprintf(`(?m)^waiting +behind jobs %d, %d and %d of this lane \(6 messages\)`, jobs[0], jobs[1], jobs[2]), show(jobs[3]))
	require.Regexp(t, fmt.Sprintf(`(?m)^waiting +behind jobs %d, %d, %d and 1 more of this lane \(8 messages\)`, jobs[0], jobs[1], jobs[2]), show(jobs[4]))
}

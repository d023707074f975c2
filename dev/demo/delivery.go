package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/dev/fake"
)

// relayLease is the time until the messages of a killed relay are due again.
const relayLease = 3 * time.Second

// faults are the failures of the demo's providers, for a tenth of the calls.
const faults = `
- {for: fcm, status: 503, share: 0.03}
- {for: fcm, status: 429, retry_after: 1s, share: 0.01}
- {for: fcm, status: 502, share: 0.01}
- {for: fcm, do: reset, share: 0.02}
- {for: fcm, status: 400, share: 0.01}
- {for: fcm, do: invalid-address, share: 0.02}
- {for: sms, status: 500, share: 0.05}
- {for: sms, status: 400, share: 0.05}
`

// deliverMessages is the fourth act: relays deliver the job's messages through providers that fail a
// tenth of the calls, and one relay is killed meanwhile.
func (s *stage) deliverMessages(ctx context.Context) error {
	s.screen.act("Delivery: kill -9 again, and providers that fail a tenth of the calls")
	limit := 2*s.patience() + time.Duration(s.Channels)*time.Millisecond
	wait, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
	defer cancel()
	if err := s.startFakes(wait); err != nil {
		return fmt.Errorf("start the fakes: %w", err)
	}
	d := &deliveryReport{}
	s.report.Delivery = d
	if err := scan(wait, s.pool, queries.messagesCount, nil, &d.Messages); err != nil {
		return err
	}
	began := time.Now()
	victim, err := s.start(ctx, "relay", "--relay-name", "relay-1")
	if err != nil {
		return err
	}
	other, err := s.start(ctx, "relay", "--relay-name", "relay-2")
	if err != nil {
		return err
	}
	accepted := func() int64 { return s.fakes.Summary().Total().Accepted }
	err = s.await(wait, victim, "the providers have accepted a quarter of the messages",
		func(context.Context) (bool, error) { return accepted() >= d.Messages/4, nil })
	if err != nil {
		return err
	}
	if d.Killed, err = victim.kill(wait); err != nil {
		return err
	}
	d.AcceptedAtKill = accepted()
	s.screen.bullet("two relays share %s messages; %s to one relay after %s", grouped(d.Messages), s.screen.paint(red, "kill -9"),
		grouped(d.AcceptedAtKill))
	err = s.await(wait, other, "all messages are delivered", func(ctx context.Context) (done bool, err error) {
		err = scan(ctx, s.pool, queries.allDelivered, nil, &done)
		return done, err
	})
	if err != nil {
		return err
	}
	d.ElapsedMS = inMillis(time.Since(began))
	if err := other.stop(wait); err != nil {
		return err
	}
	if err := scan(wait, s.pool, queries.deliveryAccount, nil, &d.Sent, &d.Dead, &d.Unfinished, &d.Retried, &d.FailedOver,
		&d.Ambiguous); err != nil {
		return err
	}
	seen := s.fakes.Summary().Total()
	d.Calls, d.Accepted, d.Duplicates, d.Early = seen.Calls, seen.Accepted, seen.Duplicates, seen.Early
	s.screen.bullet("%s: %s sent, %s dead letters, %s left; %s were tried again, %s went by sms after push had failed permanently",
		millis(d.ElapsedMS), grouped(d.Sent), grouped(d.Dead), grouped(d.Unfinished), grouped(d.Retried), grouped(d.FailedOver))
	s.screen.bullet("the providers counted %s duplicates; belfry recorded %s attempts with an unknown outcome",
		grouped(d.Duplicates), grouped(d.Ambiguous))
	return nil
}

// startFakes starts the providers, which end with the stage, and configures them for later
// processes.
func (s *stage) startFakes(ctx context.Context) (err error) {
	c := fake.DefaultConfig()
	c.RecentCalls = 1
	if c.Faults, err = fake.ParseFaults(faults); err != nil {
		return err
	}
	if s.fakes, err = fake.Start(ctx, c); err != nil {
		return err
	}
	var list []map[string]any
	for _, sender := range s.fakes.Senders() {
		if sender.Kind == "fcm" || sender.Kind == "sms" {
			list = append(list, map[string]any{
				"name": sender.Name, "kind": sender.Kind, sender.Kind: sender.Settings, "concurrency": 64, "timeout": "5s",
				"retry": map[string]any{"attempts": 3, "initial": "200ms", "max": "2s"},
			})
		}
	}
	senders, err := json.Marshal(list)
	s.extra = []string{
		"BELFRY_SENDERS=" + string(senders), "BELFRY_DELIVERY_LEASE=" + relayLease.String(),
		"BELFRY_DELIVERY_STATEMENT_TIMEOUT=1s", "BELFRY_DELIVERY_POLL_INTERVAL=" + pollInterval.String(),
	}
	return err
}

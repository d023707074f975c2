package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/fake"
)

// relayLease is how long a relay that was killed holds its messages back.
const relayLease = 3 * time.Second

// faults are what the providers of the demo do to a tenth of the calls.
var faults = []string{
	"{for: fcm, status: 503, share: 0.03}", "{for: fcm, status: 429, retry_after: 1s, share: 0.01}", "{for: fcm, status: 502, share: 0.01}", "{for: fcm, do: reset, share: 0.02}",
	"{for: fcm, status: 400, share: 0.01}", "{for: fcm, do: invalid-address, share: 0.02}", "{for: sms, status: 500, share: 0.05}", "{for: sms, status: 400, share: 0.05}",
}

// deliverMessages is the fifth act: relays deliver what the push jobs wrote, through
// providers that fail a tenth of the calls, and one relay is killed meanwhile.
func (s *stage) deliverMessages(ctx context.Context) error {
	s.screen.act("Delivery: kill -9 again, and providers that fail a tenth of the calls")
	limit := 2*s.patience() + time.Duration(s.Channels)*time.Millisecond
	wait, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
	defer cancel()
	fakes, err := s.startFakes(wait)
	if err != nil {
		return err
	}
	if err := s.relayEnvironment(fakes); err != nil {
		return err
	}
	d := &DeliveryReport{}
	s.report.Delivery = d
	if err := s.pool.QueryRow(wait, queries.SQL("MessagesCount")).Scan(&d.Messages); err != nil {
		return fmt.Errorf("count the messages: %w", err)
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
	if err := s.untilAccepted(wait, fakes, victim, d.Messages/4); err != nil {
		return err
	}
	if d.Killed, err = victim.kill(wait); err != nil {
		return err
	}
	d.AcceptedAtKill = fakes.Summary().Total().Accepted
	s.screen.say("two relays share %s messages; %s to one of them after %s", grouped(d.Messages), s.screen.paint(red, "kill -9"), grouped(d.AcceptedAtKill))
	if err := s.untilDelivered(wait, other); err != nil {
		return err
	}
	d.ElapsedMS = inMillis(time.Since(began))
	if err := s.stopSoftly(wait, other); err != nil {
		return err
	}
	if err := s.accountForDelivery(wait, d, fakes.Summary().Total()); err != nil {
		return err
	}
	s.showDelivery(d)
	return nil
}

// startFakes starts the providers. They end with the stage.
func (s *stage) startFakes(ctx context.Context) (*fake.Server, error) {
	c := fake.DefaultConfig()
	c.TLSListen, c.SMTPListen, c.RecentCalls = "", "", 1
	for _, text := range faults {
		f, err := fake.ParseFault(text)
		if err != nil {
			return nil, err
		}
		c.Faults = append(c.Faults, f)
	}
	server, err := fake.Start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start the fakes: %w", err)
	}
	s.fakes = server
	return server, nil
}

// relayEnvironment has the runners that are started from now on know the fakes.
func (s *stage) relayEnvironment(fakes *fake.Server) error {
	c, err := fakes.Credentials()
	if err != nil {
		return err
	}
	limits := func(entry map[string]any) map[string]any {
		entry["concurrency"], entry["timeout"] = 64, "5s"
		entry["retry"] = map[string]any{"attempts": 3, "initial": "200ms", "max": "2s"}
		return entry
	}
	senders, err := json.Marshal([]map[string]any{
		limits(map[string]any{"name": "fcm", "kind": "fcm", "fcm": map[string]any{"endpoint": fakes.URL(), "service_account": c.FCMServiceAccount}}),
		limits(map[string]any{"name": "text", "kind": "sms", "sms": map[string]any{"url": fakes.URL() + "/sms", "auth": "bearer", "secret": c.SMSToken}}),
	})
	if err != nil {
		return err
	}
	s.extra = []string{
		"BELFRY_SENDERS=" + string(senders), "BELFRY_DELIVERY_LEASE=" + relayLease.String(),
		"BELFRY_DELIVERY_STATEMENT_TIMEOUT=1s", "BELFRY_DELIVERY_POLL_INTERVAL=" + pollInterval.String(),
	}
	return nil
}

// untilAccepted waits until the providers have accepted n messages.
func (s *stage) untilAccepted(ctx context.Context, fakes *fake.Server, r *runner, n int64) error {
	return s.poll(ctx, r, "providers have their share", func(context.Context) (bool, error) {
		return fakes.Summary().Total().Accepted >= n, nil
	})
}

// untilDelivered waits until no push job has a message left.
func (s *stage) untilDelivered(ctx context.Context, r *runner) error {
	return s.poll(ctx, r, "everything is delivered", func(ctx context.Context) (done bool, err error) {
		err = s.pool.QueryRow(ctx, queries.SQL("AllDelivered")).Scan(&done)
		return done, err
	})
}

// poll looks until done says so, as long as the relay lives.
func (s *stage) poll(ctx context.Context, r *runner, what string, done func(context.Context) (bool, error)) error {
	again := time.NewTicker(5 * lookEvery)
	defer again.Stop()
	for {
		ended := r.gone()
		ok, err := done(ctx)
		if err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if ok {
			return nil
		}
		if ended {
			return r.complaint("ended before " + what)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
}

// accountForDelivery compares what belfry recorded with what the providers counted.
func (s *stage) accountForDelivery(ctx context.Context, d *DeliveryReport, seen fake.Tally) error {
	type account struct{ Sent, Dead, Unfinished, Retried, FailedOver, Ambiguous int64 }
	rows, err := s.pool.Query(ctx, queries.SQL("DeliveryAccount"))
	if err != nil {
		return fmt.Errorf("account for the delivery: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[account])
	if err != nil {
		return fmt.Errorf("account for the delivery: %w", err)
	}
	d.Sent, d.Dead, d.Unfinished = a.Sent, a.Dead, a.Unfinished
	d.Retried, d.FailedOver, d.Ambiguous = a.Retried, a.FailedOver, a.Ambiguous
	d.Calls, d.Accepted, d.Duplicates, d.Early = seen.Calls, seen.Accepted, seen.Duplicates, seen.Early
	return nil
}

func (s *stage) showDelivery(d *DeliveryReport) {
	s.screen.say("%s: %s sent, %s dead letters, %s left; %s were tried again, %s went by sms after push had failed permanently",
		millis(d.ElapsedMS), grouped(d.Sent), grouped(d.Dead), grouped(d.Unfinished), grouped(d.Retried), grouped(d.FailedOver))
	s.screen.say("the providers counted %s duplicates; belfry recorded %s attempts whose outcome it could not know", grouped(d.Duplicates), grouped(d.Ambiguous))
}

// judge notes what does not hold of the delivery.
func (d *DeliveryReport) judge(bad func(broken bool, format string, args ...any)) {
	if d == nil {
		bad(true, "nothing was delivered")
		return
	}
	bad(!d.Killed || d.AcceptedAtKill >= d.Messages, "no relay was killed while it delivered")
	bad(d.Unfinished != 0, "%s messages are neither sent nor dead", grouped(d.Unfinished))
	bad(d.Sent+d.Dead+d.Unfinished != d.Messages, "%s messages became %s", grouped(d.Messages), grouped(d.Sent+d.Dead+d.Unfinished))
	bad(d.Duplicates > d.Ambiguous, "the providers have %s duplicates, and only %s outcomes were unknown", grouped(d.Duplicates), grouped(d.Ambiguous))
	bad(d.Early != 0, "%s calls came before their Retry-After", strconv.FormatInt(d.Early, 10))
}

// closeFakes ends the providers.
func (s *stage) closeFakes() error {
	if s.fakes == nil {
		return nil
	}
	return s.fakes.Close()
}

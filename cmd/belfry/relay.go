package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// stoppingCalls is the message of a relay after the first signal.
const stoppingCalls = "stopping after the calls in flight; a second signal stops at once"

func newRelayCommand(a *app) *cobra.Command {
	o := &processOptions{}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Deliver messages through the configured senders, until a signal",
		Long: `Deliver the messages of push jobs and of activities through the senders of the
configuration, until SIGINT or SIGTERM: then nothing new is taken, the calls in
flight are finished (delivery.grace_period) and recorded, the rest is handed back,
and the exit code is 0. A second signal cuts the calls in flight short; what became
of these is unknown, and they are tried again with the same idempotency key.

Any number of relays may work on one database, on any number of machines, beside
daemons that deliver too. A sender's rate is shared by those that live. A relay that
dies holds back what it had for delivery.lease, nothing else.

On a terminal the last line shows how the delivery goes; elsewhere the log does, every
ten seconds in which messages were sent.

SIGHUP: the configuration is read again. Limits, timeouts, retries and breakers of
senders, most of delivery and log.level take effect at once; the log says what waits for a
restart. ` + "`belfry senders set`" + ` and pause change a sender on all relays at once.`,
		Example: `  belfry relay
  belfry relay --relay-name relay-a --log-format json`,
		Args: noArgs,
	}
	keyFlag(cmd.Flags(), "relay-name", "delivery.name", "`NAME` of this relay, unique among the living")
	addMetricsFlag(cmd)
	o.addPrivate(cmd)
	o.addMigrate(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return untilSignal(ctx, runRelay(ctx, o)) })
	return cmd
}

// runRelay delivers messages.
func runRelay(ctx context.Context, o *processOptions) (err error) {
	s, err := settings.Load(o.sources, settings.Always)
	if err != nil {
		return err
	}
	show := newProgress(o.streams)
	defer show.Clear()
	logger, level := o.liveLogger(s, show)
	if err := canDeliver(s); err != nil {
		return err
	}
	collect(gcRelay)
	n, err := openNode(ctx, o, s, node.Options{Log: logger, Deliver: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	defer reloadOnHangup(ctx, o.sources, s.Config, n.Node, logger, level)()
	defer follow(ctx, n.db, show, &logger, n.Stats)()
	return serve(ctx, o.streams, n.shown, logger, stoppingCalls, n.Loops()...)
}

// canDeliver reports the settings that a relay lacks.
func canDeliver(s settings.Settings) error {
	var problems []error
	if len(s.Senders) == 0 {
		problems = append(problems, errors.New("senders: none is configured, so nothing can be delivered; "+
			"config.yaml shows how, and `belfry fake` prints a list to try with"))
	}
	if s.Database.MaxConnections < relay.Connections {
		problems = append(problems, fmt.Errorf("database.max_connections: %d is too few to deliver; allowed values: %d to 1000",
			s.Database.MaxConnections, relay.Connections))
	}
	if err := errors.Join(problems...); err != nil {
		return &exitError{codeConfiguration, err}
	}
	return nil
}

// delivered renders the result of a drain.
func delivered(st relay.Stats) string {
	var parts []string
	for _, part := range []struct {
		n    int64
		what string
	}{
		{st.Sent, "sent"},
		{st.Unconfirmed, "sent without a receipt"},
		{st.Awaiting, "awaiting a receipt"},
		{st.Retried, "to be tried again"},
		{st.FailedOver, "to go by the next medium"},
		{st.Deferred, "deferred"},
		{st.Refused, "not wanted"},
		{st.Cancelled, "recalled"},
		{st.Dead, "dead" + deaths(st.DeadBy)},
		{st.Lost, "lost to another relay"},
		{st.Returned, "handed back"},
		{st.Recovered, "taken back from relays that died"},
	} {
		if part.n > 0 {
			parts = append(parts, text.Grouped(part.n)+" "+part.what)
		}
	}
	if len(parts) == 0 {
		return "no message is due"
	}
	text := "messages: " + strings.Join(parts, ", ")
	if st.Dead > 0 {
		text += "; `belfry dead-letters list` shows the dead"
	}
	return text
}

// deaths renders the reasons of dead letters, the most frequent first, in parentheses.
func deaths(by map[outbox.Reason]int64) string {
	reasons := slices.SortedFunc(maps.Keys(by), func(a, b outbox.Reason) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	switch len(reasons) {
	case 0:
		return ""
	case 1:
		return " (" + string(reasons[0]) + ")"
	}
	parts := make([]string, len(reasons))
	for i, why := range reasons {
		parts[i] = fmt.Sprintf("%s %s", text.Grouped(by[why]), why)
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
